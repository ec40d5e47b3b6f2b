"""Real logs through worker and materialize: every value of every entry is found again in the table.

Not collected where the data are absent (tests/conftest.py).
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.jobs.materialize import Materialize
from pipeline.table_rows import restore
from tests.integration.harness import Deployment
from tests.integration.one_worker import run_through
from tests.integration.readback import parse_rounding
from tests.integration.real_log import PARTITIONS, RULES, RealLog, lines_of, real_log_files
from tests.pipeline.conftest import Lake
from tests.pipeline.readback import read_counts_by_pyiceberg
from tests.stack.kafka_helper import KafkaHelper
from tests.stack.names import Names
from tests.stack.s3_helper import S3Helper


@pytest.mark.parametrize("file", real_log_files(), ids=lambda file: f"{file.parent.name}/{file.name.partition('.')[0]}")
def test_real_logs_are_in_the_table(
    file: Path, kafka: KafkaHelper, s3: S3Helper, names: Names, tmp_path: Path, lake_of: Callable[..., Lake]
) -> None:
    """Every entry is one row of the table with all its values, or a dead letter; PyIceberg counts the same."""
    rules = RULES[file.name.partition(".")[0]]
    lines = lines_of(file)
    with Deployment(
        kafka=kafka, s3=s3, names=names, root=tmp_path, partitions=PARTITIONS, settings=rules.settings()
    ) as deployment:
        log = RealLog(lines, rules)
        log.note_places(run_through(deployment, log.records(), LOGP_SPOOL__BYTES_MAX=str(4 << 30)))
        lake = lake_of(deployment)
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
