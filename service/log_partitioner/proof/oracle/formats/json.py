"""`json`: the whole payload is one text."""

from __future__ import annotations

from log_partitioner.config.settings import InputSettings
from log_partitioner.proof.oracle.format import Format


def json(_settings: InputSettings) -> Format:
    """Return the rules of `json`."""
    return Format()
