"""A worker that lacks something outside does not join, is not ready and says why; it goes on once that is mended."""

from __future__ import annotations

import time

import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

from tests.integration.flow import some_records
from tests.integration.harness import PROTOCOLS, Deploy, Deployment
from tests.stack.kafka_helper import KafkaHelper

SOON_S = 10.0  # from the start of the process to the first line that names what is wrong
LOADED = 3  # times as long, if others have most of the machine


@pytest.fixture
def deployment(deploy: Deploy) -> Deployment:
    """A deployment with short intervals."""
    settings = {"LOGP_FLUSH__INTERVAL_S": "0.5", "LOGP_KAFKA__SESSION_TIMEOUT_S": "4"}
    return deploy(partitions=2, settings=settings)


def configure(kafka: KafkaHelper, topic: str, name: str, value: str) -> None:
    """Set one configuration of a topic."""
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    for future in kafka.admin.incremental_alter_configs([resource]).values():
        future.result(20)


def delete(kafka: KafkaHelper, topic: str) -> None:
    """Delete a topic; on return it is not there any more."""
    for future in kafka.admin.delete_topics([topic]).values():
        future.result(20)
    kafka.wait_for(f"no topic {topic}", lambda: topic not in kafka.admin.list_topics(timeout=10).topics)


def said(deployment: Deployment, event: str = "outside_unmet", *, times: int = 1) -> list[str]:
    """Wait for so many lines; gives what they say."""
    return [line["message"] for line in deployment.require_event(event, "w1", times=times, timeout_s=LOADED * SOON_S)]


def test_worker_with_a_wrong_key_never_joins_and_names_it(deployment: Deployment) -> None:
    """A rollout that brings it replaces no good worker: it is ready at no time, and stops when it is asked to."""
    begun_s = time.monotonic()
    deployment.start("w1", LOGP_S3__SECRET_KEY="wrong", LOGP_VERIFY__SHARE="1")  # noqa: S106 - it is none
    lines = said(deployment)
    took_s = time.monotonic() - begun_s
    status, text = deployment.get("w1", "/readyz")

    assert all(f"bucket {deployment.bucket} at {deployment.s3.endpoint.url}: 403" in line for line in lines)
    assert "GetObject" not in lines[0]
    assert took_s < LOADED * SOON_S
    assert (status, lines[0] in text) == (503, True), text
    assert deployment.stop_all() == {"w1": 0}
    assert deployment.count("partitions_assigned") == 0


def test_topics_that_are_missing_or_compacted_are_named_and_waited_for(
    deployment: Deployment, kafka: KafkaHelper
) -> None:
    """All of them at once, each with the command; once they are right the worker goes on by itself."""
    delete(kafka, deployment.references_topic)
    configure(kafka, deployment.flushes_topic, "cleanup.policy", "compact")
    configure(kafka, deployment.dead_letters_topic, "cleanup.policy", "compact,delete")
    written = kafka.produce(deployment.source, some_records(40, partitions=2))
    deployment.start("w1")
    text = "\n".join(said(deployment, times=3))

    assert f"topic {deployment.references_topic} (kafka.references_topic) is not there: create it: kafka-topics" in text
    for topic in (deployment.flushes_topic, deployment.dead_letters_topic):
        way = f"--alter --entity-type topics --entity-name {topic} --add-config cleanup.policy=delete"
        assert f"topic {topic} " in text
        assert way in text
    status, why = deployment.get("w1", "/readyz")
    assert (status, all(line in why for line in text.split("\n"))) == (503, True), why
    assert deployment.count("partitions_assigned") == 0

    kafka.create_topic(deployment.references_topic)
    configure(kafka, deployment.flushes_topic, "cleanup.policy", "delete")
    configure(kafka, deployment.dead_letters_topic, "cleanup.policy", "delete")
    configure(kafka, deployment.flushes_topic, "retention.ms", "60000")
    deployment.wait_drained(written)
    kafka.wait_for("ready", lambda: deployment.get("w1", "/readyz")[0] == 200)  # once the commit is answered, too


def test_topic_that_is_deleted_while_a_worker_runs_is_named_until_it_is_there_again(
    deployment: Deployment, kafka: KafkaHelper
) -> None:
    """Within seconds, by the log and by readiness; nothing is lost meanwhile."""
    written = kafka.produce(deployment.source, some_records(40, partitions=2))
    deployment.start("w1")
    deployment.wait_drained(written)
    delete(kafka, deployment.references_topic)
    begun_s = time.monotonic()
    written = kafka.produce(deployment.source, some_records(40, partitions=2, first=40))
    (line, *_) = said(deployment, "batch_discarded")
    took_s = time.monotonic() - begun_s
    status, why = deployment.get("w1", "/readyz")

    assert f"topic {deployment.references_topic} is not there: create it: kafka-topics.sh" in line
    assert took_s < LOADED * SOON_S
    assert (status, deployment.references_topic in why) == (503, True), why

    kafka.create_topic(deployment.references_topic)
    deployment.wait_drained(written)
    kafka.wait_for("ready", lambda: deployment.get("w1", "/readyz")[0] == 200)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_member_without_partitions_is_ready(kafka: KafkaHelper, protocol: str, deploy: Deploy) -> None:
    """An assignment of nothing is an answer of the group: else idle members hold up a rollout (KAFKA_FACTS R18).

    It takes over when the owner leaves.
    """
    deployment = deploy(partitions=1, protocol=protocol)
    for name in ("w1", "w2"):
        deployment.start(name)
        kafka.wait_for(f"{name} is ready", lambda name=name: deployment.get(name, "/readyz")[0] == 200)
    owned = {deployment.metric(name, "owned_topic_partitions"): name for name in ("w1", "w2")}
    assert owned.keys() == {0, 1}
    deployment.workers[owned[1]].terminate()
    deployment.wait_metric(owned[0], "owned_topic_partitions", 1)
    assert set(deployment.stop_all().values()) == {0}


def test_worker_whose_user_path_matches_nothing_works_and_is_never_ready(
    deployment: Deployment, kafka: KafkaHelper
) -> None:
    """A rollout that brings it stops at it, also in a group that has committed; one with the right path is ready."""
    kafka.produce(deployment.source, some_records(300, partitions=2))
    deployment.start("w0")
    kafka.wait_for("w0 ready", lambda: deployment.get("w0", "/readyz")[0] == 200)
    deployment.require_event("flush_committed", "w0", timeout_s=LOADED * SOON_S)
    deployment.start("w1", LOGP_USER__PATHS="usr", LOGP_DEAD_LETTERS__SHARE_MAX="0.99")
    (line,) = said(deployment, "outside_doubted")
    deployment.require_event("partitions_assigned", "w1", timeout_s=LOADED * SOON_S)
    status, text = deployment.get("w1", "/readyz")

    assert f"the settings do not fit topic {deployment.source}: 240 of its newest 240 entries would be dead" in line
    assert (status, line in text) == (503, True), text
