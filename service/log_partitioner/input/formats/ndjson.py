"""`ndjson`: one object per line; blank lines do not count."""

from __future__ import annotations

import re
from collections.abc import Iterator

from log_partitioner.config.settings import InputSettings
from log_partitioner.input.format import Format
from log_partitioner.input.json_text import WHITE

_LINE = re.compile(rb"[^\n]+")


def ndjson(_rules: InputSettings) -> Format:
    """Take each line as a JSON text."""
    return Format(split=_lines, compiled="lines")


def _lines(payload: bytes) -> Iterator[bytes]:
    return (line[0] for line in _LINE.finditer(payload) if line[0].strip(WHITE))
