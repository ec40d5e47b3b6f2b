"""`json`: an object is one entry, an array several."""

from __future__ import annotations

from log_partitioner.config.settings import InputSettings
from log_partitioner.input.format import Format


def json(_rules: InputSettings) -> Format:
    """Take a payload as one JSON text."""
    return Format(compiled="document")
