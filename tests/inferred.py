"""The type of an entry without memory of shapes: the way that `EntryTypes` shortens."""

from __future__ import annotations

from typing import Any

from log_partitioner.avro.infer import infer
from log_partitioner.avro.schema_types import RecordType
from log_partitioner.config.settings import SchemaBounds


def infer_entry(entry: dict[str, Any], limits: SchemaBounds) -> RecordType:
    """Infer the type of one entry; its top level is a record however many keys it has."""
    return RecordType({name: infer(value, limits, depth=2) for name, value in entry.items()})
