"""The bytes of an object, or of one reference, as entries: read as the audit's second opinion reads them. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from log_partitioner.proof.oracle.container import Container
from log_partitioner.proof.oracle.equal import NUMBER_KEY
from log_partitioner.proof.oracle.json_text import Parse
from log_partitioner.proof.oracle.published_schema import META, PublishedSchema

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LONG_NUMBER = re.compile(re.escape(f"{{{json.dumps(NUMBER_KEY)}: ") + r'"([^"]+)"\}')


class Row(NamedTuple):
    """A row: `_meta` as it stands there, and the entry under its original names, without nulls."""

    meta: dict[str, Any]
    entry: object


def rows_of(data: bytes, parse: Parse) -> Iterator[Row]:
    """Yield the rows of an Avro container file; `parse` reads the text of JSON-marked columns.

    Raises:
        ValueError: it is none; damaged ones raise other errors of `container.UNREADABLE`, too.
    """
    container = Container(data)
    schema = PublishedSchema(container.schema, parse)
    for row in container.rows(container.header_bytes, container.size, schema.avro):
        yield Row(row[META], schema.restore(row))


def to_json(row: Row) -> str:
    """Write a row as JSON; numbers that a double does not hold keep their digits."""
    return _LONG_NUMBER.sub(r"\1", json.dumps({META: readable_meta(row.meta), "entry": row.entry}))


def readable_meta(meta: dict[str, Any]) -> dict[str, Any]:
    """Return the `_meta` of a row with times as texts."""
    timestamp_ms = meta["timestamp"]
    timestamp = None if timestamp_ms < 0 else _moment(1000 * timestamp_ms)
    return {**meta, "event_time": _moment(meta["event_time"]), "timestamp": timestamp}


def _moment(at_us: int) -> str:
    return (_EPOCH + timedelta(microseconds=at_us)).isoformat().replace("+00:00", "Z")
