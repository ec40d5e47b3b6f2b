"""The nine rules by their numbers, violations; lines, tenures, their runs of commits, and flushes. Pure."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from enum import IntEnum
from math import inf
from typing import NamedTuple

from log_partitioner.formats import log_events as events
from log_partitioner.formats.log_events import Head, LogEvent

COMMITTED = "committed"
Spans = dict[str, tuple[int, int]]
"""[first_offset, next_offset) by TopicPartition."""
RULED = frozenset({
    events.WorkerStarted, events.WorkerStopped, events.WorkerLeft, events.WorkerFailed, events.PartitionsAssigned,
    events.PartitionsRevoked, events.PartitionsLost, events.Positioned, events.FlushStarted, events.ObjectsUploaded,
    events.BatchCommitted, events.BatchDiscarded, events.CommitRepeated, events.OffsetGaps, events.OffsetsSkipped,
})  # fmt: skip
"""The events that the rules concern."""


class LogRule(IntEnum):
    """The rules that the log lines of a group must keep."""

    RESUME = 1
    OWNED = 2
    CONTIGUOUS = 3
    TRANSITION = 4
    AFTER_END = 5
    UPLOADED = 6
    ONE_OWNER = 7
    COMPLETE = 8
    MEMBER = 9


MEANINGS = {
    LogRule.RESUME: "a worker resumes above or below what is committed",
    LogRule.OWNED: "a flush or a commit covers what is not assigned to the worker in that generation",
    LogRule.CONTIGUOUS: "committed ranges of a TopicPartition do not join",
    LogRule.TRANSITION: "an event that the state of its boot does not allow",
    LogRule.AFTER_END: "a flush or a commit of what was revoked, lost or discarded before",
    LogRule.UPLOADED: "a commit of objects that were not all uploaded before",
    LogRule.ONE_OWNER: "two owners have committed the same offsets",
    LogRule.COMPLETE: "lines are missing",
    LogRule.MEMBER: "a commit by which the broker cannot tell the member",
}


class TimeWindow(NamedTuple):
    """The lines asked for; near the ends, other workers' lines may be missing: clocks differ by up to `slack_ms`."""

    since_ms: float = -inf
    until_ms: float = inf
    slack_ms: float = 0.0

    def has(self, at_ms: float, slack_ms: float = 0.0) -> bool:
        """Whether this time is inside, and `slack_ms` away from both ends."""
        return self.since_ms + slack_ms <= at_ms <= self.until_ms - slack_ms


class ToldLine(NamedTuple):
    """One line of a worker and its place; `event` is None if no rule concerns it."""

    head: Head
    at_ms: int
    event: LogEvent | None
    file: str
    number: int


class BootName(NamedTuple):
    """A process: its worker and its random id."""

    worker: str
    boot: str

    def __str__(self) -> str:
        return f"{self.worker} (boot {self.boot})"


class LinePlace(NamedTuple):
    """A line by its number in its boot; `at_ms` is by the worker's clock."""

    boot: BootName
    seq: int
    at_ms: int


class Violation(NamedTuple):
    """One line breaks a rule; the offsets are those in dispute.

    `could_be_told`: missing lines may explain it.
    """

    rule: LogRule
    text: str
    place: LinePlace
    tp: str | None = None
    offsets: tuple[int, int] | None = None
    could_be_told: bool = False


def text_of(span: tuple[int, int] | None) -> str:
    """Write a span."""
    return "nothing" if span is None else f"[{span[0]}, {span[1]})"


@dataclass(slots=True)
class Stretch:
    """Commits of one tenure that join each other, with the end of each: eight bytes a commit.

    `is_told` if it does not join what its boot had before.
    """

    first: int
    ends: array[int]
    place: LinePlace
    is_told: bool

    @property
    def end(self) -> int:
        """Return the end of the last of them."""
        return self.ends[-1]


@dataclass(slots=True)
class Tenure:
    """One ownership of a TopicPartition; `start` None and `generation`, the group's, -1 mean unknown."""

    tp: str
    place: LinePlace
    generation: int
    start: int | None = None
    source: str = "unknown"
    ended_ms: int = 0
    ended: str = ""
    runs: list[Stretch] = field(default_factory=list)

    @property
    def commits(self) -> int:
        """The number of its commits."""
        return sum(len(run.ends) for run in self.runs)

    @property
    def next_offset(self) -> int | None:
        """Return the offset that its commits have reached."""
        return max((run.end for run in self.runs), default=self.start)

    @property
    def resumed_at(self) -> int | None:
        """Return the committed offset at which it goes on; None if it starts by the policy."""
        return self.start if self.source == COMMITTED else None

    def cover(self, first: int, end: int, place: LinePlace, *, is_told: bool) -> None:
        """Add a commit."""
        if self.runs and self.runs[-1].end == first and not is_told:
            self.runs[-1].ends.append(end)
        else:
            self.runs.append(Stretch(first, array("q", [end]), place, is_told))


class Landing(NamedTuple):
    """An offset at which a worker goes on and that is new to its boot; `source`: committed, or the policy."""

    tp: str
    offset: int
    source: str
    place: LinePlace


@dataclass(slots=True)
class Flush:
    """A flush under way, or one without an outcome: all of its spans are committed, or none.

    `generations` are the group's, in which its TopicPartitions were assigned; `needed` and `refuted` are
    TopicPartitions of which later lines say that it is committed, or is not.
    """

    batch_id: str
    generation: int
    spans: Spans
    place: LinePlace
    generations: dict[str, int]
    uploaded: int = 0
    needed: set[str] = field(default_factory=set)
    refuted: set[str] = field(default_factory=set)
