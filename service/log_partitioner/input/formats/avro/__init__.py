"""`avro`: a payload is one value in Avro's binary encoding, by the schema of its writer (docs/INPUTS.md).

A schema becomes closures, one a type. They end on any payload: values count towards the bytes of a record, so that a
few bytes cannot become more JSON than that.
"""

from __future__ import annotations

import json
import struct
from functools import partial
from typing import Any

from log_partitioner.config.settings import InputSettings
from log_partitioner.formats.schema import Schema
from log_partitioner.input.format import Format, Read, SchemaError
from log_partitioner.input.formats.avro.binary import Cursor, malformed
from log_partitioner.input.formats.avro.types import AvroTypes


def avro(rules: InputSettings) -> Format:
    """Take a payload as one value."""
    return Format(read_by=partial(_read_by, rules))


def _read_by(rules: InputSettings, schema: Schema) -> Read:
    types = AvroTypes(rules.json_depth_max)
    try:
        for text in (*(text for _, text in schema.references), schema.text):
            parsed = json.loads(text)
            json.dumps(parsed, ensure_ascii=False).encode()  # names stand in rows
            decode = types.of(parsed, "").decode
    except KeyError as error:
        raise SchemaError(f"a type lacks {error}") from error
    except RecursionError as error:
        raise SchemaError("it nests without end") from error
    except (ValueError, TypeError) as error:
        raise SchemaError(str(error)) from error

    def read(payload: bytes) -> Any:
        cursor = Cursor(payload, rules.record_bytes_max)
        try:
            value = decode(cursor, 1)
        except (IndexError, struct.error) as error:
            raise malformed(f"it ends within a value, after {len(payload)} bytes") from error
        if cursor.at < len(payload):
            raise malformed(f"{len(payload) - cursor.at} bytes follow its value")
        return value

    return read
