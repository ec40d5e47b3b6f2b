"""`ndjson`: one object per line; blank lines do not count."""

from __future__ import annotations

from log_partitioner.config.settings import InputSettings
from log_partitioner.input.format import Format, lines_of


def ndjson(_rules: InputSettings) -> Format:
    """Take each line as a JSON text."""
    return Format(split=lines_of, compiled="lines")
