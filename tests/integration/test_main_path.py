"""The main job with nothing going wrong: records in, references out, everything accounted for."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.integration.harness import Deploy
from tests.stack.kafka_helper import KafkaHelper, ToProduce
from tools.demo.generate import generate
from tools.demo.settings import GeneratorSettings


def _generated(entries: int, seed: int) -> list[ToProduce]:
    records = generate(GeneratorSettings(seed=seed, entries=entries))
    return [
        ToProduce(value=one.value, key=one.key, timestamp_ms=one.timestamp_ms, headers=dict(one.headers))
        for one in records
    ]


@pytest.mark.main_path
def test_worker_is_joined_by_another_everything_accounted_for(
    kafka: KafkaHelper, tmp_path: Path, deploy: Deploy
) -> None:
    """No entry of 20,000 awkward ones is missing, doubled, misplaced or altered, and no record is read twice.

    The first worker flushes its batch when the second joins; a worker that gets SIGTERM flushes and exits with 0.
    """
    settings = {"LOGP_FLUSH__INTERVAL_S": "600", "LOGP_KAFKA__SESSION_TIMEOUT_S": "4"}
    records = _generated(20_000, seed=7)
    half = len(records) // 2
    deployment = deploy(settings=settings)
    written = kafka.produce(deployment.source, records[:half])
    deployment.start("w1")
    deployment.wait_metric("w1", "records_total", half)
    assert deployment.committed() == 0
    deployment.start("w2")
    for name in ("w1", "w2"):
        deployment.wait_metric(name, "owned_topic_partitions", 3)
    deployment.wait_drained(written, timeout_s=5)

    written += kafka.produce(deployment.source, records[half:])
    kafka.wait_for(
        "everything is taken",
        lambda: sum(deployment.metric(name, "records_total") for name in ("w1", "w2")) == len(records),
        timeout_s=60,
    )
    assert (deployment.rewinds(), deployment.count("records_refused")) == ([], 0)
    assert deployment.stop_all() == {"w1": 0, "w2": 0}
    deployment.wait_drained(written, timeout_s=5)
    deployment.require_clean()
    flushes = deployment.flush_records()
    middle = datetime.fromtimestamp((1 + min(flush.ended_at_ms for flush in flushes)) / 1000, UTC).isoformat()
    windows = [deployment.audit(option, middle) for option in ("--until", "--from")]
    assert [report.exit_code for report in windows] == [0, 0], windows
    counts = [report.json["counts"]["source_entries"] for report in windows]
    assert (all(counts), sum(counts)) == (True, sum(flush.totals.entries for flush in flushes))
    assert sorted(flush.reason for flush in flushes) == ["revoked", "stopping", "stopping"]
    for totals in (flush.totals for flush in flushes):
        assert totals.entries == totals.entries_in_files + totals.dead_letters
    assert not [path for path in (tmp_path / "spool").rglob("*") if path.is_file() and path.name[0] != "."]
