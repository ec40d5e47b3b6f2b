"""A line that the rules are held against, the nine rules by their numbers, and what breaks one. Pure."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from service.formats.log_events import Head, LogEvent


class LogRule(IntEnum):
    """What must hold of the log lines of a group."""

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
EVERY_RULE = frozenset(LogRule)


class BootName(NamedTuple):
    """A process: its worker, and the id that it has drawn."""

    worker: str
    boot: str

    def __str__(self) -> str:
        return f"{self.worker} (boot {self.boot})"


class ToldLine(NamedTuple):
    """One line of a worker and where it stands; `event` is None where the rules are not about it."""

    head: Head
    at_ms: int
    event: LogEvent | None
    file: int
    number: int


class Violation(NamedTuple):
    """One line breaks a rule; the offsets are those in dispute.

    `could_be_told`: lines that are missing may explain it.
    """

    rule: LogRule
    text: str
    boot: BootName
    seq: int
    at_ms: int
    tp: str | None = None
    offsets: tuple[int, int] | None = None
    could_be_told: bool = False
