"""What the audit finds: kinds, counts, the first examples of each, and why it could not tell.

Owns the list of kinds; holds no more examples than asked for, however many findings there are.
"""

from __future__ import annotations

from collections import Counter
from enum import StrEnum

from service.errors import LogPartitionerError


class Kind(StrEnum):
    """Kinds of findings; each is counted by entries, references, objects or offsets as its line says."""

    MISSING = "missing"  # an entry below the committed offset is in no file and no dead letter
    DUPLICATED = "duplicated"  # an entry is in more than one place; counts the surplus
    UNEXPECTED = "unexpected"  # a row or dead letter of an entry that the source does not have, or not deliverable
    MISPLACED = "misplaced"  # wrong user, date or hour, in reference, key or `_meta`
    ALTERED = "altered"  # values are not those of the source
    EVENT_TIME = "event_time"  # `_meta.event_time` is wrong
    META = "meta"  # id, Kafka timestamp or root in `_meta` is wrong
    ORDER = "order"  # rows of one TopicPartition out of offset order
    WRONGLY_DEAD = "wrongly_dead"  # an entry without a fault is in a dead letter
    DEAD_LETTER = "dead_letter"  # payload, reason, indexes or headers of a dead letter are wrong
    REFERENCE = "reference"  # what a reference says is not what its rows say
    SCHEMA = "schema"  # the published schema is not exact, or not the one named
    OBJECT = "object"  # missing, damaged, unreadable, or referenced twice
    BACKFILL = "backfill"  # a backfill's record is not what its references and dead letters add up to
    FLUSH = "flush"  # a gap, an overlap, a hole with data, or a broken conservation law


class CouldNotTellError(LogPartitionerError):
    """The audit cannot reach what it needs; nothing is said about the data."""


class Findings:
    """Counts findings and keeps the first examples of each kind."""

    def __init__(self, *, examples_max: int) -> None:
        self.counts: Counter[Kind] = Counter()
        self.examples: dict[Kind, list[str]] = {}
        self.doubts: list[str] = []
        self.notes: list[str] = []
        self.examples_max = examples_max

    @property
    def are_none(self) -> bool:
        """Whether nothing was found."""
        return not self.counts

    def wants_example(self, kind: Kind) -> bool:
        """Whether the next finding of this kind would be shown."""
        return len(self.examples.get(kind, ())) < self.examples_max

    def add(self, kind: Kind, example: str, *, count: int = 1) -> None:
        """Count a finding."""
        self.counts[kind] += count
        if self.wants_example(kind):
            self.examples.setdefault(kind, []).append(example)

    def doubt(self, reason: str) -> None:
        """State why the audit could not tell."""
        if reason not in self.doubts:
            self.doubts.append(reason)

    def note(self, text: str) -> None:
        """State what a reader of the report should know."""
        if text not in self.notes:
            self.notes.append(text)
