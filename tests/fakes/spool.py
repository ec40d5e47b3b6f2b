"""A spool in memory whose disk refuses when a script says so."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable

from log_partitioner.boundary import Piece, SealedFile
from log_partitioner.errors import SpoolError
from tests.fakes.consumer import Point, no_point


class FakeSpool:
    """Fulfils `boundary.Spool`; `refuses(operation)` tells whether the disk fails now.

    Operations are open, append, read, create, write, finish and load.
    """

    def __init__(self, *, bytes_max: int = 2**40, point: Point = no_point) -> None:
        self.refuses: Callable[[str], bool] = lambda _operation: False
        self.batches: dict[str, FakeBatchSpool] = {}
        self.bytes_on_disk = 0
        self._bytes_max = bytes_max
        self._point = point

    def open(self, batch_id: str) -> FakeBatchSpool:
        """Make the directory of a batch."""
        self.ask("open")
        if batch_id in self.batches or self.bytes_on_disk >= self._bytes_max:
            raise SpoolError(f"W9: {self.bytes_on_disk} bytes in the spool, and the directories {[*self.batches]}")
        batch = self.batches[batch_id] = FakeBatchSpool(batch_id, self)
        return batch

    def ask(self, operation: str) -> None:
        """Fail if the script says so."""
        self._point(operation)
        if self.refuses(operation):
            raise SpoolError(f"{operation}: no space left on device")

    def reserve(self, size: int) -> None:
        """Count bytes that are about to be written."""
        if self.bytes_on_disk + size > self._bytes_max:
            raise SpoolError(f"W9: {self.bytes_on_disk + size} bytes in the spool, the limit is {self._bytes_max}")
        self.bytes_on_disk += size


class FakeBatchSpool:
    """The directory of one batch; fulfils `boundary.BatchSpool`."""

    def __init__(self, batch_id: str, spool: FakeSpool) -> None:
        self.rows = bytearray()
        self.objects: dict[str, FakeObject] = {}
        self._batch_id = batch_id
        self._spool = spool
        self._bytes = 0

    def append(self, data: bytes) -> Piece:
        """Append a piece, or fail in the middle as a full disk does."""
        self.reserve(len(data))
        try:
            self._spool.ask("append")
        except SpoolError:
            self.rows += data[: len(data) // 2]
            raise
        self.rows += data
        return Piece(len(self.rows) - len(data), len(data), zlib.crc32(data))

    def read(self, piece: Piece) -> bytes:
        """Read a piece back."""
        self._spool.ask("read")
        data = bytes(self.rows[piece.start : piece.start + piece.length])
        if len(data) != piece.length or zlib.crc32(data) != piece.crc32:
            raise SpoolError(f"{piece.length} bytes at {piece.start} are not what was written")
        return data

    def create(self, number: int) -> FakeObject:
        """Begin the object of this number."""
        self._spool.ask("create")
        name = f"{self._batch_id}/{number}.avro"
        if name in self.objects:
            raise SpoolError(f"{name} exists")
        made = self.objects[name] = FakeObject(name, self, self._spool)
        return made

    def load(self, sealed: SealedFile) -> bytes:
        """Read a finished object."""
        self._spool.ask("load")
        found = self.objects.get(sealed.path)
        data = bytes(found.data) if found else b""
        if found is None or len(data) != sealed.size or zlib.crc32(data) != sealed.crc32:
            raise SpoolError(f"{sealed.path} is not what was written")
        return data

    def delete(self) -> None:
        """Delete everything of the batch."""
        self._spool.batches.pop(self._batch_id, None)
        self._spool.bytes_on_disk -= self._bytes
        self._bytes = 0
        self.rows.clear()
        self.objects.clear()

    def reserve(self, size: int) -> None:
        """Count bytes that are about to be written."""
        self._spool.reserve(size)
        self._bytes += size


class FakeObject:
    """An object while it is written; fulfils `boundary.ObjectFile`."""

    def __init__(self, name: str, batch: FakeBatchSpool, spool: FakeSpool) -> None:
        self.data = bytearray()
        self._name = name
        self._batch = batch
        self._spool = spool

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return len(self.data)

    def write(self, data: bytes) -> None:
        """Append."""
        self._batch.reserve(len(data))
        self._spool.ask("write")
        self.data += data

    def finish(self) -> SealedFile:
        """Close it."""
        self._spool.ask("finish")
        data = bytes(self.data)
        return SealedFile(self._name, len(data), hashlib.sha256(data).digest(), zlib.crc32(data))
