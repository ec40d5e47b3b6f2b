"""`ndjson`: a text on each line that is not blank."""

from __future__ import annotations

from log_partitioner.config.settings import InputSettings
from log_partitioner.proof.oracle.format import Format

_WHITESPACE = b" \t\r\n"


def ndjson(_settings: InputSettings) -> Format:
    """Return the rules of `ndjson`."""
    return Format(lines=lambda payload: [line for line in payload.split(b"\n") if line.strip(_WHITESPACE)])
