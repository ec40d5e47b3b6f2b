"""The batch: everything accepted since the last commit, over all TopicPartitions, with one id (DESIGN 2, 3.6).

`Batch` is open; a flush gets a `ClosedBatch`, which checks the conservation law (W3).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field
from typing import NamedTuple

from log_partitioner.batch.ledger import Ledger
from log_partitioner.batch.rows import Rows
from log_partitioner.boundary import BatchSpool, Membership
from log_partitioner.control.flush_policy import Size
from log_partitioner.formats.dead_letter import DeadLetter
from log_partitioner.formats.log_events import Covered
from log_partitioner.formats.model import CommittedOffset, TopicPartition


class Opening(NamedTuple):
    """Facts known when a batch is opened; `generation` is the worker's own, `membership` the group's at that moment."""

    batch_id: str
    generation: int
    membership: Membership
    opened_at_s: float
    opened_at_ms: int


@dataclass(slots=True)
class Batch:
    """The open batch, which one transaction will commit. Only the recorder changes it."""

    opening: Opening
    spool: BatchSpool
    rows: Rows
    source_bytes: int = 0
    entries: int = 0
    record_timestamps: int = 0
    dead_letters: list[DeadLetter] = field(default_factory=list)
    dead_letter_bytes: int = 0

    def close(self, ledgers: Mapping[TopicPartition, Ledger]) -> ClosedBatch:
        """Close the batch; later records go into the next one."""
        return ClosedBatch(
            opening=self.opening,
            spool=self.spool,
            rows=self.rows,
            ledgers={tp: copy(one) for tp, one in sorted(ledgers.items())},
            dead_letters=tuple(self.dead_letters),
            size=Size(self.source_bytes, self.entries),
            record_timestamps=self.record_timestamps,
        )


class ClosedBatch(NamedTuple):
    """A batch to which nothing is added any more, with everything that a flush needs; `ledgers` are copies.

    `record_timestamps` counts the entries whose event time is their record's timestamp.
    """

    opening: Opening
    spool: BatchSpool
    rows: Rows
    ledgers: Mapping[TopicPartition, Ledger]
    dead_letters: tuple[DeadLetter, ...]
    size: Size
    record_timestamps: int = 0

    @property
    def batch_id(self) -> str:
        """The batch's id."""
        return self.opening.batch_id

    @property
    def records(self) -> int:
        """The number of records that it covers."""
        return sum(ledger.records for ledger in self.ledgers.values())

    @property
    def entries(self) -> int:
        """The number of entries in its records."""
        return sum(ledger.entries for ledger in self.ledgers.values())

    @property
    def dead(self) -> int:
        """The number of these entries that are in dead letters."""
        return sum(ledger.dead_letters for ledger in self.ledgers.values())

    @property
    def dead_letters_by_reason(self) -> Counter[str]:
        """The number of dead letters by reason."""
        return Counter(letter.reason.value for letter in self.dead_letters)

    @property
    def discarded_replays(self) -> int:
        """The number of its records that are discarded as replays."""
        return sum(ledger.discarded_replays for ledger in self.ledgers.values())

    @property
    def ways_dropped(self) -> int:
        """The number of ways of source topic chains that it has dropped."""
        return sum(one.recorded.dropped for one in self.ledgers.values() if one.recorded is not None)

    @property
    def spans(self) -> dict[TopicPartition, tuple[int, int]]:
        """[first_offset, next_offset) of every owned TopicPartition."""
        return {tp: ledger.span for tp, ledger in self.ledgers.items()}

    @property
    def topics(self) -> set[str]:
        """The topics of which it covers offsets."""
        return {tp.topic for tp, ledger in self.ledgers.items() if not ledger.is_empty}

    def next_offsets(self) -> dict[TopicPartition, CommittedOffset]:
        """Return the offsets to commit, without metadata: ends of covered ranges, and starts of new TopicPartitions."""
        return {
            tp: CommittedOffset(ledger.next_offset, ledger.leader_epoch)
            for tp, ledger in self.ledgers.items()
            if ledger.is_to_commit
        }

    def named_spans(self) -> dict[str, tuple[int, int]]:
        """Return the covered offsets [first_offset, next_offset) of each TopicPartition by name; for the log."""
        return {str(tp): ledger.span for tp, ledger in self.ledgers.items() if not ledger.is_empty}

    def covered(self) -> dict[str, Covered]:
        """Return the offsets of each TopicPartition that the commit moves, as its log line has them."""
        return {
            str(tp): {
                "first_offset": ledger.first_offset,
                "min_offset": ledger.min_offset,
                "max_offset": ledger.max_offset,
                "next_offset": ledger.next_offset,
            }
            for tp, ledger in self.ledgers.items()
            if not ledger.is_empty
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


def cost_of(spans: Mapping[TopicPartition, tuple[int, int]]) -> str:
    """Return in words the offsets that are read again if [first, next) of each is given up."""
    covered = [f"{first} to {end - 1} of {tp}" for tp, (first, end) in sorted(spans.items()) if end > first]
    return f"records {', '.join(covered)} will be read again"
