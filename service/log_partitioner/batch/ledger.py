"""The ledger of each owned TopicPartition: the offsets that the batch covers, and counts of their entries.

The commit takes its offsets from here, never from the client's position (KAFKA_FACTS F5).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from log_partitioner.batch.fast_lane import TakenSpan
from log_partitioner.formats.model import CommittedOffset, SourceRecord, TopicPartition, WayPlace
from log_partitioner.formats.offset_metadata import Ways
from log_partitioner.partitioning.chain import WayPlaces


class Replay(NamedTuple):
    """The offset and the place of a record that is discarded, and the highest place recorded of its way."""

    offset: int
    place: tuple[int, ...]
    highest: tuple[int, ...]


@dataclass(slots=True)
class Ledger:
    """One owned TopicPartition in the open batch.

    `first_offset` is the offset at which the batch started: a committed one, or, if `is_new`, the policy's, which the
    next commit makes a committed one in any case. `next_offset` is the first not yet covered. `min_offset` and
    `max_offset` are those of the first and the last record that it covers. `oldest_ms` is the timestamp of the oldest
    record that was covered and is not committed, though its batch may be discarded; `committed_ms` is the timestamp of
    the newest committed record. If replays are discarded, `first_ways` has the places recorded at `first_offset` by
    way, `recorded` those at `next_offset`; `replays` has the first replay of each way.
    """

    first_offset: int
    next_offset: int
    leader_epoch: int | None = None
    min_offset: int | None = None
    max_offset: int | None = None
    timestamp_max_ms: int | None = None
    idle_since_ms: int | None = None
    oldest_ms: int | None = None
    committed_ms: int | None = None
    records: int = 0
    entries: int = 0
    dead_letters: int = 0
    is_new: bool = False
    first_ways: Ways | None = None
    recorded: WayPlaces | None = None
    discarded_replays: int = 0
    replays: dict[str, Replay] = field(default_factory=dict)

    @property
    def next_ways(self) -> Ways | None:
        """The places recorded by way at `next_offset`; None if replays are not discarded."""
        return None if self.recorded is None else self.recorded.ways

    @property
    def waits_since_ms(self) -> int | None:
        """The timestamp from which on records are not committed, as far as it is known."""
        return self.committed_ms if self.oldest_ms is None else self.oldest_ms

    @property
    def span(self) -> tuple[int, int]:
        """[first_offset, next_offset)."""
        return self.first_offset, self.next_offset

    @property
    def is_empty(self) -> bool:
        """Whether the batch covers none of its offsets; a record without entries counts as covered."""
        return self.next_offset == self.first_offset

    @property
    def is_to_commit(self) -> bool:
        """Whether the commit of the batch moves its offset."""
        return self.is_new or not self.is_empty

    def cover(
        self,
        offset: int,
        *,
        timestamp_ms: int | None,
        leader_epoch: int | None = None,
    ) -> None:
        """Count a record as covered: all its entries are in rows or dead letters (W2)."""
        assert offset >= self.next_offset, f"W2: offset {offset} is below next_offset {self.next_offset}"
        self.next_offset = offset + 1
        self.leader_epoch = leader_epoch
        self.idle_since_ms = None
        if self.min_offset is None:
            self.min_offset = offset
            self.oldest_ms = timestamp_ms if self.oldest_ms is None else self.oldest_ms
        self.max_offset = offset
        self.records += 1
        if timestamp_ms is not None and (self.timestamp_max_ms is None or timestamp_ms > self.timestamp_max_ms):
            self.timestamp_max_ms = timestamp_ms

    def has(self, place: WayPlace) -> bool:
        """Return whether this place, or a higher one, is recorded of its way: then the record is a replay."""
        highest = None if self.recorded is None else self.recorded.highest(place.way)
        return highest is not None and place.numbers <= highest

    def move(self, place: WayPlace) -> None:
        """Move a way on to the place of a record that was covered."""
        assert self.recorded is not None, "replays are discarded"
        self.recorded.move(place)

    def cover_replay(self, record: SourceRecord, place: WayPlace) -> None:
        """Count a record as covered that is discarded."""
        highest = None if self.recorded is None else self.recorded.highest(place.way)
        assert highest is not None, f"W2: nothing is recorded of way {place.way}"
        self.cover(record.offset, timestamp_ms=record.timestamp_ms, leader_epoch=record.leader_epoch)
        self.discarded_replays += 1
        self.replays.setdefault(place.way, Replay(record.offset, place.numbers, highest))
        self.move(place._replace(numbers=highest))

    def cover_many(self, covered: TakenSpan, *, first_ms: int | None, leader_epoch: int | None) -> None:
        """Count records with ascending offsets as covered (W2), with their entries; the epoch is the last record's.

        `first_ms` is the first record's timestamp, which counts if none is covered yet.
        """
        records, first, last = covered.records, covered.first_offset, covered.last_offset
        assert self.next_offset <= first <= last - records + 1, f"W2: {covered} from next_offset {self.next_offset}"
        oldest_ms = first_ms if self.oldest_ms is None else self.oldest_ms
        self.cover(last, timestamp_ms=covered.timestamp_max_ms, leader_epoch=leader_epoch)
        if self.records == 1:
            self.min_offset, self.oldest_ms = first, oldest_ms
        self.records += records - 1
        self.entries += covered.entries

    def begin_again(self, *, now_ms: int) -> None:
        """Start the next batch at the end of this one; call only after its commit."""
        if not self.records and self.idle_since_ms is None:
            self.idle_since_ms = now_ms
        self.first_offset, self.is_new = self.next_offset, False
        if self.timestamp_max_ms is not None:
            self.committed_ms = self.timestamp_max_ms
        self.min_offset = self.max_offset = None
        self.timestamp_max_ms = self.oldest_ms = None
        self.records = self.entries = self.dead_letters = self.discarded_replays = 0
        if self.recorded is not None:
            self.first_ways, self.recorded, self.replays = self.recorded.ways, WayPlaces(self.recorded.ways), {}

    def check(self, tp: TopicPartition, *, in_files: int, dead: int) -> None:
        """Assert the order of offsets (W1) and the conservation law (W3), by counts taken elsewhere.

        `in_files` are the rows in finished objects, `dead` the entries that its dead letters name.
        """
        assert self.first_offset <= self.next_offset, f"W1: {tp}: {self.first_offset} > {self.next_offset}"
        assert self.dead_letters == dead, f"W3: {tp}: {dead} entries in dead letters, {self.dead_letters} should be"
        in_objects = self.entries - dead
        assert in_files == in_objects, f"W3: {tp}: {in_files} entries are in objects, {in_objects} should be"


class Ledgers:
    """The ledgers of all owned TopicPartitions; they outlive the batches."""

    def __init__(self) -> None:
        self.by_tp: dict[TopicPartition, Ledger] = {}

    def start(
        self, tp: TopicPartition, start: CommittedOffset, *, is_new: bool = False, ways: Ways | None = None
    ) -> None:
        """Start at an offset that is committed, or that the policy gave, with the places recorded there by way."""
        old = self.by_tp.get(tp)
        assert old is None or old.is_empty, f"{tp} is rewound with a batch open"
        self.by_tp[tp] = _begun(start.offset, start.leader_epoch, old, is_new=is_new, ways=ways)

    def disown(self, tp: TopicPartition) -> None:
        """Stop owning; unknown ones are ignored (confluent-kafka-python issue 1551)."""
        self.by_tp.pop(tp, None)

    @property
    def are_empty(self) -> bool:
        """Whether the open batch covers no offset."""
        return all(ledger.is_empty for ledger in self.by_tp.values())

    def committed(self, tps: Iterable[TopicPartition], *, now_ms: int) -> None:
        """Begin the next batch behind the closed one, which had these TopicPartitions and is committed."""
        for tp in tps:
            self.by_tp[tp].begin_again(now_ms=now_ms)

    def forget(self) -> dict[TopicPartition, tuple[int, int]]:
        """Forget what the open batch covers; returns the offsets [first, next) that will be read again."""
        covered = {tp: ledger.span for tp, ledger in self.by_tp.items() if not ledger.is_empty}
        for tp, ledger in self.by_tp.items():
            ways, is_new = ledger.first_ways, ledger.is_new
            self.by_tp[tp] = _begun(ledger.first_offset, None, ledger, is_new=is_new, ways=ways)
        return covered


def _begun(first: int, leader_epoch: int | None, old: Ledger | None, *, is_new: bool, ways: Ways | None) -> Ledger:
    recorded = None if ways is None else WayPlaces(ways)
    begun = Ledger(first, first, leader_epoch, is_new=is_new, first_ways=ways, recorded=recorded)
    if old is not None:
        begun.idle_since_ms, begun.oldest_ms, begun.committed_ms = old.idle_since_ms, old.oldest_ms, old.committed_ms
    return begun
