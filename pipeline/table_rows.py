"""A row of the table -> the entry that it came from, under its original names: the way back through `columns`.

For who reads the table and wants entries: the audit, a person with a notebook. Values of one name that stand in several
columns are one value, since a row fills only one of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pipeline.columns import JSON, RECORD, REFERENCE, parse_column_name
from service.core.avro_schema import META

Entry = dict[str, Any]
ParseJson = Callable[[str], Any]

_ARRAY, _MAP = "array_", "map_"


def restore(row: dict[str, Any], parse: ParseJson) -> Entry:
    """Give the entry of a row (as `Row.asDict(recursive=True)` and Arrow's `to_pylist` write it); nulls are left out.

    `parse` reads JSON text. Records whose fields are all null come back as `{}`.
    """
    return _restore_record({column: value for column, value in row.items() if column not in (META, REFERENCE)}, parse)


def _restore_record(columns: dict[str, Any], parse: ParseJson) -> Entry:
    entry: Entry = {}
    for column, value in columns.items():
        if value is not None:
            name, kind = parse_column_name(column)
            entry[name] = _restore_value(kind, value, parse)
    return entry


def _restore_value(kind: str, value: Any, parse: ParseJson) -> Any:
    if value is None:
        return None
    if kind == RECORD:
        return _restore_record(value, parse)
    if kind == JSON:
        return parse(value)
    if kind.startswith(_ARRAY):
        return [_restore_value(kind[len(_ARRAY) :], item, parse) for item in value]
    if kind.startswith(_MAP):
        pairs = value.items() if isinstance(value, dict) else value
        return {key: _restore_value(kind[len(_MAP) :], item, parse) for key, item in pairs}
    return value
