"""A row of the table -> the entry that it came from, under its original names; a value -> JSON text, for `_rest`.

For readers of the table who want entries: the audit, a person with a notebook. Columns of one name hold one value
together, because a row fills only one of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from log_partitioner_pipeline.columns import JSON, RECORD, RESERVED, REST, parse_column_name

Entry = dict[str, Any]
ParseJson = Callable[[str], Any]

_ARRAY, _MAP = "array_", "map_"


def restore(row: dict[str, Any], parse: ParseJson) -> Entry:
    """Return the entry of a row (as `Row.asDict(recursive=True)` and Arrow's `to_pylist` write it); nulls are left out.

    `parse` reads JSON text. Records whose fields are all null come back as `{}`.
    """
    entry = _restore_record({column: value for column, value in row.items() if column not in RESERVED}, parse)
    rest = row.get(REST)
    return entry if rest is None else entry | parse(rest)


def write_json(kind: str, value: Any) -> str:
    """Write a value of a column of this kind as the JSON text of the entry's value."""
    if value is None:
        return "null"
    if kind == JSON:
        return str(value)
    if kind == RECORD:
        return write_object((*parse_column_name(column), item) for column, item in value.items())
    if kind.startswith(_ARRAY):
        return f"[{','.join(write_json(kind[len(_ARRAY) :], item) for item in value)}]"
    if kind.startswith(_MAP):
        return write_object((key, kind[len(_MAP) :], item) for key, item in value)
    return json.dumps(value, ensure_ascii=False)


def write_object(members: Iterable[tuple[str, str, Any]]) -> str:
    """Write an object of (original name, kind, value) as JSON text; nulls are left out."""
    texts = [
        f"{json.dumps(name, ensure_ascii=False)}:{write_json(kind, value)}"
        for name, kind, value in members
        if value is not None
    ]
    return f"{{{','.join(texts)}}}"


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
