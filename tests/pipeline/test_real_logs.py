"""Real logs through the whole path: every entry of every file comes out once, where it belongs, as it went in.

In the worker's objects of each layout; of the default layout, and of one file in each, in the table as well. An audit
says so: Spark's where the table has a thousand entries or more (of fewer it would plan for twenty seconds), else the
small one. What is expected is in `real_log`; rows and dead letters are read by `readback`. Not collected where the data
are absent (tests/conftest.py).
"""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.audit.auditor import Auditor, Options
from pipeline.audit.result import Window
from pipeline.jobs.materialize import Materialize
from pipeline.table_rows import restore
from service.accounting import ExitCode
from tests.integration.harness import Deployment
from tests.integration.one_worker import run_through
from tests.integration.readback import parse_rounding, read_objects
from tests.integration.real_log import PARTITIONS, RULES, RealLog, lines_of, real_log_files
from tests.pipeline.conftest import Lake
from tests.pipeline.readback import read_counts_by_pyiceberg
from tests.stack.kafka_helper import KafkaHelper
from tests.stack.names import Names
from tests.stack.s3_helper import S3Helper

EVERYTHING = Window(from_ms=None, until_ms=None, padding_s=600)
# The default takes all sets. In files each PartitionKey is an object: of some sets, every other entry is one.
ENTRIES_MAX = {"pack": 40_000, "file": 10_000}
IN_TABLE_OF_EACH = "eve"  # of nested objects; half a minute of Spark for each layout
ENTRIES_MIN_ON_SPARK = 1_000  # for its audit


def name_of(file: Path) -> str:
    """The name under which `RULES` has a file."""
    return file.name.partition(".")[0]


def has_few(file: Path, layout: str) -> bool:
    """Whether a file has few enough entries for a layout."""
    return name_of(file) in RULES and RULES[name_of(file)].entries <= ENTRIES_MAX[layout]


CASES = [
    pytest.param(file, layout, id=f"{file.parent.name}/{name_of(file)}-{layout}")
    for file in real_log_files()
    for layout in ("auto", *ENTRIES_MAX)
    if layout == "auto" or has_few(file, layout)
]


@pytest.mark.parametrize(("file", "layout"), CASES)
def test_real_logs_come_out_as_they_went_in(
    file: Path,
    layout: str,
    kafka: KafkaHelper,
    s3: S3Helper,
    names: Names,
    tmp_path: Path,
    lake_of: Callable[..., Lake],
) -> None:
    """Every entry is in one row of the right user, date and hour, or a dead letter; of the default layout in the table.

    Equal field by field; the audit is clean, and PyIceberg counts as many rows as Spark.
    """
    rules = RULES[name_of(file)]
    lines = lines_of(file)
    assert not rules.entries or len(lines) == rules.entries
    settings = rules.settings() | {"LOGP_LAYOUT": layout}
    seconds: dict[str, float] = {}
    with Deployment(
        kafka=kafka, s3=s3, names=names, root=tmp_path, partitions=PARTITIONS, settings=settings
    ) as deployment:
        began = time.monotonic()

        def took(step: str) -> None:
            seconds[step] = round(time.monotonic() - began - sum(seconds.values()), 1)

        in_files = RealLog(lines, rules)
        written = run_through(deployment, in_files.records(), LOGP_SPOOL__BYTES_MAX=str(4 << 30))
        took("path")
        require_files(deployment, in_files, written)
        took("objects")
        is_in_table = layout == "auto" or name_of(file) == IN_TABLE_OF_EACH
        if is_in_table:
            in_table = RealLog(lines, rules)
            lake = lake_of(deployment, is_compiled=True)
            require_table(lake, deployment, in_table, written)
            took("table")
        if is_in_table and len(lines) >= ENTRIES_MIN_ON_SPARK:
            options = Options(EVERYTHING, table=True, list_objects=True, verdicts=False, require_caught_up=True)
            result = Auditor(lake.spark, lake.settings, options).run()
            assert (result.exit_code, result.findings, result.could_not_tell) == (ExitCode.CLEAN, [], [])
            took("audit")
        else:
            deployment.require_clean()
            took("small audit")
    size = sum(map(len, lines)) / 1e6
    print(f"{len(lines)} entries, {size:.1f} MB, {in_files.references} references: {seconds}")


def require_files(deployment: Deployment, log: RealLog, written: list[tuple[int, int]]) -> None:
    """Find every entry in the rows of one reference, or in the dead letters."""
    log.note_places(written)
    for found in read_objects(deployment):
        log.check_reference(found.reference.partition_key, found.reference.entries, found.rows)
    log.check_dead_letters(deployment)
    log.check_nothing_is_missing()


def require_table(lake: Lake, deployment: Deployment, log: RealLog, written: list[tuple[int, int]]) -> None:
    """Find every entry in one row of the table, or in the dead letters."""
    log.note_places(written)
    Materialize(lake.spark, lake.settings).run(continuous=False)
    rows = 0
    for batch in lake.spark.table(lake.table).toArrow().to_batches():
        for row in batch.to_pylist():
            meta = row["_meta"]
            log.check_entry((meta["partition"], meta["offset"], meta["index"]), restore(row, parse_rounding))
            rows += 1
    log.check_dead_letters(deployment)
    log.check_nothing_is_missing()
    assert read_counts_by_pyiceberg(lake) == rows
