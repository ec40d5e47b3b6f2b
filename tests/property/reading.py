"""An entry as a row, read back by another reader."""

from __future__ import annotations

import io
from typing import Any

import fastavro

from log_partitioner.avro.row_encoder import entry_encoder
from log_partitioner.avro.schema import row_schema
from log_partitioner.avro.schema_types import RecordType
from log_partitioner.config.settings import SchemaBounds
from log_partitioner.formats.values import encode_json
from log_partitioner.proof.oracle.equal import canonical
from log_partitioner.proof.oracle.expected_schema import type_of_entry
from log_partitioner.proof.oracle.json_text import Parse, parse_keeping
from log_partitioner.proof.oracle.published_schema import PublishedSchema
from tests.inferred import infer_entry
from tests.property.test_second_opinion import as_oracle, as_parsed
from tests.strategies import decode_again

LIMITS = SchemaBounds()


def assert_reads_back(entry: dict[str, Any], text: bytes, other: dict[str, Any] | None) -> None:
    """Write an entry as a row, read it, and hold values and type to those of the second opinion."""
    kind = infer_entry(entry, LIMITS)
    assert other is not None
    assert as_oracle(kind) == type_of_entry(other, depth_max=LIMITS.depth_max)
    assert read_back(kind, decode_again(text)) == canonical(other) == canonical(as_parsed(entry))
    assert encode_json(entry) == text


def read_back(kind: RecordType, entry: dict[str, Any], parse: Parse = parse_keeping) -> Any:
    """Write an entry as a row of a type, and give what another reader finds by the published schema."""
    published, out = PublishedSchema(row_schema(kind).text, parse), bytearray()
    entry_encoder(kind, kind, LIMITS)(entry, out)
    _, *fields = published.avro["fields"]
    row = fastavro.schemaless_reader(io.BytesIO(out), {**published.avro, "fields": fields}, None)
    return published.restore(row)
