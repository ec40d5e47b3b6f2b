"""Real logs through the whole path: every entry of every file comes out once, where it belongs, as it went in.

In the worker's files and in the table. What is expected is in `real_log`; rows and dead letters are read by `readback`.
Not collected where the data are absent (tests/conftest.py).
"""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.jobs.materialize import Materialize
from pipeline.table_rows import restore
from tests.integration.harness import Deployment
from tests.integration.one_worker import run_through
from tests.integration.readback import parse_rounding, read_objects
from tests.integration.real_log import PARTITIONS, RULES, RealLog, lines_of, real_log_files
from tests.pipeline.conftest import Lake
from tests.pipeline.readback import read_counts_by_pyiceberg
from tests.stack.kafka_helper import KafkaHelper
from tests.stack.names import Names
from tests.stack.s3_helper import S3Helper

AUDITED_BYTES_MAX = 10_000_000


@pytest.mark.parametrize("file", real_log_files(), ids=lambda file: f"{file.parent.name}/{file.name.partition('.')[0]}")
def test_real_logs_come_out_as_they_went_in(
    file: Path, kafka: KafkaHelper, s3: S3Helper, names: Names, tmp_path: Path, lake_of: Callable[..., Lake]
) -> None:
    """Every entry is in one row of the right user, date and hour and in one of the table, or a dead letter.

    Equal field by field; PyIceberg counts as many rows as Spark.
    """
    rules = RULES[file.name.partition(".")[0]]
    lines = lines_of(file)
    assert not rules.entries or len(lines) == rules.entries
    with Deployment(
        kafka=kafka, s3=s3, names=names, root=tmp_path, partitions=PARTITIONS, settings=rules.settings()
    ) as deployment:
        began = time.monotonic()
        in_files, in_table = RealLog(lines, rules), RealLog(lines, rules)
        written = run_through(deployment, in_files.records(), LOGP_SPOOL__BYTES_MAX=str(4 << 30))
        worked = time.monotonic()
        require_files(deployment, in_files, written)
        if sum(map(len, lines)) <= AUDITED_BYTES_MAX:
            deployment.require_clean()
        compared = time.monotonic()
        require_table(lake_of(deployment), deployment, in_table, written)
        print(
            f"{len(lines)} entries, {sum(map(len, lines)) / 1e6:.1f} MB, {in_files.references} references: "
            f"path {worked - began:.1f} s, files {compared - worked:.1f} s, table {time.monotonic() - compared:.1f} s"
        )


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
