"""Objects as other readers see them: fastavro by the header's schema, names and JSON text by the properties in it."""

from __future__ import annotations

import io
import json
from functools import lru_cache
from typing import Any

import fastavro

from service.formats.projection import NAME_PROPERTY, TYPE_PROPERTY

_HEADER = fastavro.parse_schema(
    {
        "type": "record",
        "name": "header",
        "fields": [
            {"name": "magic", "type": {"type": "fixed", "name": "magic", "size": 4}},
            {"name": "meta", "type": {"type": "map", "values": "bytes"}},
            {"name": "sync", "type": {"type": "fixed", "name": "sync", "size": 16}},
        ],
    }
)


def read_rows(body: bytes) -> list[dict[str, Any]]:
    """Read an Avro container file of codec null."""
    return read_container(body)[1]


def read_container(body: bytes) -> tuple[str, list[dict[str, Any]]]:
    """Read an Avro container file of codec null, its schema parsed once: the schema's text, and the rows."""
    stream = io.BytesIO(body)
    header: Any = fastavro.schemaless_reader(stream, _HEADER, None)
    text = header["meta"]["avro.schema"].decode()
    schema = parsed(text)
    rows: list[Any] = []
    while stream.tell() < len(body):
        count: Any = fastavro.schemaless_reader(stream, "long", None)
        length: Any = fastavro.schemaless_reader(stream, "long", None)
        ends = stream.tell() + length
        rows += [fastavro.schemaless_reader(stream, schema, None) for _ in range(count)]
        assert stream.tell() == ends, "a block ends where its length says"
        assert stream.read(16) == header["sync"], "a block is followed by the sync marker"
    return text, rows


@lru_cache(maxsize=1000)
def parsed(text: str) -> Any:
    """Parse a schema for fastavro, once."""
    return fastavro.parse_schema(json.loads(text), _force=True)


@lru_cache(maxsize=1000)
def loaded(text: str) -> Any:
    """Load JSON text, once; not to be changed."""
    return json.loads(text)


def restored(row: dict[str, Any], text: str) -> Any:
    """Give the entry of a row as it was, but for nulls: names as in the source, JSON text parsed."""
    return without_nulls(_restore(_entry_schema(text), row))


@lru_cache(maxsize=1000)
def _entry_schema(text: str) -> Any:
    schema = json.loads(text)
    return {**schema, "fields": schema["fields"][1:]}


def _restore(avro: Any, value: Any, mark: str | None = None) -> Any:
    if isinstance(avro, list):
        avro = avro[1]
    if isinstance(avro, dict):
        mark = avro.get(TYPE_PROPERTY, mark)
    if value is None or mark == "json":
        return value if value is None else json.loads(value)
    kind = avro["type"] if isinstance(avro, dict) else avro
    if kind == "record":
        there = (one for one in avro["fields"] if value[one["name"]] is not None)  # a name may have several fields
        fields = ((one.get(NAME_PROPERTY, one["name"]), one) for one in there)
        return {name: _restore(one["type"], value[one["name"]], one.get(TYPE_PROPERTY)) for name, one in fields}
    if kind == "array":
        return [_restore(avro["items"], item) for item in value]
    if kind == "map":
        return {name: _restore(avro["values"], item) for name, item in value.items()}
    return value


def without_nulls(value: Any) -> Any:
    """Take the nulls out of all objects: absent is null."""
    if isinstance(value, dict):
        return {name: without_nulls(item) for name, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value
