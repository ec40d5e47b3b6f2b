"""The batch: everything accepted since the last commit, over all TopicPartitions, with one id (DESIGN 2, 3.6).

`Batch` is open; a flush gets a `ClosedBatch`, which checks the conservation law (W3).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field
from typing import NamedTuple

from log_partitioner.batch.progress import Progress
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

    def close(self, progress: Mapping[TopicPartition, Progress]) -> ClosedBatch:
        """Close the batch; later records go into the next one."""
        return ClosedBatch(
            opening=self.opening,
            spool=self.spool,
            rows=self.rows,
            progress={tp: copy(one) for tp, one in sorted(progress.items())},
            dead_letters=tuple(self.dead_letters),
            size=Size(self.source_bytes, self.entries),
            record_timestamps=self.record_timestamps,
        )


class ClosedBatch(NamedTuple):
    """A batch to which nothing is added any more, with everything that a flush needs; `progress` is a copy.

    `record_timestamps` counts the entries whose event time is their record's timestamp.
    """

    opening: Opening
    spool: BatchSpool
    rows: Rows
    progress: Mapping[TopicPartition, Progress]
    dead_letters: tuple[DeadLetter, ...]
    size: Size
    record_timestamps: int = 0

    @property
    def batch_id(self) -> str:
        """The batch's id."""
        return self.opening.batch_id

    @property
    def records(self) -> int:
        """How many records it covers."""
        return sum(progress.records for progress in self.progress.values())

    @property
    def entries(self) -> int:
        """How many entries its records have."""
        return sum(progress.entries for progress in self.progress.values())

    @property
    def dead(self) -> int:
        """How many of them are in dead letters."""
        return sum(progress.dead_letters for progress in self.progress.values())

    @property
    def dead_letters_by_reason(self) -> Counter[str]:
        """How many dead letters there are of each reason."""
        return Counter(letter.reason.value for letter in self.dead_letters)

    @property
    def discarded_replays(self) -> int:
        """How many of its records are discarded as replays."""
        return sum(progress.discarded_replays for progress in self.progress.values())

    @property
    def ways_dropped(self) -> int:
        """How many ways of source topic chains it has dropped."""
        return sum(one.recorded.dropped for one in self.progress.values() if one.recorded is not None)

    @property
    def spans(self) -> dict[TopicPartition, tuple[int, int]]:
        """[first_offset, next_offset) of every owned TopicPartition."""
        return {tp: (progress.first_offset, progress.next_offset) for tp, progress in self.progress.items()}

    def next_offsets(self) -> dict[TopicPartition, CommittedOffset]:
        """Return the offsets to commit, without metadata: ends of covered ranges, and starts of new TopicPartitions."""
        return {
            tp: CommittedOffset(progress.next_offset, progress.leader_epoch)
            for tp, progress in self.progress.items()
            if progress.is_to_commit
        }

    def named_spans(self) -> dict[str, tuple[int, int]]:
        """Return the covered offsets [first_offset, next_offset) of each TopicPartition by name; for the log."""
        return {str(tp): (first, end) for tp, (first, end) in self.spans.items() if end > first}

    def covered(self) -> dict[str, Covered]:
        """Return the offsets of each TopicPartition that the commit moves, as its log line has them."""
        return {
            str(tp): {
                "first_offset": progress.first_offset,
                "min_offset": progress.min_offset,
                "max_offset": progress.max_offset,
                "next_offset": progress.next_offset,
            }
            for tp, progress in self.progress.items()
            if progress.next_offset > progress.first_offset
        }

    def check(self, in_files: Mapping[TopicPartition, int]) -> None:
        """Assert W1 and W3 for all; `in_files` are the rows that were counted as they were written into objects."""
        dead: Counter[TopicPartition] = Counter()
        for letter in self.dead_letters:
            dead[letter.record.tp] += letter.entries
        strange = (in_files.keys() | dead.keys()) - self.progress.keys()
        assert not strange, f"W3: entries of {sorted(strange)}, which the batch does not cover"
        for tp, progress in self.progress.items():
            progress.check(tp, in_files=in_files.get(tp, 0), dead=dead[tp])


def cost_of(spans: Mapping[TopicPartition, tuple[int, int]]) -> str:
    """Return in words the offsets that are read again if [first, next) of each is given up."""
    covered = [f"{first} to {end - 1} of {tp}" for tp, (first, end) in sorted(spans.items()) if end > first]
    return f"records {', '.join(covered)} will be read again"
