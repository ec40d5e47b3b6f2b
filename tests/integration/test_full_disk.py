"""A disk on its bad days: the worker pauses with polls, stays a member, and goes on by itself when there is room."""

import os
from pathlib import Path

from tests.integration.flow import some_records
from tests.integration.harness import Deploy, Deployment
from tests.stack.kafka_helper import KafkaHelper

QUICK = {"LOGP_FLUSH__INTERVAL_S": "0.5", "LOGP_KAFKA__SESSION_TIMEOUT_S": "4"}
PARTITIONS = 6
_OWN_NAMESPACES = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--mount"]


def _small_disk(directory: Path, *, kib: int) -> list[str]:
    """Give the command that starts another with a disk of this size at a directory; it is gone with the process."""
    directory.mkdir(parents=True)
    script = f'mount -t tmpfs -o size={kib}k none "$0" && exec "$@"'
    return [*_OWN_NAMESPACES, "sh", "-c", script, str(directory)]


def _require_only_spool_errors(deployment: Deployment, name: str) -> None:
    """The worker never lost its place, and gave batches up for its disk alone."""
    assert deployment.count("partitions_lost", name) == 0
    causes = {event["cause"] for event in deployment.events(name) if event["event"] == "batch_discarded"}
    assert causes <= {"SpoolError", "RecordingFailed"}, causes


def test_full_disk_is_waited_out(kafka: KafkaHelper, tmp_path: Path, deploy: Deploy) -> None:
    """Nothing fits any more: another worker still gets its share, and the first goes on when there is room."""
    spool = tmp_path / "small"
    deployment = deploy(settings=QUICK)
    worker = deployment.start("w1", inside=_small_disk(spool, kib=4096), LOGP_SPOOL__DIRECTORY=str(spool))
    deployment.require_event("partitions_assigned", "w1")
    filler = Path(f"/proc/{worker.pid}/root{spool}/filler")
    _fill(filler)
    written = kafka.produce(deployment.source, some_records(120, partitions=PARTITIONS))
    deployment.require_event("paused", "w1", times=2)
    deployment.start("w2")  # a rebalance needs the polls of w1
    for name in ("w1", "w2"):
        deployment.wait_metric(name, "owned_topic_partitions", PARTITIONS // 2)
    deployment.require_event("flush_committed", "w2")
    deployment.require_event("paused", "w1", times=deployment.count("paused", "w1") + 1)
    assert deployment.get("w1", "/livez")[0] == 200
    assert deployment.count("flush_committed", "w1") == 0
    filler.unlink()
    deployment.wait_drained(written)

    deployment.require_event("flush_committed", "w1")
    _require_only_spool_errors(deployment, "w1")
    assert deployment.stop_all() == {"w1": 0, "w2": 0}
    deployment.require_clean()


def _fill(filler: Path) -> None:
    """Write until the disk refuses."""
    try:
        with filler.open("wb", buffering=0) as file:
            while file.write(bytes(4096)):
                pass
    except OSError:
        return
