"""`ndjson`: a text on each line that is not blank."""

from __future__ import annotations

from log_partitioner.config.settings import InputSettings
from log_partitioner.proof.oracle.format import Format, lines_of


def ndjson(_settings: InputSettings) -> Format:
    """Return the rules of `ndjson`."""
    return Format(lines=lines_of)
