"""A pack under other readers: two byte ranges by fastavro and by Avro's Java library, the whole by Java and by Spark.

No code of the product reads here: a reference says where the bytes lie, and that is enough. The readers' lines are
those of docs/READING.md.
"""

import io
import json
import re
import subprocess
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fastavro
import pyspark
import pytest
from pyspark.sql import functions as F

from bench.peers.run import SPARK_SOURCES
from log_partitioner.formats.reference import Reference
from tests.integration.harness import Deployment
from tests.integration.one_worker import run_through
from tests.pipeline.conftest import Lake
from tests.stack.kafka_helper import KafkaHelper, ToProduce
from tests.stack.names import Names
from tests.stack.s3_helper import S3Helper

USERS = 150
ENTRIES = 600
JARS = Path(pyspark.__file__).parent / "jars"
JARS_HOME = Path(".local/bench-jars")
PROGRAM = Path(__file__).parent / "ReadReference.java"
PAGE = Path(__file__).parents[2] / "docs" / "READING.md"

Line = tuple[str, str, int, int, int, str]
"""User, topic, partition, offset, index and `n` of one row."""


@pytest.fixture
def delivered(kafka: KafkaHelper, s3: S3Helper, names: Names, tmp_path: Path) -> Iterator[Deployment]:
    """Entries of many users in one hour, some with a field that others lack, in one pack."""
    with Deployment(kafka=kafka, s3=s3, names=names, root=tmp_path, partitions=2) as deployment:
        run_through(deployment, (_record(number) for number in range(ENTRIES)))
        yield deployment


def _record(number: int) -> ToProduce:
    entry = {"user": f"user {number % USERS}", "time": "2026-03-04T05:06:07Z", "n": number}
    if number % 7 == 0:
        entry[f"field of {number % 5}"] = "x" * (number % 50)
    return ToProduce(value=json.dumps(entry).encode(), partition=number % 2)


def test_pack_is_read_by_ranges_and_whole_by_other_readers(delivered: Deployment, lake_of: Callable[..., Lake]) -> None:
    """Each finds the rows that the references count: of one user by two range GETs, of all in the whole object."""
    references = delivered.references()
    (key,) = {reference.location.object for reference in references}
    assert key.startswith("logs/pack/date=2026-03-04/hour=05/")
    assert len(references) == USERS
    reference = references[USERS // 2]
    assert len(reference.location.ranges) == 2
    url = delivered.s3.client.generate_presigned_url("get_object", Params={"Bucket": delivered.bucket, "Key": key})

    some = _by_java(url, *(f"{start}+{length}" for start, length in reference.location.ranges))
    assert some == _by_fastavro(delivered, reference)
    assert {line[0] for line in some} == {reference.partition_key.user}
    assert len(some) == reference.entries
    every = _by_java(url)
    assert len(every) == len(set(every)) == ENTRIES
    assert set(some) <= set(every)
    assert every == _by_spark(lake_of(delivered), delivered.bucket, key)


def test_lines_of_the_page_for_java_are_of_the_program() -> None:
    """The other test runs that program."""
    (lines,) = re.findall(r"```java\n(.+?)```", PAGE.read_text(), re.DOTALL)
    assert textwrap.indent(lines, " " * 8) in PROGRAM.read_text()


def _by_fastavro(deployment: Deployment, reference: Reference) -> list[Line]:
    """Read a reference by range GETs."""
    data = b"".join(
        deployment.s3.client.get_object(
            Bucket=deployment.bucket, Key=reference.location.object, Range=f"bytes={start}-{start + length - 1}"
        )["Body"].read()
        for start, length in reference.location.ranges
    )
    rows = [(row["_meta"], str(row["n"])) for row in fastavro.reader(io.BytesIO(data))]
    return sorted(
        (meta["user"], meta["topic"], meta["partition"], meta["offset"], meta["index"], n) for meta, n in rows
    )


def _by_java(url: str, *ranges: str) -> list[Line]:
    command = ["java", "-cp", f"{JARS}/*", str(PROGRAM), url, *ranges]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    count, *lines = done.stdout.splitlines()
    assert int(count) == len(lines)
    found = (line.split("\t") for line in lines)
    return sorted((user, topic, int(tp), int(offset), int(index), n) for user, topic, tp, offset, index, n in found)


def _by_spark(lake: Lake, bucket: str, key: str) -> list[Line]:
    """Read a whole object by Spark's own Avro source, which is not among the product's jars."""
    (jar,) = SPARK_SOURCES.ensure(JARS_HOME).glob("spark-avro*.jar")
    lake.spark.sql(f"ADD JAR '{jar.absolute()}'")
    file = lake.root / "pack.avro"
    file.write_bytes(lake.deployment.s3.read(bucket, key))
    made = {"spark": lake.spark, "path": str(file)}
    exec(re.findall(r"```python\n(rows = spark.+?)```", PAGE.read_text(), re.DOTALL)[0], made)  # noqa: S102 - the page is ours
    rows: Any = made["rows"]
    meta = ("user", "topic", "partition", "offset", "index")
    lines = rows.select(*(F.col(f"_meta.{name}") for name in meta), F.col("n").cast("string")).collect()
    return sorted((row[0], row[1], row[2], row[3], row[4], row[5]) for row in lines)
