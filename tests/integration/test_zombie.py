"""The published zombie scenario: a worker that was thought dead wakes up with everything uploaded and commits.

Group fencing (the default) refuses it: the broker compares member and generation of the offsets it sends. Its objects
are orphans, and its references belong to an aborted transaction.
"""

import time
from pathlib import Path

import pytest

from log_partitioner.formats.reference import decode_references
from tests.integration.flow import Flow, some_records
from tests.integration.harness import Deploy, Deployment
from tests.stack.kafka_helper import KafkaHelper
from tests.stack.s3_helper import S3Helper
from tools.local.s3_fault_rules import Action, Rule
from tools.local.s3_faults import S3FaultProxy

DATA = "/user="
HEARTBEATS_S = 3.0  # six of the brokers' interval
REFUSALS = {"UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION"}
SETTINGS = {
    "LOGP_KAFKA__SESSION_TIMEOUT_S": "4",
    "LOGP_FLUSH__INTERVAL_S": "0.5",
    "LOGP_FLUSH__BUDGET_S": "120",
}


@pytest.mark.parametrize(
    ("protocol", "awake"),
    [
        pytest.param("cooperative-sticky", False, id="cooperative-sticky-at-once"),
        pytest.param("consumer", True, id="consumer-after-hearing-of-it"),
    ],
)
def test_zombie_commits_nothing(
    kafka: KafkaHelper, s3: S3Helper, s3_faults: S3FaultProxy, deploy: Deploy, *, protocol: str, awake: bool
) -> None:
    """Stopped between uploads and commit, beyond its session: B commits the same records, then A's commit is refused.

    Once A commits the moment it wakes up; once only after its client library has had time to hear that it is out of
    the group (and, with the consumer protocol, to come back under the same member id).
    """
    deployment = deploy(partitions=2, protocol=protocol, endpoint=s3_faults.endpoint, settings=SETTINGS)
    written = kafka.produce(deployment.source, some_records(40, partitions=2))
    s3_faults.add(Rule(Action.DELAY, "PUT", DATA, times=1_000, delay_s=600))
    zombie = deployment.start("a")
    kafka.wait_for("uploads of A", lambda: s3_faults.done[Action.DELAY] == 4, timeout_s=60)
    zombie.pause()
    if not awake:
        s3_faults.clear()  # stored and acknowledged while A is stopped
    deployment.start("b", LOGP_S3__ENDPOINT_URL=s3.endpoint.url)
    deployment.wait_drained(written)

    zombie.resume()
    if awake:
        time.sleep(HEARTBEATS_S)  # its client library goes on beside the loop, which is inside the flush
        s3_faults.clear()
    (refused,) = deployment.require_event("batch_discarded", "a")
    assert refused["code"] in REFUSALS, refused
    written += kafka.produce(deployment.source, some_records(40, partitions=2, first=40))
    deployment.wait_drained(written)

    assert deployment.stop_all() == {"a": 0, "b": 0}
    _require_orphans(deployment, refused["batch_id"])
    deployment.require_clean()


def _require_orphans(deployment: Deployment, batch_id: str) -> None:
    """The objects of the batch are there, no committed reference names them, and those produced were aborted."""
    topic = deployment.references_topic
    named = {reference.location.object for reference in deployment.references()}
    orphans = {key for key in deployment.s3.keys(deployment.bucket) if DATA in f"/{key}"} - named
    assert len(orphans) == 4
    assert all(batch_id in key for key in orphans)
    messages = deployment.kafka.read_uncommitted(topic)
    produced = [reference for message in messages for reference in decode_references(message.value() or b"")]
    assert orphans == {one.location.object for one in produced if one.batch_id == batch_id}, "A did try to commit"


def test_two_workers_with_one_transactional_id(kafka: KafkaHelper, tmp_path: Path, deploy: Deploy) -> None:
    """They fence each other: nothing is doubled, and a worker that is fenced too often ends and says so."""
    deployment = deploy(settings=SETTINGS)
    with Flow(deployment) as flow:
        for name in ("a", "b"):
            deployment.start(name, LOGP_WORKER="same", LOGP_SPOOL__DIRECTORY=str(tmp_path / name))
        deployment.require_event("batch_discarded", cause="FencedError", code="_FENCED")
        kafka.wait_for("an alarm", lambda: any(not one.is_alive() for one in deployment.workers.values()), timeout_s=90)
        written = flow.stop()
    ended = [name for name, process in deployment.workers.items() if not process.is_alive()]
    assert {deployment.workers[name].exit_code for name in ended} == {1}
    assert all("TooManyFailuresError" in line for name in ended for line in deployment.complaints(name))
    for name in ("a", "b"):
        deployment.workers[name].terminate()
    for name in ("a", "b"):
        deployment.exit_code(name)
    deployment.start("c")
    deployment.wait_drained(written)
    deployment.require_clean()
