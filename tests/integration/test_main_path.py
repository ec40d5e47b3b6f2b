"""The main job with nothing going wrong: records in, references out, everything accounted for."""

import json
import urllib.request
from pathlib import Path

import pytest

from tests.integration.harness import Deployment
from tests.stack.kafka_helper import KafkaHelper, ToProduce
from tests.stack.names import Names
from tests.stack.s3_helper import S3Helper
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
    kafka: KafkaHelper, s3: S3Helper, names: Names, tmp_path: Path
) -> None:
    """Of 20,000 awkward entries none is missing, doubled, misplaced or altered, and nothing is read twice.

    The batch is flushed for the one who joins, and SIGTERM flushes and exits 0.
    """
    settings = {"LOGP_FLUSH__INTERVAL_S": "600", "LOGP_KAFKA__SESSION_TIMEOUT_S": "4"}
    records = _generated(20_000, seed=7)
    half = len(records) // 2
    with Deployment(kafka=kafka, s3=s3, names=names, root=tmp_path, settings=settings) as deployment:
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
        assert sorted(flush.reason for flush in flushes) == ["revoked", "stopping", "stopping"]
        for totals in (flush.totals for flush in flushes):
            assert totals.entries == totals.entries_in_files + totals.dead_letters
        assert not [path for path in (tmp_path / "spool").rglob("*") if path.is_file() and path.name[0] != "."]


def test_worker_probes_and_metrics_tell_its_state(
    kafka: KafkaHelper, s3: S3Helper, names: Names, tmp_path: Path
) -> None:
    """/livez and /readyz answer 200 in the group, /metrics has lag and commits, and a flush brings the lag to 0."""
    with Deployment(kafka=kafka, s3=s3, names=names, root=tmp_path, partitions=2) as deployment:
        worker = deployment.start("w1")
        worker.wait_for_line('"partitions_assigned"', timeout_s=60)
        written = kafka.produce(deployment.source, _generated(500, seed=1))
        deployment.wait_drained(written)
        kafka.wait_for("no lag", lambda: _metric(deployment, "w1", "lag_records") == 0, timeout_s=20)

        assert _get(deployment, "w1", "/livez")[0] == 200
        assert _get(deployment, "w1", "/readyz")[0] == 200
        assert _metric(deployment, "w1", "flushes_total") >= 1
        assert _metric(deployment, "w1", "records_total") == len(written)


def _get(deployment: Deployment, name: str, path: str) -> tuple[int, str]:
    started = [event for event in deployment.events(name) if event["event"] == "worker_started"]
    with urllib.request.urlopen(f"http://127.0.0.1:{started[-1]['http_port']}{path}", timeout=5) as answer:
        return answer.status, answer.read().decode()


def _metric(deployment: Deployment, name: str, metric: str) -> float:
    """Sum of a metric over its labels; 0 where the worker does not say it yet."""
    if not deployment.count("worker_started", name):
        return 0
    lines = _get(deployment, name, "/metrics")[1].splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"log_partitioner_{metric}"))


def test_references_name_the_entries_they_hold(kafka: KafkaHelper, s3: S3Helper, names: Names, tmp_path: Path) -> None:
    """A reference names user, date and hour, its object lies under them, and readers list nothing."""
    with Deployment(kafka=kafka, s3=s3, names=names, root=tmp_path, partitions=1) as deployment:
        entries = [{"user": "Anna/Ünal", "time": "2026-03-04T05:06:07Z", "n": n} for n in range(3)]
        written = kafka.produce_values(deployment.source, [json.dumps(entries).encode()])
        deployment.start("w1")
        deployment.wait_drained(written)
        deployment.stop_all()

        (reference,) = deployment.references()
        assert reference.partition_key == ("Anna/Ünal", "2026-03-04", 5)
        assert reference.location.object.startswith("logs/user=Anna%2F%C3%9Cnal/date=2026-03-04/hour=05/")
        assert reference.entries == 3
        assert len(s3.read(deployment.bucket, reference.location.object)) == reference.location.size
        deployment.require_clean()


def test_dead_letter_of_a_record_with_a_huge_key_is_stored_whole(
    kafka: KafkaHelper, s3: S3Helper, names: Names, tmp_path: Path
) -> None:
    """No record is too large to be rejected: key, value and headers lie in the object, and the worker goes on."""
    with Deployment(kafka=kafka, s3=s3, names=names, root=tmp_path, partitions=1) as deployment:
        good = ToProduce(value=b'{"user": "u", "time": "2026-03-04T05:06:07Z"}')
        huge = ToProduce(value=b"{", key=b"k" * 700_000, headers={"h": b"x" * 1000})
        written = kafka.produce(deployment.source, [good, huge, good])
        deployment.start("w1", LOGP_KAFKA__MESSAGE_BYTES_MAX="200000")
        deployment.wait_drained(written)
        deployment.stop_all()

        (letter,) = deployment.dead_letters()
        assert letter.key() is None
        assert sum(reference.entries for reference in deployment.references()) == 2
        deployment.require_clean()
