"""`protobuf`: a payload is one message of its writer's schema (docs/INPUTS.md). Needs the optional group `formats`."""

from __future__ import annotations

from functools import lru_cache, partial
from importlib.util import find_spec
from typing import Any

from log_partitioner.config.settings import InputSettings
from log_partitioner.formats.dead_letter import Reason
from log_partitioner.formats.schema import Schema
from log_partitioner.input.format import Format, FormatError, Read, SchemaError
from log_partitioner.input.formats.avro.binary import Cursor, long
from log_partitioner.input.json_text import UndecodableError
from log_partitioner.protoc import compile_schema

_NESTED_MAX = 100


def protobuf(rules: InputSettings) -> Format:
    """Take a payload as one message; in Confluent's framing its place in the schema stands before it.

    Raises:
        FormatError: the optional group is not installed.
    """
    if not all(map(_is_installed, ("google.protobuf", "grpc_tools"))):
        raise FormatError("input.format protobuf needs protobuf, grpcio-tools: pip install 'log-partitioner[formats]'")
    return Format(read_by=partial(_read_by, rules))


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # of what the package is in
        return False


def _read_by(rules: InputSettings, schema: Schema) -> Read:
    from log_partitioner.input.formats.protobuf.messages import MessageReader  # noqa: PLC0415 - an optional package

    try:
        compiled = compile_schema(schema)
        if rules.schema_message is not None or rules.framing == "none":
            compiled.message(name=rules.schema_message)
    except ValueError as error:
        raise SchemaError(str(error)) from error

    @lru_cache(_NESTED_MAX)
    def reader(indexes: tuple[int, ...]) -> Read:
        try:
            message = compiled.message(name=rules.schema_message, indexes=indexes)
        except ValueError as error:
            raise UndecodableError(Reason.MALFORMED, str(error)) from error
        knows_types, limits = compiled.knows_types, (rules.json_depth_max, rules.record_bytes_max)
        return MessageReader(message, *limits, knows_types=knows_types).read

    def read_framed(payload: bytes) -> Any:
        indexes, at = _indexes(payload)
        return reader(indexes)(payload[at:])

    return reader((0,)) if rules.framing == "none" else read_framed


def _indexes(payload: bytes) -> tuple[tuple[int, ...], int]:
    """Read the place of a message in its schema: how many numbers, and these; a zero is the first message."""
    cursor = Cursor(payload, 0)  # Confluent writes these numbers as Avro does
    try:
        count = long(cursor)
        if not 0 <= count <= _NESTED_MAX:
            raise UndecodableError(Reason.MALFORMED, f"a message within {count} others")
        indexes = tuple(long(cursor) for _ in range(count))
    except IndexError as error:
        message = "it ends within the place of its message in the schema"
        raise UndecodableError(Reason.MALFORMED, message) from error
    if any(index < 0 for index in indexes):
        raise UndecodableError(Reason.MALFORMED, f"message {[*indexes]} of its schema")
    return indexes or (0,), cursor.at
