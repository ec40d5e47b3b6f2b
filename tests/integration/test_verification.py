"""Verification mode on real servers: a flush is verified, and what is changed behind the worker's back stops it."""

import json

import pytest

from tests.integration.flow import some_records
from tests.integration.harness import Deploy, Deployment
from tools.local.s3_fault_rules import Action, Rule
from tools.local.s3_faults import S3FaultProxy

ON = {"LOGP_VERIFY__SHARE": "1", "LOGP_VERIFY__ON_DIFFERENCE": "stop", "LOGP_ID__PATHS": '["id"]'}
ALWAYS = 1_000_000
DATA = ".avro"


@pytest.fixture
def deployment(s3_faults: S3FaultProxy, deploy: Deploy) -> Deployment:
    """A deployment whose workers verify everything, through a store that can fail."""
    settings = ON | {"LOGP_FLUSH__INTERVAL_S": "1"}
    return deploy(endpoint=s3_faults.endpoint, settings=settings)


def test_flushes_of_two_workers_are_verified_across_a_rebalance(deployment: Deployment) -> None:
    """Every entry, dead ones too, is found again, once; the audit agrees."""
    bad = [b"{", json.dumps([{"time": "2026-03-04T05:06:07Z"}, {"user": "u", "time": "2026-03-04T05:06:07Z"}]).encode()]
    deployment.start("w1")
    written = deployment.kafka.produce(deployment.source, some_records(300, partitions=6))
    written += deployment.kafka.produce_values(deployment.source, bad)
    deployment.require_event("flush_verified", "w1")
    deployment.start("w2")
    deployment.require_event("partitions_assigned", "w2")
    written += deployment.kafka.produce(deployment.source, some_records(300, partitions=6))
    deployment.wait_drained(written)
    deployment.stop_all()

    flushes = deployment.flush_records()
    events = [event for event in deployment.events() if event["event"] == "flush_verified"]
    assert {event["batch_id"] for event in events} == {flush.batch_id for flush in flushes}
    assert sum(event["entries"] for event in events) == sum(flush.totals.entries for flush in flushes)
    assert not any(event.get("differences") or event["unverified"] for event in events)
    assert deployment.count("entries_not_verified") == 0
    deployment.require_clean()


def test_object_changed_behind_the_worker_stops_it(deployment: Deployment, s3_faults: S3FaultProxy) -> None:
    """The store returns other bytes: one line says what differs, the log says where, and the worker ends."""
    s3_faults.add(Rule(Action.CORRUPT_ANSWER, "GET", DATA, times=ALWAYS))
    written = deployment.kafka.produce(deployment.source, some_records(60, partitions=6))
    deployment.start("w1")
    assert deployment.exit_code("w1") == 1
    committed = deployment.committed()
    assert 0 < committed <= len(written)
    (differs,) = deployment.require_event("flush_differs", "w1")
    assert differs["level"] == "error"
    assert differs["differences"]["object_altered"] >= 1
    (complaint,) = deployment.complaints("w1")
    assert complaint.startswith("VerificationError: verification: committed flushes differ from the source: ")
    deployment.require_clean()
