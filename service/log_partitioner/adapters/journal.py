"""One line on the local disk that outlives the process; beside the spool, which is emptied at a start."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from log_partitioner.errors import SpoolError


class DiskJournal:
    """Fulfils `runtime.ports.Journal`; used by the loop thread only."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None

    def read(self) -> bytes:
        """Return the line that was written last, by this process or one before it; empty if there is none.

        Raises:
            SpoolError: the disk refuses.
        """
        try:
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            return os.pread(self._file, os.fstat(self._file).st_size, 0).partition(b"\n")[0]
        except OSError as error:
            raise SpoolError(f"journal: {error}") from error

    def write(self, line: bytes) -> None:
        """Replace the line. It survives a killed process; it survives a machine only if the filesystem had synced it.

        Raises:
            SpoolError: the disk refuses.
        """
        assert self._file is not None, "read first"
        try:
            os.pwrite(self._file, line + b"\n", 0)
        except OSError as error:
            raise SpoolError(f"journal: {error}") from error

    def close(self) -> None:
        """Let go of the file; one with nothing in it is deleted."""
        if self._file is not None:
            file, self._file = self._file, None
            with suppress(OSError):  # at the next start it is as good
                if os.pread(file, 1, 0) in (b"", b"\n"):
                    self._path.unlink()
            os.close(file)
