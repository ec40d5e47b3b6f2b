"""The batch: everything accepted since the last commit, over all TopicPartitions, with one id (DESIGN 2, 3.6).

Owns the ledger - which offsets are covered, and what became of their entries - and the conservation law. The ledger,
never the client's position, says what is committed (KAFKA_FACTS F5). `ClosedBatch` is what a flush gets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field
from typing import NamedTuple

from service.batch.rows import Rows
from service.boundary import BatchSpool, Membership
from service.control.flush_policy import Size
from service.formats.dead_letter import DeadLetter
from service.formats.model import CommittedOffset, TopicPartition


@dataclass(slots=True)
class Ledger:
    """One owned TopicPartition in the open batch.

    `first_offset` is the committed position the batch started from; `next_offset` the first not yet covered.
    `min_offset` and `max_offset` are of the first and the last record that it covers.
    """

    first_offset: int
    next_offset: int
    leader_epoch: int | None = None
    min_offset: int | None = None
    max_offset: int | None = None
    timestamp_max_ms: int | None = None
    idle_since_ms: int | None = None
    records: int = 0
    entries: int = 0
    dead_letters: int = 0
    discarded_replays: int = 0

    def cover(
        self,
        offset: int,
        *,
        timestamp_ms: int | None,
        leader_epoch: int | None = None,
        end_offset: int | None = None,
    ) -> None:
        """Cover a record: its entries are all in rows, dead letters or discarded (W2).

        With `end_offset` it stands for all offsets up to there.
        """
        assert offset >= self.next_offset, f"W2: offset {offset} is below next_offset {self.next_offset}"
        self.next_offset = offset + 1 if end_offset is None else end_offset
        self.leader_epoch = leader_epoch
        self.idle_since_ms = None
        if self.min_offset is None:
            self.min_offset = offset
        self.max_offset = offset
        self.records += 1
        if timestamp_ms is not None and (self.timestamp_max_ms is None or timestamp_ms > self.timestamp_max_ms):
            self.timestamp_max_ms = timestamp_ms

    def begin_again(self, *, now_ms: int) -> None:
        """Start the next batch where this one ended; call only after its commit."""
        if not self.records and self.idle_since_ms is None:
            self.idle_since_ms = now_ms
        self.first_offset = self.next_offset
        self.min_offset = self.max_offset = None
        self.timestamp_max_ms = None
        self.records = self.entries = self.dead_letters = self.discarded_replays = 0

    def check(self, tp: TopicPartition, *, in_files: int, dead: int) -> None:
        """Assert the order of offsets (W1) and the conservation law (W3), by what was counted elsewhere.

        `in_files` are the rows in finished objects, `dead` the entries that its dead letters name.
        """
        assert self.first_offset <= self.next_offset, f"W1: {tp}: {self.first_offset} > {self.next_offset}"
        assert self.dead_letters == dead, f"W3: {tp}: {dead} entries in dead letters, {self.dead_letters} should be"
        in_objects = self.entries - dead - self.discarded_replays
        assert in_files == in_objects, f"W3: {tp}: {in_files} entries are in objects, {in_objects} should be"


class Opening(NamedTuple):
    """What is known of a batch when it is opened; `generation` is ours, `membership` the group's, of that moment."""

    batch_id: str
    generation: int
    membership: Membership
    opened_at_s: float
    opened_at_ms: int


@dataclass(slots=True)
class Batch:
    """The open batch: what one transaction will commit. Only the recorder changes it."""

    opening: Opening
    spool: BatchSpool
    rows: Rows = field(default_factory=Rows)
    source_bytes: int = 0
    records: int = 0
    entries: int = 0
    dead_letters: list[DeadLetter] = field(default_factory=list)
    dead_letter_bytes: int = 0

    def close(self, ledgers: Mapping[TopicPartition, Ledger]) -> ClosedBatch:
        """Close it: what comes later is of the next batch."""
        return ClosedBatch(
            opening=self.opening,
            spool=self.spool,
            rows=self.rows,
            ledgers={tp: copy(ledger) for tp, ledger in sorted(ledgers.items())},
            dead_letters=tuple(self.dead_letters),
            size=Size(self.source_bytes, self.entries),
        )


class ClosedBatch(NamedTuple):
    """A batch that nothing is added to any more, with everything that a flush needs; `ledgers` are copies."""

    opening: Opening
    spool: BatchSpool
    rows: Rows
    ledgers: Mapping[TopicPartition, Ledger]
    dead_letters: tuple[DeadLetter, ...]
    size: Size

    @property
    def batch_id(self) -> str:
        """The batch's id."""
        return self.opening.batch_id

    @property
    def records(self) -> int:
        """How many records it covers."""
        return sum(ledger.records for ledger in self.ledgers.values())

    @property
    def spans(self) -> dict[TopicPartition, tuple[int, int]]:
        """[first_offset, next_offset) of every owned TopicPartition."""
        return {tp: (ledger.first_offset, ledger.next_offset) for tp, ledger in self.ledgers.items()}

    def next_offsets(self) -> dict[TopicPartition, CommittedOffset]:
        """Give what its commit commits: only what it has covered; metadata is the committer's matter."""
        return {
            tp: CommittedOffset(ledger.next_offset, ledger.leader_epoch)
            for tp, ledger in self.ledgers.items()
            if ledger.next_offset > ledger.first_offset
        }

    def covered(self) -> dict[str, dict[str, int | None]]:
        """Give what a log line of its commit says of each TopicPartition that it commits."""
        return {
            str(tp): {
                "first_offset": ledger.first_offset,
                "min_offset": ledger.min_offset,
                "max_offset": ledger.max_offset,
                "next_offset": ledger.next_offset,
            }
            for tp, ledger in self.ledgers.items()
            if ledger.next_offset > ledger.first_offset
        }

    def check(self, in_files: Mapping[TopicPartition, int]) -> None:
        """Assert W1 and W3 for all; `in_files` are the rows that were counted as they were written into objects."""
        dead: Counter[TopicPartition] = Counter()
        for letter in self.dead_letters:
            dead[letter.record.tp] += letter.entries
        strange = (in_files.keys() | dead.keys()) - self.ledgers.keys()
        assert not strange, f"W3: entries of {sorted(strange)}, which the batch does not cover"
        for tp, ledger in self.ledgers.items():
            ledger.check(tp, in_files=in_files.get(tp, 0), dead=dead[tp])


class Ledgers:
    """The ledgers of all owned TopicPartitions; outlives the batches."""

    def __init__(self) -> None:
        self.by_tp: dict[TopicPartition, Ledger] = {}

    def own(self, tp: TopicPartition, start: CommittedOffset) -> None:
        """Begin to own a TopicPartition at its committed offset."""
        assert tp not in self.by_tp, f"{tp} is owned already"
        self.by_tp[tp] = Ledger(start.offset, start.offset, start.leader_epoch)

    def disown(self, tp: TopicPartition) -> None:
        """Stop owning; unknown ones are ignored (confluent-kafka-python issue 1551)."""
        self.by_tp.pop(tp, None)

    @property
    def is_empty(self) -> bool:
        """Whether the open batch covers no offset; records with zero entries count as covered."""
        return not any(ledger.next_offset > ledger.first_offset for ledger in self.by_tp.values())

    def committed(self, *, now_ms: int) -> None:
        """Begin the next batch: everything covered is committed."""
        for ledger in self.by_tp.values():
            ledger.begin_again(now_ms=now_ms)

    def forget(self) -> dict[TopicPartition, tuple[int, int]]:
        """Drop what the open batch covered; gives [first, next) of the offsets that will be read again."""
        covered = {
            tp: (ledger.first_offset, ledger.next_offset)
            for tp, ledger in self.by_tp.items()
            if ledger.next_offset > ledger.first_offset
        }
        for tp, ledger in self.by_tp.items():
            self.by_tp[tp] = Ledger(ledger.first_offset, ledger.first_offset, idle_since_ms=ledger.idle_since_ms)
        return covered

    def rewind(self, tp: TopicPartition, committed: CommittedOffset) -> None:
        """Go on at the committed offset."""
        old = self.by_tp[tp]
        assert old.next_offset == old.first_offset, f"{tp} is rewound with a batch open"
        self.by_tp[tp] = Ledger(
            committed.offset, committed.offset, committed.leader_epoch, idle_since_ms=old.idle_since_ms
        )


def cost_of(spans: Mapping[TopicPartition, tuple[int, int]]) -> str:
    """Say what giving up [first, next) of each costs."""
    covered = [f"{first} to {end - 1} of {tp}" for tp, (first, end) in sorted(spans.items()) if end > first]
    return f"records {', '.join(covered)} will be read again"
