"""The local disk of one worker: `<spool directory>/<worker>/`, disposable, wiped at start. Fulfils `boundary.Spool`.

    .log-partitioner-spool    marks the directory as ours; locked while a worker uses it
    <batch id>/rows           pieces of rows that left memory, each with a checksum
    <batch id>/<n>.avro       finished objects, until their flush is committed or discarded

Nothing is synced to disk: after a crash the records are read again (DESIGN 4.5). Data that is read back is compared
with the checksum taken at its writing.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import structlog

from log_partitioner import native
from log_partitioner.boundary import Piece, SealedFile
from log_partitioner.errors import SpoolError

_MARKER = ".log-partitioner-spool"
_WRITE_BYTES = 64 * 1024  # blocks of few rows are written together


class DiskSpool:
    """The directories of a worker's batches; `bytes_max` bounds them all."""

    def __init__(self, directory: Path, *, bytes_max: int) -> None:
        self._root = directory
        self._bytes_max = bytes_max
        self._lock: BinaryIO | None = None
        self._batches: set[DiskBatch] = set()
        self._left: list[Path] = []
        self._left_bytes = 0
        self._bytes = 0
        self._log = structlog.get_logger("spool")

    def prepare(self) -> None:
        """Make the directory ours and empty it; only a directory with our mark is ever emptied.

        Raises:
            SpoolError: it holds something that is not ours, another process uses it, or the disk refuses.
        """
        with _disk(self._root):
            if self._root.is_symlink() or (self._root.exists() and not self._root.is_dir()):
                raise SpoolError(f"{self._root} is not a directory of its own")
            self._root.mkdir(parents=True, exist_ok=True)
            if any(self._root.iterdir()) and not (self._root / _MARKER).exists():
                raise SpoolError(f"{self._root} holds files that are not a spool's; choose an empty directory")
            self._take_lock()
            self._left = [path for path in self._root.iterdir() if path.name != _MARKER]
        self._clear_left()

    def _take_lock(self) -> None:
        lock = (self._root / _MARKER).open("ab")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            lock.close()
            if isinstance(error, BlockingIOError):
                who = "another worker on this machine has this name, or this spool.directory"
                raise SpoolError(f"{self._root} is in use: {who}") from error
            raise
        self._lock = lock

    def close(self) -> None:
        """Release the directory; files are closed, and stay until the next start."""
        for batch in self._batches:
            batch.close()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    @property
    def bytes_on_disk(self) -> int:
        """Bytes of all files, including those that could not be deleted."""
        return self._bytes

    def open(self, batch_id: str) -> DiskBatch:
        """Make the directory of a batch.

        Raises:
            SpoolError: the disk refuses, or the spool is full of files that cannot be deleted.
        """
        self._clear_left()
        if self._bytes >= self._bytes_max:
            raise SpoolError(f"W9: {self._bytes} bytes in the spool cannot be deleted, the limit is {self._bytes_max}")
        directory = self._root / batch_id
        with _disk(directory):
            directory.mkdir()
        batch = DiskBatch(directory, self)
        self._batches.add(batch)
        return batch

    def reserve(self, size: int) -> None:
        """Reserve bytes that are about to be written.

        Raises:
            SpoolError: the spool has its most bytes.
        """
        if self._bytes + size > self._bytes_max:
            raise SpoolError(f"W9: {self._bytes + size} bytes in the spool, the limit is {self._bytes_max}")
        self._bytes += size

    def delete(self, batch: DiskBatch, directory: Path, size: int) -> None:
        """Delete the directory of a batch; files that cannot be deleted still count, and are tried again."""
        if batch in self._batches:
            self._batches.remove(batch)
            self._bytes -= size
            self._left.append(directory)
        self._clear_left()

    def _clear_left(self) -> None:
        """Delete the remains of earlier batches; files that stay are counted anew."""
        self._bytes -= self._left_bytes
        paths, self._left = self._left, []
        for path in paths:
            try:
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
            except FileNotFoundError:
                continue
            except OSError as error:
                self._log.warning("spool_not_cleared", message=str(error))
                self._left.append(path)
        self._left_bytes = sum(map(_bytes_in, self._left))
        self._bytes += self._left_bytes


class DiskBatch:
    """The directory of one batch; fulfils `boundary.BatchSpool`."""

    def __init__(self, directory: Path, spool: DiskSpool) -> None:
        self._directory = directory
        self._spool = spool
        self._rows: BinaryIO | None = None
        self._files: list[BinaryIO] = []
        self._end = 0
        self._bytes = 0

    def append(self, data: bytes) -> Piece:
        """Append a piece; after a failure the next piece overwrites the part that was written.

        Raises:
            SpoolError: the disk refused, or the spool has its most bytes.
        """
        self.reserve(len(data))
        with _disk(f"append of {len(data)} bytes to {self._directory}"):
            if self._rows is None:
                self._rows = (self._directory / "rows").open("xb+", buffering=0)
            written = 0
            while written < len(data):
                written += os.pwrite(self._rows.fileno(), memoryview(data)[written:], self._end + written)
        piece = Piece(self._end, len(data), native.crc32(data))
        self._end += len(data)
        return piece

    def read(self, piece: Piece) -> bytes:
        """Read a piece back.

        Raises:
            SpoolError: the disk refused, or holds something else than was written.
        """
        assert self._rows is not None, "a piece was appended before"
        try:
            data = os.pread(self._rows.fileno(), piece.length, piece.start)
        except (OSError, ValueError) as error:  # a ValueError: the file is closed
            raise SpoolError(f"read of {piece.length} bytes in {self._directory}: {error}") from error
        if len(data) != piece.length or native.crc32(data) != piece.crc32:
            raise SpoolError(f"{piece.length} bytes at {piece.start} of the spool are not what was written")
        return data

    def create(self, number: int) -> DiskObject:
        """Begin the object of this number.

        Raises:
            SpoolError: the disk refused.
        """
        path = self._directory / f"{number}.avro"
        with _disk(path):
            file = path.open("xb")
        self._files.append(file)
        return DiskObject(path, file, self)

    def load(self, sealed: SealedFile) -> bytes:
        """Read a finished object; any thread.

        Raises:
            SpoolError: the disk refused, or holds something else than was written.
        """
        path = Path(sealed.path)
        with _disk(f"read of {path}"):
            data = path.read_bytes()
        if len(data) != sealed.size or native.crc32(data) != sealed.crc32:
            raise SpoolError(f"{path} is not what was written")
        return data

    def delete(self) -> None:
        """Delete all files of the batch; the next batch tries again to delete those that remain."""
        self.close()
        self._spool.delete(self, self._directory, self._bytes)

    def close(self) -> None:
        """Close all files; nothing is written or read back any more."""
        for file in (*self._files, *filter(None, (self._rows,))):
            with suppress(OSError):  # the buffers are of no use any more
                file.close()

    def reserve(self, size: int) -> None:
        """Reserve bytes that are about to be written.

        Raises:
            SpoolError: the spool has its most bytes.
        """
        self._spool.reserve(size)
        self._bytes += size


class DiskObject:
    """An object while it is written; its checksums are computed meanwhile. Fulfils `boundary.ObjectFile`."""

    def __init__(self, path: Path, file: BinaryIO, batch: DiskBatch) -> None:
        self.size = 0
        self._path = path
        self._file = file
        self._batch = batch
        self._sha256 = hashlib.sha256()
        self._crc32 = 0
        self._waiting = bytearray()

    def write(self, data: bytes) -> None:
        """Append.

        Raises:
            SpoolError: the disk refused, or the spool has its most bytes.
        """
        self._batch.reserve(len(data))
        self.size += len(data)
        self._waiting += data
        if len(self._waiting) >= _WRITE_BYTES:
            self._write()

    def _write(self) -> None:
        with _disk(self._path):
            self._file.write(self._waiting)
        self._sha256.update(self._waiting)
        self._crc32 = native.crc32(self._waiting, self._crc32)
        self._waiting.clear()

    def finish(self) -> SealedFile:
        """Close it.

        Raises:
            SpoolError: the disk refused.
        """
        self._write()
        with _disk(self._path):
            self._file.close()
        return SealedFile(str(self._path), self.size, self._sha256.digest(), self._crc32)


@contextmanager
def _disk(what: object) -> Iterator[None]:
    """Turn a refusal of the disk into a SpoolError."""
    try:
        yield
    except OSError as error:
        raise SpoolError(f"{what}: {error}") from error


def _bytes_in(path: Path) -> int:
    try:
        return sum(one.stat().st_size for one in path.iterdir()) if path.is_dir() else path.stat().st_size
    except OSError:
        return 0


class DiskJournal:
    """Fulfils `boundary.Journal`; used by the loop thread only."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None

    def read(self) -> bytes:
        """Return the line that was written last, by this process or one before it; empty if there is none.

        Raises:
            SpoolError: the disk refuses.
        """
        with _disk("journal"):
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            return os.pread(self._file, os.fstat(self._file).st_size, 0).partition(b"\n")[0]

    def write(self, line: bytes) -> None:
        """Replace the line. It survives a killed process; it survives a machine only if the filesystem had synced it.

        Raises:
            SpoolError: the disk refuses.
        """
        assert self._file is not None, "read first"
        with _disk("journal"):
            os.pwrite(self._file, line + b"\n", 0)

    def close(self) -> None:
        """Let go of the file; one with nothing in it is deleted."""
        if self._file is not None:
            file, self._file = self._file, None
            with suppress(OSError):  # at the next start it is as good
                if os.pread(file, 1, 0) in (b"", b"\n"):
                    self._path.unlink()
            os.close(file)
