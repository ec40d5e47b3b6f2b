"""Throttled means slower, never stuck: after one batch that was too large at most, every flush commits."""

import json

import pytest

from tests.integration.harness import Deploy, Deployment
from tests.stack.kafka_helper import ToProduce
from tools.local.s3_faults import S3FaultProxy

PARTITIONS = 6
USERS = 600
PUTS_PER_S = 20
# Kernels on both sides take a few megabytes that the proxy has not read yet: their answer is waited for.
PATIENT = {"LOGP_FLUSH__BUDGET_S": "50"}


@pytest.fixture
def deployment(s3_faults: S3FaultProxy, deploy: Deploy) -> Deployment:
    """A deployment whose workers reach the store through the fault proxy."""
    return deploy(endpoint=s3_faults.endpoint, settings=PATIENT)


def _require_progress(deployment: Deployment, written: list[tuple[int, int]]) -> None:
    """Everything is committed, with one discard at most."""
    deployment.wait_drained(written, timeout_s=300)
    assert deployment.count("batch_discarded") <= 1
    assert deployment.stop_all() == {"w1": 0}
    deployment.require_clean()


@pytest.mark.parametrize("deadline_s", [pytest.param(40, marks=pytest.mark.sweep), 20])
def test_an_object_per_user_through_twenty_puts_a_second(
    deployment: Deployment, s3_faults: S3FaultProxy, deadline_s: int
) -> None:
    """600 users at 20 PUTs a second need 30 s; after a deadline of 20 s the worker knows how many objects fit."""
    s3_faults.pace.set(puts_per_s=PUTS_PER_S)
    records = (
        ToProduce(
            value=json.dumps({"user": f"canary-user-{user}", "time": "2026-03-04T05:06:07Z"}).encode(),
            partition=partition,
        )
        for partition in range(2)  # each has all users: half of the entries are no half of the objects
        for user in range(USERS)
    )
    written = deployment.kafka.produce(deployment.source, records)
    deployment.start(
        "w1",
        LOGP_LAYOUT="file",
        LOGP_FLUSH__BUDGET_S=str(deadline_s * 4 / 3),
    )
    _require_progress(deployment, written)
