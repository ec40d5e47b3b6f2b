"""The texts of a batch's rows, in their order of arrival.

    in memory     texts since the last spill
    on disk       runs: texts in the order in which their rows are sealed, in pieces with a checksum each

Runs are sorted in sealing order, so that each is read once from its beginning to its end. If compiled code seals, it
keeps the texts itself and offers the same methods except `read`.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import NamedTuple

from log_partitioner.boundary import Piece

PIECE_BYTES = 1024 * 1024
TEXT_BYTES = 48  # what a text takes of memory beside its bytes, measured with some room (tests/unit/batch/test_rows.py)


class _Run(NamedTuple):
    """Rows up to `next` on disk, behind those of the run before."""

    next: int
    pieces: list[Piece]


class PythonTexts:
    """Keeps the texts of one batch as they are; rows are numbered as they come."""

    def __init__(self) -> None:
        self.memory_bytes = 0  # what is taken of memory
        self._texts: list[bytes] = []
        self._runs: list[_Run] = []

    def __len__(self) -> int:
        """Return how many texts are in memory: those of the last rows."""
        return len(self._texts)

    def append(self, text: bytes) -> None:
        """Keep the text of the next row."""
        self._texts.append(text)
        self.memory_bytes += len(text) + TEXT_BYTES

    def extend(self, texts: Sequence[bytes]) -> None:
        """Keep the texts of the next rows."""
        self._texts += texts
        self.memory_bytes += sum(map(len, texts)) + TEXT_BYTES * len(texts)

    def spill(self, order: array[int], append: Callable[[bytes], Piece], piece_bytes: int) -> None:
        """Bring the texts in memory to disk; `append` writes one piece. `order` has their rows in the order of sealing.

        Raises:
            SpoolError: the disk refused; all texts are in memory as before.
        """
        first = self._first
        pieces = []
        waiting: list[bytes] = []
        size = 0
        for row in order:
            text = self._texts[row - first]
            if waiting and size + len(text) > piece_bytes:
                pieces.append(append(b"".join(waiting)))
                waiting, size = [], 0
            waiting.append(text)
            size += len(text)
        if waiting:
            pieces.append(append(b"".join(waiting)))
        self._runs.append(_Run(first + len(self._texts), pieces))
        self._texts = []
        self.memory_bytes = 0

    @property
    def _first(self) -> int:
        return self._runs[-1].next if self._runs else 0

    def read(self, order: Iterable[int], sizes: Sequence[int], read: Callable[[Piece], bytes]) -> Iterator[bytes]:
        """Yield all in the order in which rows are sealed; `sizes` are by row. Each run is read once, piece by piece.

        Raises:
            SpoolError: the disk refused, or a piece has other bytes than were written.
        """
        texts, first = self._texts, self._first
        if not self._runs:
            for row in order:
                yield texts[row]
            return
        ends = [run.next for run in self._runs]
        readers = [_take_from(run.pieces, read) for run in self._runs]
        for reader in readers:
            next(reader)
        for row in order:
            if row >= first:
                yield texts[row - first]
            else:
                yield readers[bisect_right(ends, row)].send(sizes[row])


def _take_from(pieces: list[Piece], read: Callable[[Piece], bytes]) -> Generator[bytes, int, None]:
    """Yield as many bytes as are asked for, one text after the other."""
    size = yield b""
    for piece in pieces:
        data, at = read(piece), 0
        while at < len(data):
            text = data[at : at + size]
            at += size
            size = yield text
    raise AssertionError("a run has no more texts")
