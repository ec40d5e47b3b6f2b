"""`log-partitioner verify-logs`: the command's options, its exit code, and its files.

Text before the JSON of a line is ignored, as are lines of other programs.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections import Counter
from contextlib import ExitStack
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from log_partitioner.formats.log_events import EVENTS, LogLine, read_line
from log_partitioner.privacy import describe, veiled
from log_partitioner.proof.accounting import ExitCode
from log_partitioner.proof.verify.account import as_json, as_text, gather
from log_partitioner.proof.verify.history import History, Judgement
from log_partitioner.proof.verify.values import RULED, TimeWindow, ToldLine

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator, Sequence

STANDARD_INPUT = "-"
UNREADABLE = "that cannot be read"
# Beginnings of objects in one line that are tried: the first ones are torn if their process was killed.
_BRACES_MAX = 100
CLOCKS_S = 600.0  # how far clocks of pods are apart, at most


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument(
        "files", nargs="*", metavar="FILE", help="logs of all workers, in any order; - is standard input, as is none"
    )
    parser.add_argument(
        "--since", type=_time, default=-inf, metavar="TIME", help="ISO 8601; nothing before it is judged"
    )
    parser.add_argument("--until", type=_time, default=inf, metavar="TIME", help="ISO 8601; nothing after it is judged")
    parser.add_argument(
        "--clocks",
        type=float,
        default=CLOCKS_S,
        metavar="SECONDS",
        help="how far clocks are apart: so near to --since and --until is not judged what needs others (%(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="write JSON instead of text")


def main(args: argparse.Namespace) -> int:
    """Run the command, print the account, return the exit code: 0 pass, 1 violation, 2 could not tell."""
    window = TimeWindow(args.since, args.until, args.clocks * 1000)
    try:
        with ExitStack() as cleanup:
            files = LogFiles(args.files or [STANDARD_INPUT], sys.stdin.buffer, cleanup)
            judgement = judge(files, window)
            counts = {f"lines {name}": number for name, number in sorted(files.counts.items()) if number}
            evidence = gather(judgement.violations[0], files.read(window)) if judgement.violations else []
    except OSError as error:
        sys.stderr.write(f"could not tell: {error.filename or 'standard input'}: {describe(error)}\n")
        return int(ExitCode.COULD_NOT_TELL)
    sys.stdout.write(veiled((as_json if args.json else as_text)(judgement, evidence, counts)))
    return int(judgement.exit_code)


def judge(files: LogFiles, window: TimeWindow) -> Judgement:
    """Read all lines once, and check them against the rules."""
    history = History(window)
    for line in files.read(window):
        history.add(line)
    return history.judge(unreadable=files.counts[UNREADABLE])


def _time(text: str) -> float:
    """Return milliseconds; a time without zone is UTC."""
    at = datetime.fromisoformat(text)
    return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp() * 1000


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
