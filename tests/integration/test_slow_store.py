"""Throttled means slower, never stuck: after one batch that was too large at most, every flush commits."""

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.harness import Deployment
from tests.stack.kafka_helper import KafkaHelper, ToProduce
from tests.stack.names import Names
from tests.stack.s3_helper import S3Helper
from tools.local.s3_faults import S3FaultProxy

PARTITIONS = 6
USERS = 600
PUTS_PER_S = 20
BYTES_PER_S = 1_000_000
LONG_BYTES = 5_000
# Kernels on both sides take a few megabytes that the proxy has not read yet: their answer is waited for.
PATIENT = {"LOGP_FLUSH__BUDGET_S": "50"}


@pytest.fixture
def deployment(
    kafka: KafkaHelper, s3: S3Helper, s3_faults: S3FaultProxy, names: Names, tmp_path: Path
) -> Iterator[Deployment]:
    """A deployment whose workers reach the store through the fault proxy."""
    with Deployment(
        kafka=kafka, s3=s3, names=names, root=tmp_path, endpoint=s3_faults.endpoint, settings=PATIENT
    ) as deployment:
        yield deployment


def _require_progress(deployment: Deployment, written: list[tuple[int, int]]) -> None:
    """Everything is committed, with one discard at most."""
    deployment.wait_drained(written, timeout_s=300)
    assert deployment.count("batch_discarded") <= 1
    assert deployment.stop_all() == {"w1": 0}
    deployment.require_clean()


def _long_entries(count: int) -> Iterator[ToProduce]:
    """Yield entries that no compression makes much smaller."""
    choose = random.Random(5)
    for number in range(count):
        text = choose.randbytes(LONG_BYTES).hex()
        entry = {"user": f"canary-user-{number % 100}", "time": "2026-03-04T05:06:07Z", "x": text}
        yield ToProduce(value=json.dumps(entry).encode(), partition=number % PARTITIONS)


def test_megabytes_through_one_megabyte_a_second(deployment: Deployment, s3_faults: S3FaultProxy) -> None:
    """A pack of 8 MB is sent at the store's pace; no read time-out takes that for silence."""
    s3_faults.pace.set(bytes_per_s=BYTES_PER_S)
    written = deployment.kafka.produce(deployment.source, _long_entries(1_600))
    deployment.start("w1")
    _require_progress(deployment, written)
    assert max(reference.location.size for reference in deployment.references()) > 2 * BYTES_PER_S


@pytest.mark.parametrize("deadline_s", [pytest.param(40, marks=pytest.mark.sweep), 20])
def test_an_object_per_user_through_twenty_puts_a_second(
    deployment: Deployment, s3_faults: S3FaultProxy, deadline_s: int
) -> None:
    """600 users at 20 PUTs a second need 30 s; where the deadline is 20 s, what was acknowledged tells how many fit."""
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
