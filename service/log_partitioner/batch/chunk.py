"""Blocks of object files that were written at once, part behind part, and counts of their rows. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from log_partitioner.avro.schema_types import RecordType

CHUNK_BYTES = 1024 * 1024  # of rows are written at once, and what is left of the last part that is in one piece


class Unwritten(NamedTuple):
    """A part to write: rows [begin, end) in the order of sealing, for an object whose schema is that of `written`.

    `hour` and `exact_type` are the numbers by which lines name them. A divisible part may be written in pieces. `own`
    is the part's exact type if the object has fields beside each other.
    """

    begin: int
    end: int
    user: str
    hour: int
    exact_type: int
    written: RecordType
    is_divisible: bool
    own: RecordType | None = None


Source = tuple[int, int, int, int]
"""The number of a TopicPartition, the lowest and the highest offset of its rows, and the number of rows."""


class Blocks(NamedTuple):
    """Blocks of one part, `length` bytes of them, and counts of their rows; the first three are the part's."""

    user: str
    hour: int
    exact_type: int
    length: int
    rows: int
    earliest_us: int
    latest_us: int
    sources: Sequence[Source]


class Chunk(Protocol):
    """Blocks of some parts, one behind the other; a divisible one that stands last may go on in the next."""

    @property
    def data(self) -> bytes:
        """All blocks."""
        ...

    @property
    def rows(self) -> int:
        """How many rows are in them."""
        ...

    def __len__(self) -> int:
        """Return how many parts are in it."""
        ...

    def blocks(self, number: int) -> tuple[str, int, int, int, int, int, int, Sequence[Source]]:
        """Return the fields of `Blocks` of a part."""
        ...

    def fitting(self, first: int, last: int, room: int) -> tuple[int, int]:
        """Take the first of parts [first, last) that fit into `room` bytes: the number behind them, and their bytes."""
        ...

    def rows_of(self, first: int, last: int) -> Iterable[tuple[int, int]]:
        """Count the rows of parts [first, last) by number of their TopicPartition."""
        ...


class PythonChunk:
    """A chunk that Python has written."""

    def __init__(self, data: bytes, parts: Sequence[Blocks]) -> None:
        self.data = data
        self.rows = sum(blocks.rows for blocks in parts)
        self._parts = parts

    def __len__(self) -> int:
        return len(self._parts)

    def blocks(self, number: int) -> Blocks:
        """Return the blocks of a part that are in this chunk."""
        return self._parts[number]

    def fitting(self, first: int, last: int, room: int) -> tuple[int, int]:
        """Take the first of parts [first, last) that fit into `room` bytes: the number behind them, and their bytes."""
        size = 0
        for number in range(first, last):
            if size + self._parts[number].length > room:
                return number, size
            size += self._parts[number].length
        return last, size

    def rows_of(self, first: int, last: int) -> Iterable[tuple[int, int]]:
        """Count the rows of parts [first, last) by number of their TopicPartition."""
        found: Counter[int] = Counter()
        for blocks in self._parts[first:last]:
            for number, _, _, rows in blocks.sources:
                found[number] += rows
        return found.items()


def joined(written: Sequence[Blocks]) -> Blocks:
    """Add up several pieces of one part."""
    if len(written) == 1:
        return written[0]
    sources: dict[int, list[int]] = {}
    for blocks in written:
        for number, low, high, count in blocks.sources:
            if (span := sources.get(number)) is None:
                sources[number] = [low, high, count]
            else:
                span[:] = min(span[0], low), max(span[1], high), span[2] + count
    return written[0]._replace(
        length=sum(blocks.length for blocks in written),
        rows=sum(blocks.rows for blocks in written),
        earliest_us=min(blocks.earliest_us for blocks in written),
        latest_us=max(blocks.latest_us for blocks in written),
        sources=[(number, low, high, count) for number, (low, high, count) in sources.items()],
    )
