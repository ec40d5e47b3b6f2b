"""Spark's processes: what Python workers are left by their parent, and where Java has its classes from."""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from log_partitioner_pipeline.python_daemon import leave_out_archives
from tools.local.class_archive import options_to_load
from tools.pipeline_jars import spark_class_archive


def archives(_: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Give the archives that this worker looks for modules in; runs on an executor."""
    known = [entry for entry in (*sys.path, *sys.path_importer_cache) if Path(entry).is_file()]
    yield pa.RecordBatch.from_pylist([{"entry": entry} for entry in known], pa.schema([("entry", pa.string())]))


def test_no_task_reads_spark_s_own_archives(spark: SparkSession) -> None:
    """Not one of those that Spark puts before everything."""
    assert spark.range(1).mapInArrow(archives, "entry string").collect() == []


def test_folders_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the path, and what Python knows of them."""
    archive = tmp_path / "one.zip"
    archive.touch()
    monkeypatch.setattr(sys, "path", [str(archive), str(tmp_path)])
    monkeypatch.setattr(sys, "path_importer_cache", {str(archive): None, str(tmp_path): None})
    leave_out_archives()
    assert (sys.path, [*sys.path_importer_cache]) == ([str(tmp_path)], [str(tmp_path)])


def test_java_loads_classes_from_the_archive(spark: SparkSession) -> None:
    """Java passes over one that does not fit, and each job takes twice as long to begin."""
    if not options_to_load(spark_class_archive()):
        pytest.skip("there is none: `python -m tools.spark_classes` has not run, or this Java makes none")
    java = int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())
    assert str(spark_class_archive()) in Path(f"/proc/{java}/maps").read_text(encoding="utf-8")
