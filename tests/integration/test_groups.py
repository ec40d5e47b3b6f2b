"""Two groups that publish the same topic, a group that goes on under another name, and strangers in ours."""

from __future__ import annotations

from tests.integration.flow import some_records
from tests.integration.harness import Deploy, Deployment
from tests.integration.test_lost_offsets import QUICK, TWO, complaint, drained, records_of
from tests.stack.kafka_helper import KafkaHelper


def adopt(deployment: Deployment, heir: str, *arguments: str) -> tuple[int, str]:
    """Run `offsets adopt` with the settings of another group."""
    command = ["offsets", "adopt", "--from", deployment.group, "--topic", deployment.source]
    return deployment.run(*command, *arguments, LOGP_KAFKA__GROUP_ID=heir)


def test_group_of_another_name_is_refused_until_it_adopts_and_then_goes_on(kafka: KafkaHelper, deploy: Deploy) -> None:
    """Nothing is published twice, the audit follows both as one history, and the old group is refused.

    Under KIP-848 the broker has made the group as a classic one when the command committed its offsets.
    """
    deployment = deploy(partitions=TWO, protocol="consumer", settings=QUICK)
    drained(deployment)
    code, text = deployment.run("offsets", "show")
    assert (code, text.count(", flushed up to 20, log 0 to 20, lag 0\n")) == (0, TWO), text
    heir = f"{deployment.group}-renamed"
    written = kafka.produce(deployment.source, some_records(20, partitions=TWO, first=40))
    line = complaint(deployment, "w2", LOGP_KAFKA__GROUP_ID=heir)
    assert line.startswith(f"StartPositionError: group {deployment.group} publishes topic {deployment.source}"), line
    assert f"this worker's group {heir}" in line
    assert f"`log-partitioner offsets adopt --from {deployment.group} --topic {deployment.source}`" in line
    assert kafka.committed_offsets(heir, deployment.source) == {}

    code, text = adopt(deployment, heir, "--dry-run")
    assert (code, text.count(f"group {heir} goes on at 20")) == (0, TWO), text
    assert kafka.committed_offsets(heir, deployment.source) == {}
    code, text = adopt(deployment, heir)
    assert code == 0, text
    assert kafka.committed_offsets(heir, deployment.source) == {0: 20, 1: 20}
    deployment.start("w3", LOGP_KAFKA__GROUP_ID=heir)
    old, deployment.group = deployment.group, heir
    deployment.wait_drained(written)
    assert deployment.stop_all()["w3"] == 0
    assert records_of(deployment) == 60

    line = complaint(deployment, "w4")
    assert f"group {heir} has adopted the work of group {old}" in line, line
    command = ["offsets", "adopt", "--from", old, "--topic", deployment.source]
    code, text = deployment.run(*command, LOGP_KAFKA__GROUP_ID=heir)
    assert (code, "has committed offsets of topic" in text) == (1, True), text
    report = deployment.run("audit", "--require-caught-up", LOGP_KAFKA__GROUP_ID=heir)
    assert report[0] == 0, report[1]


def test_group_with_live_members_is_not_adopted(kafka: KafkaHelper, deploy: Deploy) -> None:
    """Its offsets are not where it stops; a classic group would take the transaction (KAFKA_FACTS F3)."""
    deployment = deploy(partitions=TWO, settings=QUICK)
    deployment.wait_drained(_flushing(deployment, "w1"))
    code, text = adopt(deployment, "heir")
    assert (code, f"group {deployment.group} has live members" in text) == (1, True), text
    assert kafka.committed_offsets("heir", deployment.source) == {}


def _flushing(deployment: Deployment, name: str) -> list[tuple[int, int]]:
    written = deployment.kafka.produce(deployment.source, some_records(4, partitions=TWO))
    deployment.start(name)
    return written
