"""Replay of log files: `.ndjson`, `.log` or any lines, plain, `.gz` or `.zst`, read as they are needed.

Lines are taken as they are, never parsed: the topic gets the file's content unchanged.
"""

import gzip
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import IO, cast

from log_partitioner import zstd
from tools.demo.flaws import join
from tools.demo.generate import GeneratedRecord


def replay(paths: Iterable[Path], *, entries_per_record: int = 1) -> Iterator[GeneratedRecord]:
    """Yield the lines of the files in order; several lines make one record, a JSON array of them.

    Record timestamps are the wall clock's. A record never spans two files.
    """
    for path in paths:
        lines = read_lines(path)
        while chunk := list(islice(lines, entries_per_record)):
            value = chunk[0] if entries_per_record == 1 else join(chunk)
            yield GeneratedRecord(None, value, (), time.time_ns() // 1_000_000, entries=len(chunk))


def take_entries(records: Iterable[GeneratedRecord], entries: int) -> Iterator[GeneratedRecord]:
    """Yield records until they have `entries` entries."""
    taken = 0
    for record in records:
        if taken >= entries:
            return
        taken += record.entries
        yield record


def read_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file without their ends; blank ones are left out."""
    with _open(path) as lines:
        for line in lines:
            if text := line.rstrip(b"\r\n"):
                yield text


def _open(path: Path) -> IO[bytes]:
    match path.suffix:
        case ".zst":
            # A file object in all but its declared base class.
            return cast("IO[bytes]", zstd.open_file(path, "rb", options=zstd.WINDOW_LOG_MAX))
        case ".gz":
            return cast("IO[bytes]", gzip.open(path, "rb"))
        case _:
            return path.open("rb")
