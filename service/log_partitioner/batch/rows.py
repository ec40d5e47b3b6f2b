"""The rows of a batch as columns of numbers, and their entries as JSON text: no schema is decided here.

    per row       PartitionKey, type, TopicPartition (each by number) · offset · index · event time · timestamp · text

A row is kept as the text of its entry, from which any schema can be written; sealing decodes and writes each row once.
Pure but for the spool.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from log_partitioner import native
from log_partitioner.avro.row_meta import readable_timestamp
from log_partitioner.avro.schema_types import RecordType
from log_partitioner.batch.types import CompiledTypes, Types
from log_partitioner.boundary import Piece
from log_partitioner.formats.model import PartitionKey, RootLink, SourceRecord, TopicPartition

if TYPE_CHECKING:
    import log_partitioner_native

PIECE_BYTES = 1024 * 1024
TEXT_BYTES = 48  # of memory for a text beside its bytes, measured with some room (tests/unit/batch/test_rows.py)


class _Run(NamedTuple):
    """Rows up to `next` on disk, behind those of the run before."""

    next: int
    pieces: list[Piece]


class PythonTexts:
    """Keeps the texts of one batch as they are; rows are numbered as they come."""

    def __init__(self) -> None:
        self.memory_bytes = 0
        self._texts: list[bytes] = []
        self._runs: list[_Run] = []

    def __len__(self) -> int:
        """Return the number of texts in memory: the last rows have them."""
        return len(self._texts)

    def append(self, text: bytes) -> None:
        """Keep the text of the next row."""
        self._texts.append(text)
        self.memory_bytes += len(text) + TEXT_BYTES

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


# Bytes of memory beside the texts, measured with some room (tests/unit/batch/test_rows.py).
ROW_BYTES = 100
KEY_BYTES = 500  # beside each character of its user: one that JSON writes as it is, or any other
PLAIN_CHAR_BYTES, CHAR_BYTES = 3, 16


class Rows:
    """Collects the rows of one batch; numbers count from 0 in order of arrival.

    If compiled code has the types, it keeps the texts and seals the rows, too.
    """

    def __init__(self, types: Types, number_of: Callable[[PartitionKey, int], int] | None = None) -> None:
        """Begin without rows; `number_of` numbers PartitionKeys: it gets a key, and the number for it if it is new."""
        self.types = types
        self.is_fast = isinstance(types, CompiledTypes)
        self.texts: PythonTexts | log_partitioner_native.Texts = PythonTexts()
        if self.is_fast:
            assert native.module is not None, "the fast lane is not installed"
            self.texts = native.module.Texts()
        self._number_of = number_of or dict[PartitionKey, int]().setdefault
        self._types_bytes = types.memory_bytes
        self.keys: list[PartitionKey] = []
        self.tps: list[TopicPartition] = []
        self.key_of = array("I")
        self.type_of = array("I")
        self.tp_of = array("I")
        self.offsets = array("q")
        self.indexes = array("I")
        self.event_times_us = array("q")
        self.timestamps_ms = array("q")
        self.text_sizes = array("I")
        self.ids: dict[int, str] = {}
        self.roots: dict[int, RootLink] = {}
        self.text_bytes = 0
        self._fixed_bytes = 0
        self._keys_by_hour: dict[tuple[str, int], array[int]] = {}
        self.tp_numbers: dict[TopicPartition, int] = {}

    def __len__(self) -> int:
        return len(self.offsets)

    def add(
        self,
        record: SourceRecord,
        index: int,
        key: PartitionKey,
        entry_type: RecordType,
        text: bytes,
        event_time_us: int,
    ) -> int:
        """Add one row; returns its number."""
        number = len(self.offsets)
        self.key_of.append(self._key_number(key))
        self.type_of.append(self.types.number(entry_type))
        self.tp_of.append(self._tp_number(record.tp))
        self.offsets.append(record.offset)
        self.indexes.append(index)
        self.event_times_us.append(event_time_us)
        self.timestamps_ms.append(readable_timestamp(record.timestamp_ms))
        self.text_sizes.append(len(text))
        self.texts.append(text)
        self.text_bytes += len(text)
        self._fixed_bytes += ROW_BYTES
        return number

    def extend(
        self, columns: log_partitioner_native.Taken, tps: Iterable[TopicPartition], keys: Iterable[PartitionKey]
    ) -> None:
        """Add the rows that the fast lane has made, whose texts it has kept; `tps` and `keys` are new."""
        first = len(self.offsets)
        for tp in tps:
            self._tp_number(tp)
        for key in keys:
            self._add_key(key)
        self.key_of.frombytes(columns.key_of)
        self.type_of.frombytes(columns.type_of)
        self.tp_of.frombytes(columns.tp_of)
        self.offsets.frombytes(columns.offsets)
        self.indexes.frombytes(columns.indexes)
        self.event_times_us.frombytes(columns.event_times_us)
        self.timestamps_ms.frombytes(columns.timestamps_ms)
        self.text_sizes.frombytes(columns.text_sizes)
        self.text_bytes += columns.text_bytes
        self._fixed_bytes += ROW_BYTES * columns.entries
        for row, unique_id in columns.ids:
            self.note(first + row, unique_id=unique_id, root=None)

    @property
    def memory_bytes(self) -> int:
        """Bytes of memory that the texts take; `spill` frees them."""
        return self.texts.memory_bytes

    @property
    def fixed_bytes(self) -> int:
        """Bytes of memory that everything else takes, types that were unknown when it began among them."""
        return self._fixed_bytes + self.types.memory_bytes - self._types_bytes

    def _tp_number(self, tp: TopicPartition) -> int:
        number = self.tp_numbers.get(tp)
        if number is None:
            number = self.tp_numbers[tp] = len(self.tps)
            self.tps.append(tp)
        return number

    def _key_number(self, key: PartitionKey) -> int:
        following = len(self.keys)
        number = self._number_of(key, following)
        if number == following:
            self._add_key(key)
        return number

    def _add_key(self, key: PartitionKey) -> None:
        number = len(self.keys)
        self.keys.append(key)
        hour = key.date, key.hour
        if hour not in self._keys_by_hour:
            self._keys_by_hour[hour] = array("I")
        self._keys_by_hour[hour].append(number)
        is_plain = key.user.isascii() and key.user.isprintable()
        self._fixed_bytes += KEY_BYTES + len(key.user) * (PLAIN_CHAR_BYTES if is_plain else CHAR_BYTES)

    def note(self, number: int, *, unique_id: str | None, root: RootLink | None) -> None:
        """Keep the id and the root of a row; few rows have them."""
        if unique_id is not None:
            self.ids[number] = unique_id
            self._fixed_bytes += ROW_BYTES + len(unique_id)
        if root is not None:
            self.roots[number] = root
            self._fixed_bytes += 4 * ROW_BYTES + CHAR_BYTES * len(root.topic) // 4

    def in_order(self, first: int = 0) -> array[int]:
        """Return the numbers of the rows from `first` on as they are sealed: by date, hour, PartitionKey, arrival."""
        if self.is_fast:
            ranked = array("I")
            for hour in sorted(self._keys_by_hour):
                ranked += self._keys_by_hour[hour]
            assert native.module is not None, "the fast lane is not installed"
            return array("I", native.module.in_order(self.key_of, first, ranked))
        key_of = self.key_of[first:]
        places = array("I", bytes(4 * len(self.keys)))
        for key in key_of:
            places[key] += 1
        at = 0
        for hour in sorted(self._keys_by_hour):
            for key in self._keys_by_hour[hour]:
                places[key], at = at, at + places[key]
        order = array("I", bytes(4 * len(key_of)))
        for row, key in enumerate(key_of, first):
            order[places[key]] = row
            places[key] += 1
        return order

    def spill(self, append: Callable[[bytes], Piece]) -> None:
        """Bring the texts in memory to disk; `append` writes one piece.

        Raises:
            SpoolError: the disk refused; the rows are whole and in memory as before.
        """
        first = len(self) - len(self.texts)
        self.texts.spill(self.in_order(first), append, PIECE_BYTES)
