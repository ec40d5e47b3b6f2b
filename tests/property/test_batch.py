"""The ledgers against a model of what was read and committed: W1, W2 and W3 under any sequence of operations."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from log_partitioner.batch.batch import Batch, ClosedBatch, Opening
from log_partitioner.batch.ledger import Ledger, Ledgers
from log_partitioner.boundary import Membership
from log_partitioner.formats.model import CommittedOffset, TopicPartition
from tests.fakes.spool import FakeSpool
from tests.strategies import empty_rows

MEMBER = Membership(1, "member", None)
TPS = [TopicPartition("app", number) for number in range(3)]
tps = st.sampled_from(TPS)
counts = st.integers(0, 3)


@dataclass
class Covered:
    """The open batch's share of one TopicPartition: offsets, timestamps, and entries by their fate."""

    offsets: list[int] = field(default_factory=list)
    timestamps: list[int] = field(default_factory=list)
    fates: list[tuple[int, int]] = field(default_factory=list)


class LedgersAgainstModel(RuleBasedStateMachine):
    """Owns, covers, commits, forgets and rewinds at random; the broker's committed offsets are the model's."""

    def __init__(self) -> None:
        super().__init__()
        self.ledgers = Ledgers()
        self.broker: dict[TopicPartition, int] = dict.fromkeys(TPS, 0)
        self.open: dict[TopicPartition, Covered] = {}
        self.now_ms = 1_000

    @precondition(lambda self: self.ledgers.are_empty)
    @rule(tp=tps)
    def own(self, tp: TopicPartition) -> None:
        """Own at the committed offset, between batches."""
        if tp not in self.open:
            self.ledgers.start(tp, CommittedOffset(self.broker[tp]))
            self.open[tp] = Covered()

    @precondition(lambda self: self.ledgers.are_empty)
    @rule(tp=tps)
    def disown(self, tp: TopicPartition) -> None:
        """Stop owning, owned or not."""
        self.ledgers.disown(tp)
        self.open.pop(tp, None)

    @rule(tp=tps, gap=counts, fate=st.tuples(counts, counts), timestamp=st.none() | st.integers(0, 99))
    def cover(self, tp: TopicPartition, gap: int, fate: tuple[int, int], timestamp: int | None) -> None:
        """Cover a record; holes before it are legal, and so are records without entries."""
        if tp not in self.open:
            return
        ledger, covered = self.ledgers.by_tp[tp], self.open[tp]
        offset = ledger.next_offset + gap
        _, dead = fate
        ledger.entries += sum(fate)
        ledger.dead_letters += dead
        ledger.cover(offset, timestamp_ms=timestamp)
        covered.offsets.append(offset)
        covered.fates.append(fate)
        if timestamp is not None:
            covered.timestamps.append(timestamp)

    @rule(tp=tps)
    def cover_again(self, tp: TopicPartition) -> None:
        """W2: an offset that is covered already is never covered again."""
        if self.open.get(tp, Covered()).offsets:
            with pytest.raises(AssertionError, match="W2"):
                self.ledgers.by_tp[tp].cover(self.open[tp].offsets[-1], timestamp_ms=None)

    @rule()
    def commit(self) -> None:
        """W1, W2: what is committed is what was covered, and always goes forward."""
        offsets = self.next_offsets()
        assert offsets == {tp: covered.offsets[-1] + 1 for tp, covered in self.open.items() if covered.offsets}
        assert all(offset > self.broker[tp] for tp, offset in offsets.items())
        self.broker |= offsets
        self.now_ms += 1_000
        self.ledgers.committed(self.ledgers.by_tp, now_ms=self.now_ms)
        self.open = {tp: Covered() for tp in self.open}

    @rule(data=st.data())
    def discard(self, data: Any) -> None:
        """W6: after a discard nothing of the batch is left to commit; an unknown outcome may jump ahead."""
        committed_after_all = data.draw(st.booleans())
        if committed_after_all:
            self.broker |= self.next_offsets()
        first = {tp: ledger.first_offset for tp, ledger in self.ledgers.by_tp.items()}
        assert self.ledgers.forget() == {
            tp: (first[tp], covered.offsets[-1] + 1) for tp, covered in self.open.items() if covered.offsets
        }
        for tp in self.open:
            self.ledgers.start(tp, CommittedOffset(self.broker[tp]))
        self.open = {tp: Covered() for tp in self.open}
        assert self.next_offsets() == {}

    def closed(self) -> ClosedBatch:
        """Close a batch here."""
        return Batch(Opening("b", 1, MEMBER, 0.0, 0), FakeSpool().open("b"), empty_rows()).close(self.ledgers.by_tp)

    def next_offsets(self) -> dict[TopicPartition, int]:
        """Give the offsets that a commit would commit now."""
        return {tp: committed.offset for tp, committed in self.closed().next_offsets().items()}

    @invariant()
    def ledgers_are_as_the_model(self) -> None:
        """W1, W3: ranges start at the committed offset, and every entry is accounted for."""
        closed = self.closed()
        fates = {tp: [sum(fate) for fate in zip(*covered.fates, strict=True)] for tp, covered in self.open.items()}
        for tp, (in_files, dead) in ((tp, fate) for tp, fate in fates.items() if fate):
            closed.ledgers[tp].check(tp, in_files=in_files, dead=dead)
        assert closed.records == sum(len(covered.offsets) for covered in self.open.values())
        assert self.ledgers.by_tp.keys() == self.open.keys()
        assert self.ledgers.are_empty == (not any(covered.offsets for covered in self.open.values()))
        for tp, covered in self.open.items():
            ledger = self.ledgers.by_tp[tp]
            assert ledger.first_offset == self.broker[tp]
            assert (ledger.min_offset, ledger.max_offset) == (
                (covered.offsets[0], covered.offsets[-1]) if covered.offsets else (None, None)
            )
            assert ledger.records == len(covered.offsets)
            assert ledger.entries == sum(map(sum, covered.fates))
            assert ledger.timestamp_max_ms == max(covered.timestamps, default=None)
            assert ledger.idle_since_ms is None or not covered.offsets


TestLedgers = LedgersAgainstModel.TestCase


@given(counts, counts, st.integers(1, 3))
def test_w3_an_entry_that_is_not_accounted_for_is_noticed(a: int, b: int, missing: int) -> None:
    """W3: entries == in files + dead letters, or the check fails."""
    ledger = Ledger(0, 0, entries=a + b, dead_letters=b)
    ledger.check(TPS[0], in_files=a, dead=b)
    for in_files, dead in ((a + missing, b), (a, b + missing), (a + missing, b - missing), (a - missing, b + missing)):
        with pytest.raises(AssertionError, match="W3"):
            ledger.check(TPS[0], in_files=in_files, dead=dead)
    ledger.entries += missing
    with pytest.raises(AssertionError, match="W3"):
        ledger.check(TPS[0], in_files=a, dead=b)
