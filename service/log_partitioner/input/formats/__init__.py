"""Formats of payloads, one file or package each; their twins are in `log_partitioner.proof.oracle.formats`.

A format is added by both, its entry in the two dicts, and its name in `InputSettings.format`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from log_partitioner.config.settings import InputSettings, Settings
from log_partitioner.formats.schema import Schema
from log_partitioner.input.format import Format, FormatError, Read, SchemaError
from log_partitioner.input.formats.access_log import access_log
from log_partitioner.input.formats.avro import avro
from log_partitioner.input.formats.cri import cri
from log_partitioner.input.formats.json import json
from log_partitioner.input.formats.ndjson import ndjson
from log_partitioner.input.formats.otlp import otlp
from log_partitioner.input.formats.protobuf import protobuf
from log_partitioner.input.formats.syslog import syslog
from log_partitioner.input.formats.text import text

FORMATS: dict[str, Callable[[InputSettings], Format]] = {
    "json": json,
    "ndjson": ndjson,
    "access-log": access_log,
    "syslog": syslog,
    "cri": cri,
    "text": text,
    "avro": avro,
    "protobuf": protobuf,
    "otlp": otlp,
}


def format_of(rules: InputSettings) -> Format:
    """Return the format that the settings name.

    Raises:
        FormatError: it cannot be had, or not by these settings.
    """
    return FORMATS[rules.format](rules)


def find_format_problems(settings: Settings) -> Iterator[str]:
    """Find a package, pattern or schema that a format lacks, a schema that is invalid, and one that no format uses."""
    asked = False
    for place, reading in settings.each_reading():
        try:
            read_by = format_of(reading.input).read_by
        except FormatError as error:
            yield f"{place}{error}"
            asked = True  # it may ask a registry
            continue
        asked |= read_by is not None and reading.input.schema_file is None
        yield from (f"{place}{problem}" for problem in _schema_problems(reading, read_by))
    if settings.registry.url is not None and not asked:
        formats = ", ".join(sorted({reading.input.format for _, reading in settings.each_reading()}))
        yield f"registry.url has no effect: input.format {formats} takes no schema from it"


def _schema_problems(settings: Settings, read_by: Callable[[Schema], Read] | None) -> Iterator[str]:
    rules, registry = settings.input, settings.registry.url
    if read_by is None:
        if rules.schema_file is not None:
            yield f"input.schema_file has no effect: input.format {rules.format} has no schemas"
    elif rules.format == "protobuf" and rules.framing in ("apicurio8", "glue"):
        yield f"input.format protobuf is not read in input.framing {rules.framing}: none and confluent are"
    elif rules.schema_file is not None:
        try:
            assert rules.schema_content is not None
            read_by(Schema(rules.schema_content))
        except SchemaError as error:
            yield f"input.schema_file ({rules.schema_file}) holds no schema: {error}"
        except OSError as error:
            yield f"input.schema_file names no file that can be read: {rules.schema_file}: {error}"
    elif registry is None:
        yield f"input.format {rules.format} takes its schemas from input.schema_file, or from registry.url: set one"
    elif rules.framing in ("none", "glue"):
        yield "registry.url needs input.framing, confluent or apicurio8: it says where records have the ids of schemas"
