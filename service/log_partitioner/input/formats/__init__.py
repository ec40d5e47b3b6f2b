"""Formats of payloads, one file or package each; their twins are in `log_partitioner.proof.oracle.formats`.

A format is added by both, its entry in the two dicts, and its name in `InputSettings.format`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from log_partitioner.config.settings import InputSettings, Settings
from log_partitioner.input.format import Format, SchemaError
from log_partitioner.input.formats.access_log import access_log
from log_partitioner.input.formats.avro import avro
from log_partitioner.input.formats.json import json
from log_partitioner.input.formats.ndjson import ndjson

FORMATS: dict[str, Callable[[InputSettings], Format]] = {
    "json": json,
    "ndjson": ndjson,
    "access-log": access_log,
    "avro": avro,
}


def format_of(rules: InputSettings) -> Format:
    """Return the format that the settings name."""
    return FORMATS[rules.format](rules)


def find_problems(settings: Settings) -> Iterator[str]:
    """Find a schema file that cannot be read, or is no schema of the format."""
    rules = settings.input
    read_by = format_of(rules).read_by
    if (read_by is None) != (rules.schema_file is None):
        yield f"input.schema_file {'is of input.format avro' if read_by is None else 'is needed by input.format avro'}"
    elif read_by is not None:
        try:
            read_by(rules.schema_text)
        except SchemaError as error:
            yield f"input.schema_file ({rules.schema_file}) holds no schema: {error}"
        except (OSError, UnicodeDecodeError) as error:
            yield f"input.schema_file names no file that can be read: {rules.schema_file}: {error}"
