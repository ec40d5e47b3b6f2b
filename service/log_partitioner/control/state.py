"""The state of the control plane as one value, and a named transition for each thing that happens.

Pure: no clock, no effects. `runtime.controller` calls the transitions in the order in which things happen, on one
thread. The invariant: a record is taken only if its TopicPartition is owned and not to be sought.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from log_partitioner.control.flush_policy import Size, grown, shrunk
from log_partitioner.formats.model import TopicPartition

TopicPartitions = frozenset[TopicPartition]

NOTHING: TopicPartitions = frozenset()
FAILURES_MAX = 3
FAILURES_WINDOW_S = 300.0
BACKOFF_FIRST_S = 1.0
_DISCARDS_MAX = 16  # that are counted: the pause has long reached its longest


class Phase(Enum):
    """The worker's state in a word, for metrics and for the way it ended."""

    IDLE = "idle"
    CONSUMING = "consuming"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class WorkerState:
    """Everything that the control plane knows.

    `generation` grows with each change of the assignment. Records of `to_seek` are refused until the consumer has
    sought the next offset of their TopicPartition. `size_max` bounds batches after a discard. Once `end` is set,
    nothing is flushed any more.
    """

    generation: int = 0
    owned: TopicPartitions = NOTHING
    to_seek: TopicPartitions = NOTHING
    paused_until_s: float | None = None
    discards_in_row: int = 0
    failures_at_s: tuple[float, ...] = ()
    size_max: Size | None = None
    end: Phase | None = None

    def __post_init__(self) -> None:
        """Assert the invariants of every state."""
        assert self.to_seek <= self.owned, f"to be sought, but not owned: {sorted(self.to_seek - self.owned)}"

    @property
    def phase(self) -> Phase:
        """The state in a word."""
        return self.end or (Phase.CONSUMING if self.owned else Phase.IDLE)

    @property
    def has_failed_too_often(self) -> bool:
        """Whether flushes have ended fatally, or unknown, more often than allowed."""
        return len(self.failures_at_s) >= FAILURES_MAX

    def change_of(self, before: WorkerState) -> str:
        """Name the differences from the state before."""
        names = (name for name in self.__slots__ if getattr(self, name) != getattr(before, name))
        return ", ".join(f"{name}={getattr(self, name)}" for name in names)

    # The assignment.

    def owning(self, tps: TopicPartitions) -> WorkerState:
        """Own these, too; they are to be sought, because the worker has not asked for their next offset yet.

        That holds for one that was released a moment ago as well. 1. `consume` takes offset 10. 2. Inside it a revoke
        discards offsets 5 to 9. 3. Inside it the TopicPartition is assigned again. 4. `consume` returns 10.
        """
        return replace(self, generation=self.generation + 1, owned=self.owned | tps, to_seek=self.to_seek | tps)

    def releasing(self, tps: TopicPartitions) -> WorkerState:
        """Stop owning these."""
        generation = self.generation + (self.end is None)
        return replace(self, generation=generation, owned=self.owned - tps, to_seek=self.to_seek - tps)

    # Positions.

    def seeking(self) -> WorkerState:
        """Seek everything that is owned; records handed over before are not recorded."""
        return replace(self, to_seek=self.owned)

    def sought(self, tps: TopicPartitions) -> WorkerState:
        """The consumer has sought these TopicPartitions."""
        return replace(self, to_seek=self.to_seek - tps)

    # Flushes.

    def committed(self, size_max: Size) -> WorkerState:
        """A flush is committed: batches may grow again, up to their usual limit."""
        return replace(self, discards_in_row=0, size_max=grown(self.size_max, size_max))

    def discarded(self, size: Size, at_s: float, *, counts_as_failure: bool) -> WorkerState:
        """A flush was not committed, or its outcome is unknown: batches become smaller. Old failures are forgotten."""
        failures = tuple(one for one in self.failures_at_s if at_s - one < FAILURES_WINDOW_S)
        failures += (at_s,) if counts_as_failure else ()
        return replace(self, failures_at_s=failures, size_max=shrunk(self.size_max, size))

    def backed_off(self, at_s: float, backoff_max_s: float) -> WorkerState:
        """Take no records for a while, longer each time in a row, and then seek everything again."""
        seconds = min(backoff_max_s, BACKOFF_FIRST_S * 2**self.discards_in_row)
        discards = min(self.discards_in_row + 1, _DISCARDS_MAX)
        return replace(self.seeking(), discards_in_row=discards, paused_until_s=at_s + seconds)

    def resumed(self) -> WorkerState:
        """The pause is over."""
        return replace(self, paused_until_s=None)

    def ended(self, phase: Phase) -> WorkerState:
        """Stop flushing; partitions that are revoked when the consumer closes are only released."""
        return self if self.end is not None else replace(self, end=phase)
