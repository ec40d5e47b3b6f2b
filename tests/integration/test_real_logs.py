"""Real logs through the whole path: every entry of every file comes out once, where it belongs, as it went in.

What is expected is in `real_log`; rows and dead letters are read by `readback`. Not collected where the data are absent
(tests/conftest.py).
"""

import time
from pathlib import Path

import pytest

from tests.integration.harness import Deployment
from tests.integration.one_worker import run_through
from tests.integration.readback import read_objects
from tests.integration.real_log import PARTITIONS, RULES, RealLog, lines_of, real_log_files
from tests.stack.kafka_helper import KafkaHelper
from tests.stack.names import Names
from tests.stack.s3_helper import S3Helper

AUDITED_BYTES_MAX = 10_000_000


@pytest.mark.parametrize("file", real_log_files(), ids=lambda file: f"{file.parent.name}/{file.name.partition('.')[0]}")
def test_real_logs_come_out_as_they_went_in(
    file: Path, kafka: KafkaHelper, s3: S3Helper, names: Names, tmp_path: Path
) -> None:
    """Every entry is in exactly one row of the right user, date and hour, equal field by field, or a dead letter."""
    rules = RULES[file.name.partition(".")[0]]
    lines = lines_of(file)
    assert not rules.entries or len(lines) == rules.entries
    with Deployment(
        kafka=kafka, s3=s3, names=names, root=tmp_path, partitions=PARTITIONS, settings=rules.settings()
    ) as deployment:
        began = time.monotonic()
        log = RealLog(lines, rules)
        written = run_through(deployment, log.records(), LOGP_SPOOL__BYTES_MAX=str(4 << 30))
        worked = time.monotonic()
        log.note_places(written)
        for found in read_objects(deployment):
            log.check_reference(found.reference.partition, found.reference.entries, found.rows)
        log.check_dead_letters(deployment)
        log.check_nothing_is_missing()
        compared = time.monotonic()
        size = sum(map(len, lines))
        if size <= AUDITED_BYTES_MAX:
            deployment.require_clean()
        audited = time.monotonic()
        print(
            f"{len(lines)} entries, {size / 1e6:.1f} MB, {log.references} references: path {worked - began:.1f} s, "
            f"comparison {compared - worked:.1f} s, audit {audited - compared:.1f} s"
        )
