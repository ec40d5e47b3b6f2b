"""Real logs into the table: every entry once, as it went in, and Spark's audit says so.

It takes one set of nested objects. The sweep takes the others, and other layouts, because Spark plans for minutes over
tables of hundreds of columns. tests/integration/test_real_logs.py has all of them on the worker. Without the data this
file is not collected (tests/conftest.py).
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from log_partitioner.proof.accounting import ExitCode
from log_partitioner_pipeline.audit.auditor import Auditor, Options
from log_partitioner_pipeline.audit.in_table import columns_of
from log_partitioner_pipeline.audit.result import Window
from log_partitioner_pipeline.columns import restore
from log_partitioner_pipeline.jobs.materialize import Materialize
from tests.integration.harness import Deployment
from tests.integration.one_worker import run_through
from tests.integration.readback import parse_rounding
from tests.integration.real_log import AS_TEXT, PARTITIONS, RULES, RealLog, lines_of, name_of, real_log_files, texts_of
from tests.pipeline.conftest import Lake
from tests.pipeline.readback import read_counts_by_pyiceberg
from tests.stack.kafka_helper import KafkaHelper
from tests.stack.names import Names
from tests.stack.s3_helper import S3Helper

EVERYTHING = Window(from_ms=None, until_ms=None, padding_s=600)
LAYOUTS = ("auto", "pack", "file")
ENTRIES_MAX_IN_FILES = 10_000  # each PartitionKey is an object there: of some sets, every other entry is one
CASES: list[Any] = [
    pytest.param(
        file,
        layout,
        {},
        id=f"{name_of(file)}-{layout}",
        marks=[] if (name_of(file), layout) == ("eve", "auto") else pytest.mark.sweep,
    )
    for file in real_log_files()
    for layout in LAYOUTS
    if layout != "file" or RULES[name_of(file)].entries <= ENTRIES_MAX_IN_FILES
] + [
    pytest.param(file, "auto", AS_TEXT, id="apache_logs-text", marks=pytest.mark.sweep)
    for file in real_log_files()
    if name_of(file) == "apache_logs"
]


@pytest.mark.parametrize(("file", "layout", "form"), CASES)
def test_real_logs_are_in_the_table_as_they_went_in(
    file: Path,
    layout: str,
    form: dict[str, str],
    kafka: KafkaHelper,
    s3: S3Helper,
    names: Names,
    tmp_path: Path,
    lake_of: Callable[..., Lake],
) -> None:
    """Every entry is in one row, equal field by field, or a dead letter; PyIceberg counts as many rows as Spark."""
    rules, lines = RULES[name_of(file)], lines_of(file)
    settings = rules.settings() | {"LOGP_LAYOUT": layout} | form
    with Deployment(
        kafka=kafka, s3=s3, names=names, root=tmp_path, partitions=PARTITIONS, settings=settings
    ) as deployment:
        log = RealLog(lines, rules, texts_of(file) if form else None)
        log.note_places(run_through(deployment, log.records(), LOGP_SPOOL__BYTES_MAX=str(4 << 30)))
        lake = lake_of(deployment, is_compiled=True)
        require_table(lake, deployment, log)
        options = Options(EVERYTHING, table=True, list_objects=True, verdicts=False, require_caught_up=True)
        result = Auditor(lambda: lake.spark, lake.settings, options).run()
        assert (result.exit_code, result.findings, result.could_not_tell) == (ExitCode.CLEAN, [], [])


def require_table(lake: Lake, deployment: Deployment, log: RealLog) -> None:
    """Find every entry in one row of the table, or in the dead letters."""
    Materialize(lake.spark, lake.settings).run(continuous=False)
    rows = 0
    columns = columns_of(lake.spark.table(lake.table))
    for batch in lake.spark.table(lake.table).toArrow().to_batches():
        for row in batch.to_pylist():
            meta = row["_meta"]
            place = (meta["partition"], meta["offset"], meta["index"])
            log.check_entry(place, restore(row, columns, parse_rounding))
            rows += 1
    log.check_dead_letters(deployment)
    log.check_nothing_is_missing()
    assert read_counts_by_pyiceberg(lake) == rows
