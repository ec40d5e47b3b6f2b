"""Formats of payloads, one file each; their twins are in `log_partitioner.proof.oracle.formats`.

A format is added by its two files, its entry in the two dicts, and its name in `InputSettings.format`.
"""

from __future__ import annotations

from collections.abc import Callable

from log_partitioner.config.settings import InputSettings
from log_partitioner.input.format import Format
from log_partitioner.input.formats.access_log import access_log
from log_partitioner.input.formats.json import json
from log_partitioner.input.formats.ndjson import ndjson

FORMATS: dict[str, Callable[[InputSettings], Format]] = {
    "json": json,
    "ndjson": ndjson,
    "access-log": access_log,
}


def format_of(rules: InputSettings) -> Format:
    """Return the format that the settings name."""
    return FORMATS[rules.format](rules)
