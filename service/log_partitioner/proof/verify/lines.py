"""Files and standard input -> lines of workers, in the order in which files begin; can be read twice.

Text before the JSON of a line is ignored, as are lines of other programs.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

from log_partitioner.formats.log_events import EVENTS, LogLine, read_line
from log_partitioner.proof.verify.rules import RULED, TimeWindow, ToldLine

STANDARD_INPUT = "-"
UNREADABLE = "that cannot be read"
_BRACES_MAX = (
    100  # beginnings of objects in one line that are tried: the first ones are torn if their process was killed
)


class LogFiles:
    """The lines of some files; `counts` are of the last reading."""

    def __init__(self, names: Sequence[str], standard_input: BinaryIO, cleanup: ExitStack) -> None:
        """Take the files in order of their first lines' times; a copy of standard input, to be read again.

        Raises:
            OSError: a file cannot be read.
        """
        self.counts: Counter[str] = Counter()
        opened = [(name, self._open(name, standard_input, cleanup)) for name in names or [STANDARD_INPUT]]
        self._files = sorted(opened, key=lambda one: _first_at(one[1]))

    @staticmethod
    def _open(name: str, standard_input: BinaryIO, cleanup: ExitStack) -> BinaryIO:
        if name != STANDARD_INPUT:
            return cleanup.enter_context(Path(name).open("rb"))
        copy: BinaryIO = cleanup.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - `cleanup` closes it
        shutil.copyfileobj(standard_input, copy)
        return copy

    def read(self, window: TimeWindow) -> Iterator[ToldLine]:
        """Yield the lines of workers in this time, from the beginning of the files."""
        self.counts.clear()
        for name, file in self._files:
            file.seek(0)
            for number, raw in enumerate(file, 1):
                if (line := _parse(raw)) is None:
                    self.counts["of other programs, or torn"] += 1
                    continue
                at_ms = int(line.head.ts.timestamp() * 1000)
                if not window.has(at_ms):
                    self.counts["outside the time asked for"] += 1
                    continue
                if line.event is None and EVENTS.get(line.head.event) in RULED:
                    self.counts[UNREADABLE] += 1
                    continue
                self.counts["of workers"] += 1
                yield ToldLine(line.head, at_ms, line.event if type(line.event) in RULED else None, name, number)


def _parse(raw: bytes) -> LogLine | None:
    """Parse a line; behind one that was torn when its process was killed the next one may stand, whole."""
    start = raw.find(b"{")
    for _ in range(_BRACES_MAX):
        if start < 0:
            return None
        if (line := read_line(raw[start:])) is not None:
            return line
        start = raw.find(b'{"', start + 1)
    return None


def _first_at(file: Iterable[bytes]) -> float:
    """Return when the first line of a worker was written, by its clock."""
    return next((line.head.ts.timestamp() for line in map(_parse, file) if line is not None), 0.0)
