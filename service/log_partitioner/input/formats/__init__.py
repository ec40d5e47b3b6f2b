"""Formats of payloads, one file or package each; their twins are in `log_partitioner.proof.oracle.formats`.

A format is added by both, its entry in the two dicts, and its name in `InputSettings.format`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from log_partitioner.config.settings import InputSettings, Settings
from log_partitioner.formats.schema import Schema
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
    """Find a schema that nobody gives or asks for, and a file of one that cannot be read, or is none of the format."""
    rules, registry = settings.input, settings.registry.url
    read_by = format_of(rules).read_by
    if read_by is None:
        for name, value in (("input.schema_file", rules.schema_file), ("registry.url", registry)):
            if value is not None:
                yield f"{name} has no effect: input.format {rules.format} has no schemas"
    elif (registry is None) == (rules.schema_file is None):
        yield f"input.format {rules.format} takes its schemas from input.schema_file, or from registry.url: set one"
    elif registry is not None and rules.framing == "none":
        yield "registry.url needs input.framing, which says where records have the ids of schemas"
    elif rules.schema_file is not None:
        try:
            assert rules.schema_text is not None
            read_by(Schema(rules.schema_text))
        except SchemaError as error:
            yield f"input.schema_file ({rules.schema_file}) holds no schema: {error}"
        except (OSError, UnicodeDecodeError) as error:
            yield f"input.schema_file names no file that can be read: {rules.schema_file}: {error}"
