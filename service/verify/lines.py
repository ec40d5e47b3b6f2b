"""Files and standard input -> lines of workers, in the order in which files begin; can be read twice.

A line costs one pass of the JSON decoder for its head; only events that the rules need are decoded whole. Whatever
stands before the JSON of a line is passed over, as are lines of other programs.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

import msgspec

from service.formats import log_events
from service.formats.log_events import Head, LogEvent
from service.verify.rules import ToldLine

STANDARD_INPUT = "-"
UNREADABLE = "that cannot be read"
RULED: tuple[type[LogEvent], ...] = (
    log_events.WorkerStarted,
    log_events.WorkerStopped,
    log_events.WorkerLeft,
    log_events.WorkerFailed,
    log_events.PartitionsAssigned,
    log_events.PartitionsRevoked,
    log_events.PartitionsLost,
    log_events.Positioned,
    log_events.FlushStarted,
    log_events.ObjectsUploaded,
    log_events.BatchCommitted,
    log_events.BatchDiscarded,
    log_events.CommitRepeated,
    log_events.OffsetGaps,
    log_events.OffsetsSkipped,
)
"""Events that the rules are about."""
_DECODERS = {str(kind.__struct_config__.tag): msgspec.json.Decoder(kind) for kind in RULED}
_HEADS = msgspec.json.Decoder(Head)
_GLUED_MAX = 20  # objects that may stand in one line: the first ones torn, when their processes were killed


class LogFiles:
    """The lines of some files; `counts` are of the last reading."""

    def __init__(self, names: Sequence[str], standard_input: BinaryIO, cleanup: ExitStack) -> None:
        """Take the files in order of their first lines' times; a copy of standard input, to be read again.

        Raises:
            OSError: a file cannot be read.
        """
        self.counts: Counter[str] = Counter()
        opened = [(name, self._open(name, standard_input, cleanup)) for name in names or [STANDARD_INPUT]]
        opened.sort(key=lambda one: _first_at(one[1]))
        self.names = [name for name, _ in opened]
        self._files = [file for _, file in opened]

    @staticmethod
    def _open(name: str, standard_input: BinaryIO, cleanup: ExitStack) -> BinaryIO:
        if name != STANDARD_INPUT:
            return cleanup.enter_context(Path(name).open("rb"))
        copy: BinaryIO = cleanup.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - `cleanup` closes it
        shutil.copyfileobj(standard_input, copy)
        return copy

    def read(self, *, since_ms: float | None = None, until_ms: float | None = None) -> Iterator[ToldLine]:
        """Yield all lines of workers from their beginning, or those of [since, until]."""
        self.counts.clear()
        for index, file in enumerate(self._files):
            file.seek(0)
            for number, raw in enumerate(file, 1):
                head, event = self._decode(raw)
                if head is None:
                    continue
                at_ms = int(head.ts.timestamp() * 1000)
                if (since_ms is not None and at_ms < since_ms) or (until_ms is not None and at_ms > until_ms):
                    self.counts["outside the time asked for"] += 1
                    continue
                self.counts["of workers"] += 1
                yield ToldLine(head, at_ms, event, index, number)

    def _decode(self, raw: bytes) -> tuple[Head | None, LogEvent | None]:
        start = raw.find(b"{")
        if start < 0:
            self.counts["of other programs"] += 1
            return None, None
        text = memoryview(raw)[start:]
        try:
            head = _HEADS.decode(text)
        except msgspec.DecodeError:
            found = _glued(raw, start)
            self.counts["torn, or of other programs"] += 1
            if found is None:
                return None, None
            head, text = found
        decoder = _DECODERS.get(head.event)
        if decoder is None:
            return head, None
        try:
            return head, decoder.decode(text)
        except msgspec.DecodeError:
            self.counts[UNREADABLE] += 1
            return head, None


def _glued(raw: bytes, start: int) -> tuple[Head, memoryview] | None:
    """Find the whole line behind one that was torn when its process was killed, without a line's end."""
    for _ in range(_GLUED_MAX):
        start = raw.find(b'{"', start + 1)
        if start < 0:
            return None
        text = memoryview(raw)[start:]
        try:
            return _HEADS.decode(text), text
        except msgspec.DecodeError:
            continue
    return None


def _first_at(file: Iterable[bytes]) -> float:
    """Return when the first line of a worker was written, by its clock."""
    for raw in file:
        start = raw.find(b"{")
        try:
            return _HEADS.decode(memoryview(raw)[max(0, start) :]).ts.timestamp()
        except msgspec.DecodeError:
            continue
    return 0.0
