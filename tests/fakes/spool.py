"""A spool in memory whose disk refuses when a script says so."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Iterator

from service.core.exchange import SealedFile
from service.errors import SpoolError
from tests.fakes.consumer import Point, no_point


class FakeSpool:
    """Fulfils `runtime.ports.Spool`; `refuses(operation)` tells whether the disk fails now."""

    def __init__(self, *, bytes_max: int = 2**40, point: Point = no_point) -> None:
        self.refuses: Callable[[str], bool] = lambda _operation: False
        self.open: dict[int, bytearray] = {}
        self.sealed: dict[str, bytes] = {}
        self.clears = 0
        self._bytes = 0
        self._bytes_max = bytes_max
        self._point = point

    @property
    def bytes_on_disk(self) -> int:
        """Bytes of all files."""
        return self._bytes

    def append(self, number: int, data: bytes) -> None:
        """Append, or fail in the middle as a full disk does."""
        self._point("append")
        self._take(len(data))
        torn = self.refuses("append")
        self.open.setdefault(number, bytearray()).extend(data[: len(data) // 2] if torn else data)
        if torn:
            raise SpoolError("append: no space left on device")

    def reader(self, number: int) -> Callable[[int, int], bytes]:
        """Give a function that reads (start, length)."""

        def read(start: int, length: int) -> bytes:
            data = bytes(self.open.get(number, b"")[start : start + length])
            if len(data) != length or self.refuses("read"):
                raise SpoolError(f"file {number} has {len(data)} bytes at {start}, not {length}")
            return data

        return read

    def seal(self, number: int, pieces: Iterator[bytes]) -> SealedFile:
        """Write a finished file."""
        self._point("seal")
        name = f"{number}.avro"
        if name in self.sealed or self.refuses("seal"):
            raise SpoolError(f"seal of {name}: refused")
        data = b"".join(pieces)
        self._take(len(data))
        self.sealed[name] = data
        return SealedFile(name, len(data), hashlib.sha256(data).digest(), zlib.crc32(data))

    def load(self, sealed: SealedFile) -> bytes:
        """Read a sealed file back."""
        data = self.sealed.get(sealed.path)
        if data is None or self.refuses("load") or len(data) != sealed.size or zlib.crc32(data) != sealed.crc32:
            raise SpoolError(f"{sealed.path} is not what was written")
        return data

    def clear(self) -> None:
        """Delete everything."""
        self.clears += 1
        self.open.clear()
        self.sealed.clear()
        self._bytes = 0

    def _take(self, size: int) -> None:
        self._bytes += size
        if self._bytes > self._bytes_max:
            raise SpoolError(f"W9: {self._bytes} bytes in the spool, the limit is {self._bytes_max}")
