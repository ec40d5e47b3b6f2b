"""A cell of the matrix, in short, and every kind of fault once: 0 lost, 0 duplicated, 0 torn.

Every cell is played in full and recorded by hand: `python -m tools.chaos matrix`, docs/EVIDENCE.md.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stack.providers import jars
from tools.chaos.bed import Bed, make_ground
from tools.chaos.faults import KINDS, Fault
from tools.chaos.figures import as_text, judged
from tools.chaos.matrix import chosen, play_cell
from tools.chaos.run import Flow, Run
from tools.local.kafka import KafkaCluster
from tools.local.s3 import S3Server
from tools.local.s3_faults import S3FaultProxy

RECORDS = 3_000  # that can be read; more come until the last bounce is over
BOUNCES = 4
EVERY_S = 6.0

_numbers = itertools.count(1)


@pytest.fixture
def bed(kafka_cluster: KafkaCluster, tmp_path: Path) -> Iterator[Bed]:
    """The cluster of all tests, and a store of this test's own."""
    with S3Server(jars=jars(), root=tmp_path / "s3") as s3, S3FaultProxy(s3.endpoint) as store:
        yield Bed(tmp_path, kafka_cluster, s3, store)


def test_cell_of_the_matrix(bed: Bed) -> None:
    """Workers are killed one at a time, each once the last one is made good, on a store that fails now and then."""
    [cell] = chosen(["kill-workers-cooperative-sticky-faults"])
    figures = play_cell(bed, cell, number=next(_numbers), records=RECORDS, tell=print, bounces_max=BOUNCES)
    assert figures["violations"] == [], as_text(figures)
    assert sum(figures["faults"].values()) == BOUNCES
    assert figures["verified_entries"] > RECORDS / 2


def test_every_kind_of_fault_once(bed: Bed) -> None:
    """One after the other, at workers, brokers, network and store."""
    faults = [
        Fault(EVERY_S * number, kind, number % 3, min(one.seconds[1], EVERY_S - 1.0))
        for number, (kind, one) in enumerate(KINDS.items())
    ]
    ground = make_ground(bed, f"once-{next(_numbers)}", protocol="cooperative-sticky", settings={})
    flow = Flow(entries_per_s=200.0, seconds=0.0, waits_for_recovery=True)
    happened = Run(bed, ground, flow, tell=print).play(faults)
    figures = judged(ground, happened, tell=print, kind="once")
    assert figures["violations"] == [], as_text(figures)
    assert figures["faults"] == dict.fromkeys(sorted(KINDS), 1)
