"""Partitions that come and go while batches are open: flushed at the rebalance, read on without rereading."""

import json

import pytest
from confluent_kafka import ConsumerGroupState, ConsumerGroupType
from confluent_kafka.cimpl import NewPartitions

from tests.integration.flow import some_records
from tests.integration.harness import CLIENT_PROPERTIES, Deploy, Deployment
from tests.stack.kafka_helper import KafkaHelper
from tests.stack.s3_helper import S3Helper
from tools.local.s3_fault_rules import Action, Rule, internal_error
from tools.local.s3_faults import S3FaultProxy

DATA = "/user="
ALWAYS = 1_000_000
NEVER = "600"
PARTITIONS = 6
QUICK = {"LOGP_FLUSH__INTERVAL_S": "0.5", "LOGP_KAFKA__SESSION_TIMEOUT_S": "4"}


def _write(deployment: Deployment, count: int, *, first: int = 0) -> list[tuple[int, int]]:
    return deployment.kafka.produce(deployment.source, some_records(count, partitions=PARTITIONS, first=first))


def _wait_shares(deployment: Deployment, shares: dict[str, int]) -> None:
    for name, share in shares.items():
        deployment.wait_metric(name, "owned_topic_partitions", share)


def test_worker_added_while_a_batch_is_open(deploy: Deploy) -> None:
    """As in test_main_path.py, by the consumer protocol: flushed at the rebalance, nothing is taken twice."""
    deployment = deploy(protocol="consumer", settings=QUICK)
    written = _write(deployment, 300)
    deployment.start("w1", LOGP_FLUSH__INTERVAL_S=NEVER)
    deployment.wait_metric("w1", "records_total", 300)
    deployment.start("w2", LOGP_FLUSH__INTERVAL_S=NEVER)
    _wait_shares(deployment, {"w1": 3, "w2": 3})
    assert [flush.reason for flush in deployment.flush_records()] == ["revoked"]

    written += _write(deployment, 300, first=300)
    for name, records in {"w1": 300 + 150, "w2": 150}.items():
        deployment.wait_metric(name, "records_total", records)
    assert deployment.count("batch_discarded") == deployment.count("records_refused") == 0
    assert set(deployment.stop_all().values()) == {0}
    deployment.wait_drained(written, timeout_s=5)
    deployment.require_clean()


def _is_stable(deployment: Deployment) -> bool:
    """Whether no member must join again; with the consumer protocol w1 releases nothing before its flush is done."""
    (asked,) = deployment.kafka.admin.describe_consumer_groups([deployment.group]).values()
    group = asked.result()
    return len(group.members) == 2 and (
        group.type is ConsumerGroupType.CONSUMER or group.state is ConsumerGroupState.STABLE
    )


@pytest.mark.parametrize("protocol", ["cooperative-sticky", "consumer"])
def test_rebalance_during_a_flush(
    kafka: KafkaHelper, s3: S3Helper, s3_faults: S3FaultProxy, protocol: str, deploy: Deploy
) -> None:
    """A worker joins while a flush by interval uploads: it commits, at once or with the new generation, once."""
    deployment = deploy(endpoint=s3_faults.endpoint, protocol=protocol, settings=QUICK)
    s3_faults.add(Rule(Action.DELAY, "PUT", DATA, times=4, delay_s=600))
    written = _write(deployment, 120)
    deployment.start("w1")
    kafka.wait_for("uploads", lambda: s3_faults.done[Action.DELAY] == 4, timeout_s=60)
    deployment.start("w2", LOGP_S3__ENDPOINT_URL=s3.endpoint.url)
    kafka.wait_for("w2 is a member", lambda: deployment.get("w2", "/readyz")[0] == 200, timeout_s=60)
    kafka.wait_for("both are in its generation", lambda: _is_stable(deployment), timeout_s=60)
    s3_faults.clear()
    _wait_shares(deployment, {"w1": 3, "w2": 3})
    if protocol == "cooperative-sticky":  # w1 has joined again in the background: its generation is another
        deployment.require_event("commit_repeated", "w1")

    assert deployment.count("batch_discarded") == 0
    assert [flush.worker for flush in deployment.flush_records()] == ["w1"]
    written += _write(deployment, 60, first=120)
    deployment.wait_drained(written)
    deployment.require_clean()


@pytest.mark.parametrize("protocol", ["cooperative-sticky", "consumer"])
def test_partitions_added_while_running(kafka: KafkaHelper, protocol: str, deploy: Deploy) -> None:
    """Records that were written before the worker saw the new partitions are read, although `start_at` is `fail`."""
    refresh = json.dumps(CLIENT_PROPERTIES | {"topic.metadata.refresh.interval.ms": "1000"})
    settings = QUICK | {"LOGP_KAFKA__CLIENT_PROPERTIES": refresh, "LOGP_KAFKA__START_AT": "fail"}
    deployment = deploy(protocol=protocol, settings=settings)
    written = _write(deployment, 60)
    deployment.start("w0", LOGP_KAFKA__START_AT="beginning")
    deployment.wait_drained(written)
    assert deployment.stop_all() == {"w0": 0}
    deployment.start("w1")
    deployment.kafka.admin.create_partitions([NewPartitions(deployment.source, 9)])[deployment.source].result(20)
    kafka.wait_for("nine partitions", lambda: len(kafka.partitions(deployment.source)) == 9)
    stranger = KafkaHelper(kafka.bootstrap_servers, provider=kafka.provider)  # knows the new ones at once
    written += stranger.produce(deployment.source, some_records(90, partitions=9, first=60))
    deployment.wait_drained(written)

    starts = {}
    for event in deployment.require_event("positioned", "w1"):
        starts |= event["starts"]
    assert [starts[f"{deployment.source}-{number}"] for number in (6, 7, 8)] == [[0, "policy", None]] * 3
    deployment.require_clean()


@pytest.mark.parametrize("protocol", ["consumer"])
def test_revoked_while_paused_is_not_silent_when_it_comes_back(
    kafka: KafkaHelper, s3: S3Helper, s3_faults: S3FaultProxy, protocol: str, deploy: Deploy
) -> None:
    """Regression: librdkafka keeps a partition paused over its revocation and its next assignment."""
    deployment = deploy(partitions=2, endpoint=s3_faults.endpoint, protocol=protocol, settings=QUICK)
    s3_faults.add(internal_error(times=ALWAYS, key=DATA))
    written = kafka.produce(deployment.source, some_records(40, partitions=2))
    deployment.start("w1")
    deployment.require_event("paused", "w1", seconds=2)  # the pauses after this one take 4 s
    deployment.start("w2", LOGP_S3__ENDPOINT_URL=s3.endpoint.url)
    deployment.require_event("partitions_revoked", "w1")  # in a pause, or at its beginning
    _wait_shares(deployment, {"w1": 1, "w2": 1})
    s3_faults.clear()
    deployment.require_event("flush_committed", "w1")  # the pause is over, and there will be no other
    deployment.workers["w2"].terminate()
    assert deployment.exit_code("w2") == 0
    deployment.wait_metric("w1", "owned_topic_partitions", 2)

    written += kafka.produce(deployment.source, some_records(40, partitions=2, first=40))
    deployment.wait_drained(written)
    deployment.require_clean()
