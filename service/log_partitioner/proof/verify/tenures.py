"""Values of boots and chains: tenures, their runs of commits, flushes, and offsets at which a worker goes on. Pure."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import NamedTuple

from log_partitioner.proof.verify.rules import LinePlace

COMMITTED = "committed"
Spans = dict[str, tuple[int, int]]
"""[first_offset, next_offset) by TopicPartition."""


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
