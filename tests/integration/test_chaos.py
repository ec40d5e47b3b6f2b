"""Every kind of fault once: 0 lost, 0 duplicated, 0 torn.

The cells of the matrix are played and recorded by hand: `python -m tools.chaos matrix`, docs/EVIDENCE.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stack.providers import jars
from tools.chaos.bed import Bed, make_ground
from tools.chaos.faults import KINDS, Fault
from tools.chaos.figures import as_text, judged
from tools.chaos.injector import SOME_FAULTS
from tools.chaos.run import Flow, Run
from tools.local.kafka import KafkaCluster
from tools.local.s3 import S3Server
from tools.local.s3_faults import S3FaultProxy

EVERY_S = 6.0
# Behind a killed worker the others wait for its transaction.
SETTINGS = {"LOGP_FLUSH__BUDGET_S": "30"}


@pytest.fixture
def bed(kafka_cluster: KafkaCluster, tmp_path: Path) -> Iterator[Bed]:
    """The cluster of all tests, and a store of this test's own."""
    with S3Server(jars=jars(), root=tmp_path / "s3") as s3, S3FaultProxy(s3.endpoint) as store:
        yield Bed(tmp_path, kafka_cluster, s3, store)


def test_every_kind_of_fault_once(bed: Bed) -> None:
    """One after the other, at workers, brokers, network and store, which fails now and then all the time before."""
    faults = [
        Fault(EVERY_S * number, kind, number % 3, min(one.seconds[1], EVERY_S - 1.0))
        for number, (kind, one) in enumerate(KINDS.items())
    ]
    bed.store.add(*SOME_FAULTS)
    ground = make_ground(bed, "once", protocol="cooperative-sticky", settings=SETTINGS)
    flow = Flow(entries_per_s=200.0, seconds=0.0, waits_for_recovery=True)
    happened = Run(bed, ground, flow, tell=print).play(faults)
    figures = judged(ground, happened, tell=print, kind="once")
    assert figures["violations"] == [], as_text(figures)
    assert figures["faults"] == dict.fromkeys(sorted(KINDS), 1)
    assert figures["verified_entries"] > figures["records"] / 2
