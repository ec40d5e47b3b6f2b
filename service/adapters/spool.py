"""The local disk of one worker: `<spool directory>/<worker>/`, disposable, wiped at start. Fulfils `ports.Spool`.

    open/<number>.blocks     compressed blocks of a file in the making, without header
    sealed/<number>.avro     finished Avro files, until their flush is committed or discarded

Nothing is synced to disk: after a crash the records are read again (TESTING 1.4). What is read back is verified by
the checksum that goes with the upload.
"""

from __future__ import annotations

import hashlib
import shutil
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import structlog

from service.core.exchange import SealedFile
from service.errors import SpoolError

_MARKER = ".log-partitioner-spool"


class DiskSpool:
    """Files of the open batch on the local disk; `bytes_max` bounds them all."""

    def __init__(self, directory: Path, *, bytes_max: int) -> None:
        self._root = directory
        self._open = directory / "open"
        self._sealed = directory / "sealed"
        self._bytes_max = bytes_max
        self._bytes = 0
        self._log = structlog.get_logger("spool")

    def prepare(self) -> None:
        """Make the directory ours and empty it; only a directory that we marked is ever emptied.

        Raises:
            SpoolError: it holds something that is not ours, or the disk refuses.
        """
        try:
            if self._root.is_symlink() or (self._root.exists() and not self._root.is_dir()):
                raise SpoolError(f"{self._root} is not a directory of its own")
            self._root.mkdir(parents=True, exist_ok=True)
            if any(self._root.iterdir()) and not (self._root / _MARKER).exists():
                raise SpoolError(f"{self._root} holds files that are not a spool's; choose an empty directory")
            (self._root / _MARKER).touch()
        except OSError as error:
            raise SpoolError(f"{self._root}: {error}") from error
        self.clear()

    @property
    def bytes_on_disk(self) -> int:
        """Bytes of all files."""
        return self._bytes

    def append(self, number: int, data: bytes) -> None:
        """Append blocks; opened for each, since one file in thousands is written to at a time.

        Raises:
            SpoolError: the disk refused, or the spool has its most bytes.
        """
        self._take(len(data))
        try:
            with (self._open / f"{number}.blocks").open("ab") as file:
                file.write(data)
        except OSError as error:
            raise SpoolError(f"append of {len(data)} bytes: {error}") from error

    def reader(self, number: int) -> Callable[[int, int], bytes]:
        """Give a function that reads (start, length) of what was appended."""
        path = self._open / f"{number}.blocks"

        def read(start: int, length: int) -> bytes:
            try:
                with path.open("rb") as file:
                    file.seek(start)
                    data = file.read(length)
            except OSError as error:
                raise SpoolError(f"read of {length} bytes: {error}") from error
            if len(data) != length:
                raise SpoolError(f"{path.name} has {len(data)} bytes at {start}, not {length}")
            return data

        return read

    def seal(self, number: int, pieces: Iterator[bytes]) -> SealedFile:
        """Write a finished file and its checksums, computed while writing.

        Raises:
            SpoolError: the disk refused, or the spool has its most bytes.
        """
        path = self._sealed / f"{number}.avro"
        digest, crc32, size = hashlib.sha256(), 0, 0
        try:
            with path.open("xb") as file:
                for piece in pieces:
                    self._take(len(piece))
                    file.write(piece)
                    digest.update(piece)
                    crc32 = zlib.crc32(piece, crc32)
                    size += len(piece)
        except OSError as error:
            raise SpoolError(f"seal of {path.name}: {error}") from error
        return SealedFile(str(path), size, digest.digest(), crc32)

    def load(self, sealed: SealedFile) -> bytes:
        """Read a sealed file back; any thread.

        Raises:
            SpoolError: the disk refused, or holds something else than was written.
        """
        path = Path(sealed.path)
        try:
            data = path.read_bytes()
        except OSError as error:
            raise SpoolError(f"read of {path.name}: {error}") from error
        if len(data) != sealed.size or zlib.crc32(data) != sealed.crc32:
            raise SpoolError(f"{path.name} is not what was written")
        return data

    def clear(self) -> None:
        """Delete all files; what cannot be deleted still counts and is tried again, its name is never used again."""
        left = 0
        for directory in (self._open, self._sealed):
            try:
                shutil.rmtree(directory)
            except FileNotFoundError:
                pass
            except OSError as error:
                self._log.warning("spool_not_cleared", message=str(error))
                left += _bytes_in(directory)
            try:
                directory.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise SpoolError(f"{directory}: {error}") from error
        self._bytes = left

    def _take(self, size: int) -> None:
        self._bytes += size
        if self._bytes > self._bytes_max:
            raise SpoolError(f"W9: {self._bytes} bytes in the spool, the limit is {self._bytes_max}")


def _bytes_in(directory: Path) -> int:
    try:
        return sum(path.stat().st_size for path in directory.iterdir())
    except OSError:
        return 0
