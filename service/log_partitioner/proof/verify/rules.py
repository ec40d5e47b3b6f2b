"""A line of a log, the nine rules by their numbers, and violations. Pure."""

from __future__ import annotations

from enum import IntEnum
from math import inf
from typing import NamedTuple

from log_partitioner.formats import log_events as events
from log_partitioner.formats.log_events import Head, LogEvent

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
