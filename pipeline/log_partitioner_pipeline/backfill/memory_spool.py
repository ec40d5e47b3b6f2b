"""The objects of some rows, in memory until they are uploaded. Fulfils `boundary.BatchSpool`."""

from __future__ import annotations

import hashlib
import zlib

from log_partitioner.boundary import Piece, SealedFile


class MemorySpool:
    """One batch in memory; it is as large as the bytes written to it."""

    def __init__(self) -> None:
        self._pieces = bytearray()
        self._objects: dict[str, bytes] = {}

    def append(self, data: bytes) -> Piece:
        """Append a piece."""
        piece = Piece(len(self._pieces), len(data), zlib.crc32(data))
        self._pieces += data
        return piece

    def read(self, piece: Piece) -> bytes:
        """Read a piece back."""
        return bytes(self._pieces[piece.start : piece.start + piece.length])

    def create(self, number: int) -> MemoryObject:
        """Begin the object of this number."""
        return MemoryObject(str(number), self._objects)

    def load(self, sealed: SealedFile) -> bytes:
        """Read a finished object; any thread."""
        return self._objects[sealed.path]

    def delete(self) -> None:
        """Delete everything."""
        self._pieces.clear()
        self._objects.clear()


class MemoryObject:
    """An object while it is written. Fulfils `boundary.ObjectFile`."""

    def __init__(self, path: str, objects: dict[str, bytes]) -> None:
        self._path = path
        self._objects = objects
        self._data = bytearray()

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return len(self._data)

    def write(self, data: bytes) -> None:
        """Append."""
        self._data += data

    def finish(self) -> SealedFile:
        """Keep it."""
        body = self._objects[self._path] = bytes(self._data)
        return SealedFile(self._path, len(body), hashlib.sha256(body).digest(), zlib.crc32(body))
