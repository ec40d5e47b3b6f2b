"""Source topics by pattern on a real broker: one that comes later is read, too, and the audit takes the same topics."""

from __future__ import annotations

import json

import pytest

from tests.integration.flow import Flow, some_records
from tests.integration.harness import ANY_TIMESTAMP, CLIENT_PROPERTIES, EVENT_S, PROTOCOLS, Deploy, Deployment
from tests.integration.test_lost_offsets import complaint
from tests.stack.kafka_helper import KafkaHelper
from tests.stack.names import Names

ONE = 1


def reading(deploy: Deploy, protocol: str, pattern: str) -> Deployment:
    """Make a deployment of one topic by its name and others by a pattern, which looks for new ones each second."""
    deployment = deploy(partitions=ONE, protocol=protocol)
    properties = CLIENT_PROPERTIES | {"topic.metadata.refresh.interval.ms": "1000"}
    deployment.settings(
        LOGP_KAFKA__SOURCE_TOPICS=json.dumps([deployment.source, pattern]),
        LOGP_KAFKA__CLIENT_PROPERTIES=json.dumps(properties),
    )
    return deployment


def written(kafka: KafkaHelper, topic: str) -> str:
    """Make a topic with ten records."""
    kafka.create_topic(topic, partitions=ONE, config=ANY_TIMESTAMP)
    kafka.produce(topic, some_records(10, partitions=ONE))
    return topic


def wait_committed(deployment: Deployment, *topics: str) -> None:
    """Wait until the ten records of each topic are committed."""
    for topic in topics:
        deployment.kafka.wait_for(
            f"commit of {topic}",
            lambda topic=topic: deployment.kafka.committed_offsets(deployment.group, topic) == {0: 10},
            timeout_s=EVENT_S,
        )


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_topic_that_comes_to_match_is_delivered_and_audited(
    kafka: KafkaHelper, names: Names, deploy: Deploy, protocol: str
) -> None:
    """Under load; one whose name only begins so, or ends so, is not read. Another group is refused on what matches."""
    prefix = names.topic("app")
    first, second = written(kafka, f"{prefix}-a"), written(kafka, f"{prefix}-b")
    others = [written(kafka, f"{prefix}-a.old"), written(kafka, f"x{prefix}-a")]
    deployment = reading(deploy, protocol, f"^{prefix}-[a-z]")
    with Flow(deployment, partitions=ONE) as flow:
        deployment.start("w1")
        deployment.start("w2")
        wait_committed(deployment, first, second)
        third = written(kafka, f"{prefix}-c")
        wait_committed(deployment, third)
        deployment.wait_drained(flow.stop())

    assert deployment.stop_all() == {"w1": 0, "w2": 0}
    assert [kafka.committed_offsets(deployment.group, topic) for topic in others] == [{}, {}]
    report = deployment.require_clean()
    topics = f"{first}, {second}, {third}, {deployment.source}"
    assert f"source topics ({deployment.source}, ^{prefix}-[a-z]): {topics}" in report.json["notes"], report.text
    code, text = deployment.run("offsets", "show")
    line = f"{third}-0: committed 10 (leader epoch 0), flushed up to 10, log 0 to 10, lag 0\n"
    assert (code, line in text) == (0, True), text
    line = complaint(deployment, "w3", LOGP_KAFKA__GROUP_ID=f"{deployment.group}-of-others")
    assert line.startswith(f"StartPositionError: group {deployment.group} publishes topic "), line


@pytest.mark.parametrize("protocol", [PROTOCOLS[0], pytest.param(PROTOCOLS[1], marks=pytest.mark.sweep)])
def test_topic_that_is_deleted_leaves_the_others_alone(
    kafka: KafkaHelper, names: Names, deploy: Deploy, protocol: str
) -> None:
    """The worker goes on; the audit says that it cannot tell of that topic, and finds nothing wrong."""
    prefix = names.topic("app")
    first, second = written(kafka, f"{prefix}-a"), written(kafka, f"{prefix}-b")
    deployment = reading(deploy, protocol, f"^{prefix}-[a-z]")
    with Flow(deployment, partitions=ONE) as flow:
        deployment.start("w1")
        wait_committed(deployment, first, second)
        kafka.produce(second, some_records(10, partitions=ONE, first=10))
        kafka.admin.delete_topics([second])[second].result(20)
        third = written(kafka, f"{prefix}-c")
        wait_committed(deployment, third)
        deployment.wait_drained(flow.stop())

    assert deployment.stop_all() == {"w1": 0}
    report = deployment.audit("--require-caught-up")
    assert (report.exit_code, report.json["findings"]) == (2, {}), report.text
    assert report.json["doubts"] == [f"{second}-0: flush records begin at 0, its topic is not there any more"]
