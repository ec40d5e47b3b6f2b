"""Rows as bytes, against inference and fastavro."""

from __future__ import annotations

import io
import json
import re
from typing import Any

import fastavro
from hypothesis import given
from hypothesis import strategies as st

from log_partitioner.avro.binary import encode_string
from log_partitioner.avro.infer import TooDeepError
from log_partitioner.avro.row_encoder import SchemaMismatch, entry_encoder
from log_partitioner.avro.row_meta import encode_id, encode_meta, encode_origin, encode_root
from log_partitioner.avro.schema import row_schema
from log_partitioner.avro.schema_types import ArrayType, MapType, RecordType, Scalar, Type, join_records
from log_partitioner.formats.model import RootLink, TopicPartition
from log_partitioner.formats.values import Bytes, Date, Decimal, DeclaredMap, Timestamp, encode_json
from tests.inferred import infer_entry
from tests.property.avro_reading import entry_fields, to_datum
from tests.strategies import LIMITS, decode_again, entries_near, entry_types, texts, times_as_many

META: dict[str, Any] = {
    "user": "ann", "event_time": 1_714_557_600_000_000, "id": None, "topic": "app", "partition": 3, "offset": 2**40,
    "index": 7, "timestamp": -1, "root": None,
}  # fmt: skip
META_BYTES = encode_meta(
    user=encode_string("ann"),
    event_time_us=1_714_557_600_000_000,
    unique_id=encode_id(None),
    origin=encode_origin(TopicPartition("app", 3)),
    offset=2**40,
    index=7,
    timestamp_ms=-1,
    root=encode_root(None),
)
types_and_entries = entry_types().flatmap(lambda kind: st.tuples(st.just(kind), entries_near(kind)))
Outcome = tuple[str, bytes]


def outcome(encode: Any, entry: dict[str, Any]) -> Outcome:
    """Encode, and say what came of it."""
    out = bytearray(b"before")
    try:
        encode(entry, out)
    except (SchemaMismatch, TooDeepError) as refused:
        return type(refused).__name__, b""
    assert out.startswith(b"before")
    return "encoded", bytes(out[6:])


def encoded(kind: RecordType, entry: dict[str, Any]) -> Outcome:
    """Encode what the text of a row holds, under the type itself."""
    return outcome(entry_encoder(kind, kind, LIMITS), decode_again(encode_json(entry)))


def declared(kind: Type | None, value: Any) -> Any:
    """Declare a value of a text what its type takes it for, if it may be that."""
    if type(value) is list and isinstance(kind, ArrayType):
        return [declared(kind.item, item) for item in value]
    if type(value) is dict and isinstance(kind, MapType):
        return DeclaredMap({name: declared(kind.value, item) for name, item in value.items()})
    if type(value) is dict and isinstance(kind, RecordType):
        return {name: declared(kind.by_name.get(name), item) for name, item in value.items()}
    if type(value) is str and isinstance(kind, Scalar) and kind in FORMS:
        declare, form = FORMS[kind]
        return declare(value) if re.fullmatch(form, value, re.ASCII) else value
    return value


_DAY = r"(?!0000)\d{4}-\d\d-\d\d"
FORMS: dict[Scalar, tuple[Any, str]] = {
    Scalar.BYTES: (Bytes, r"([a-zA-Z\d+/]{4})*([a-zA-Z\d+/][AQgw]==|[a-zA-Z\d+/]{2}[AEIMQUYcgkosw048]=)?"),
    Scalar.DECIMAL: (Decimal, r"-?\d+(\.\d+)?([eE][+-]?\d+)?"),
    Scalar.TIMESTAMP: (Timestamp, _DAY + r"T\d\d:\d\d:\d\d\.\d{6}Z"),
    Scalar.DATE: (Date, _DAY),
}


@times_as_many(3)
@given(types_and_entries)
def test_encoder_accepts_exactly_the_entries_its_type_holds(drawn: tuple[RecordType, dict[str, Any]]) -> None:
    """An entry is encoded if and only if joining its type would change nothing: the steady state needs no inference."""
    kind, entry = drawn
    try:
        inferred = infer_entry(declared(kind, decode_again(encode_json(entry))), LIMITS)
    except TooDeepError:
        assert encoded(kind, entry)[0] != "encoded"
        return
    held = join_records(kind, inferred, object_keys_max=LIMITS.object_keys_max) is kind
    assert encoded(kind, entry)[0] == ("encoded" if held else "SchemaMismatch")


@given(types_and_entries)
def test_encoded_row_is_what_fastavro_writes(drawn: tuple[RecordType, dict[str, Any]]) -> None:
    """Byte for byte: fastavro with the published schema writes the same row."""
    kind, entry = drawn
    said, data = encoded(kind, entry)
    if said != "encoded":
        return
    schema = json.loads(row_schema(kind).text)
    expected = io.BytesIO()
    fastavro.schemaless_writer(expected, schema, {"_meta": META, **to_datum(entry_fields(schema), entry)})
    assert META_BYTES + data == expected.getvalue()


@given(
    user=texts, time=st.integers(-(2**55), 2**55), unique_id=st.none() | texts, topic=texts,
    numbers=st.tuples(st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1), st.integers(0, 2**31 - 1)),
    timestamp=st.integers(-1, 2**50),
    root=st.none() | st.builds(
        RootLink, texts, st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1), st.none() | st.integers(0, 2**31 - 1)
    ),
)  # fmt: skip
def test_meta_bytes_are_what_fastavro_reads(
    user: str, time: int, unique_id: str | None, topic: str, numbers: tuple[int, int, int], timestamp: int,
    root: RootLink | None,
) -> None:  # fmt: skip
    """`_meta` says who, when and where from, whatever these are."""
    partition, offset, index = numbers
    data = encode_meta(
        user=encode_string(user), event_time_us=time, unique_id=encode_id(unique_id),
        origin=encode_origin(TopicPartition(topic, partition)), offset=offset, index=index, timestamp_ms=timestamp,
        root=encode_root(root),
    )  # fmt: skip
    schema = json.loads(row_schema(RecordType({})).text)["fields"][0]["type"]
    for field in schema["fields"]:
        if isinstance(field["type"], dict):
            del field["type"]["logicalType"]  # plain numbers, also outside datetime's years
    stream = io.BytesIO(data)
    assert fastavro.schemaless_reader(stream, schema, None) == {
        "user": user, "event_time": time, "id": unique_id, "topic": topic, "partition": partition, "offset": offset,
        "index": index, "timestamp": timestamp, "root": None if root is None else root._asdict(),
    }  # fmt: skip
    assert stream.read() == b""
