"""`csv`: a line is user, time and id."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from log_partitioner.config.settings import InputSettings
from log_partitioner.formats.dead_letter import Reason
from log_partitioner.input.format import Format
from log_partitioner.input.formats import FORMATS
from log_partitioner.input.json_text import UndecodableError

NAMES = ("user", "time", "id")


def csv(_rules: InputSettings) -> Format:
    """Take each line that is not empty as an entry."""
    return Format(split=_lines, read=_entry)


def _lines(payload: bytes) -> Iterator[bytes]:
    return filter(None, payload.split(b"\n"))


def _entry(line: bytes) -> Any:
    try:
        values = line.decode().split(",")
    except UnicodeDecodeError as error:
        raise UndecodableError(Reason.INVALID_UNICODE, str(error)) from error
    if len(values) != len(NAMES):
        raise UndecodableError(Reason.MALFORMED, f"{len(values)} values, not {len(NAMES)}")
    return dict(zip(NAMES, values, strict=True))


FORMATS["csv"] = csv
