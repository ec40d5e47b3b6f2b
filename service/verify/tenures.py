"""What one boot had of a TopicPartition: its tenures, their runs of commits, and what may be committed. Pure."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import NamedTuple

from service.verify.rules import BootName

Spans = dict[str, tuple[int, int]]
"""[first_offset, next_offset) by TopicPartition."""


def text_of(span: tuple[int, int] | None) -> str:
    """Write a span."""
    return "nothing" if span is None else f"[{span[0]}, {span[1]})"


@dataclass(slots=True)
class Stretch:
    """Commits of one tenure that join each other, and where each ended: eight bytes a commit.

    `is_told` where it does not join what its boot had before.
    """

    first: int
    ends: array[int]
    seq: int
    at_ms: int
    is_told: bool = False

    @property
    def end(self) -> int:
        """Where the last of them ended."""
        return self.ends[-1]


@dataclass(slots=True)
class Tenure:
    """One ownership of a TopicPartition; `start` None and `generation`, the group's, -1 are not told."""

    tp: str
    boot: BootName
    seq: int
    began_ms: int
    start: int | None = None
    source: str = "unknown"
    generation: int = -1
    ended_ms: int = 0
    ended: str = ""
    runs: list[Stretch] = field(default_factory=list)

    @property
    def commits(self) -> int:
        """How many commits it has."""
        return sum(len(run.ends) for run in self.runs)

    @property
    def next_offset(self) -> int | None:
        """Where it has come to, by its commits."""
        return max((run.end for run in self.runs), default=self.start)

    def cover(self, first: int, end: int, *, seq: int, at_ms: int, is_told: bool) -> None:
        """Add a commit."""
        last = self.runs[-1] if self.runs else None
        if last is not None and last.end == first and not is_told:
            last.ends.append(end)
        else:
            self.runs.append(Stretch(first, array("q", [end]), seq, at_ms, is_told))


class Landing(NamedTuple):
    """Where a worker goes on because that is committed, as it says: at an assignment, or rewound."""

    tp: str
    offset: int
    boot: BootName
    seq: int
    at_ms: int
    tenure: Tenure | None = None


@dataclass(slots=True)
class Unsettled:
    """A flush of which nobody says whether it is committed; all of its TopicPartitions are, or none.

    `generations` are those of the group in which its TopicPartitions were assigned; `needed` and `refuted` are
    TopicPartitions of which later lines say that it is, or is not.
    """

    batch_id: str
    boot: BootName
    seq: int
    at_ms: int
    spans: Spans
    generations: dict[str, int]
    needed: set[str] = field(default_factory=set)
    refuted: set[str] = field(default_factory=set)
