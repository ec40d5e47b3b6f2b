"""`cri`, word by word."""

from __future__ import annotations

from log_partitioner.config.settings import InputSettings
from log_partitioner.formats.dead_letter import Reason
from log_partitioner.proof.oracle.format import DeadError, Format, lines_of, text_of_line

_NAMES = ("time", "stream", "tag", "message")


def cri(_settings: InputSettings) -> Format:
    """Return the rules of `cri`."""
    return Format(lines=lines_of, parse=_entry)


def _entry(line: bytes) -> object:
    entry = dict(zip(_NAMES, text_of_line(line).split(" ", len(_NAMES) - 1), strict=False))
    is_whole = entry["time"] and entry.get("stream") in ("stdout", "stderr")
    if not is_whole or entry.get("tag", "").split(":")[0] not in ("F", "P"):
        raise DeadError(Reason.MALFORMED)
    return entry
