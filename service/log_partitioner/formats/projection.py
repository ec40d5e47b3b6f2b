"""The exact schema of a reference as a projection of its object's schema (docs/FORMATS.md).

    None                      the same
    [2, [5, P], ...]          a record (the entry itself, at the top): fields by number, in the order of the object's
                              schema without `_meta`; a pair where the field itself is projected
    {"items": P}              an array            {"values": P}   a map
    "null" "long53"           null throughout; integers of 53 bits where the object has 64
    "empty-object"            `{}` throughout

No projection changes a name or any other type: every value reads back equal under both schemas. Works on published
schemas as JSON; reader's side only - the worker's stands in `log_partitioner.avro.pack_schema`.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

Avro = Any
Projection = Any

TYPE_PROPERTY = "lp.type"
NAME_PROPERTY = "lp.name"
NULL, LONG53, EMPTY_OBJECT = "null", "long53", "empty-object"
ITEMS, VALUES = "items", "values"
_LEAVES: dict[str, Avro] = {
    NULL: "string",
    LONG53: "long",
    EMPTY_OBJECT: {"type": "map", "values": ["null", "string"]},
}
_WIDER = {LONG53: ("long",), EMPTY_OBJECT: ("record", "map")}  # what each becomes in an object; null becomes anything
_PARTS = {"array": ITEMS, "map": VALUES}


def project(schema: Avro, projection: Projection) -> Avro:
    """Return the published schema that a projection makes of an object's schema, both as parsed JSON.

    Raises:
        ValueError: it is no projection of this schema.
    """
    if projection is None:
        return schema
    try:
        meta, *fields = schema["fields"]
        return {**schema, "fields": [meta, *_fields(fields, projection)]}
    except (TypeError, KeyError, IndexError, AttributeError) as error:
        raise ValueError(f"no projection of this schema: {error!r}") from error


def number_of(item: Any) -> int:
    """Return the field's number of one item of a record's projection."""
    number: int = item if isinstance(item, int) else item[0]
    return number


def _numbers(projection: Projection) -> list[int]:
    """Return the numbers of the fields of a record's projection."""
    if not isinstance(projection, list):
        raise TypeError(f"a record is projected by a list, not {projection!r}")
    numbers = [number_of(item) for item in projection]
    if any(after <= before for before, after in pairwise([-1, *numbers])):
        raise IndexError(f"numbers of fields ascend from 0, not {numbers}")
    return numbers


def _fields(fields: list[Avro], projection: Projection) -> list[Avro]:
    numbers = _numbers(projection)
    return [
        fields[number] if isinstance(item, int) else _field(fields[number], item[1])
        for number, item in zip(numbers, projection, strict=True)
    ]


def _field(field: Avro, projection: Projection) -> Avro:
    """Project a field of a record; if its Avro type does not tell the projected one, a property of the field does."""
    kept = {name: value for name, value in field.items() if name != TYPE_PROPERTY}
    if isinstance(projection, str):
        return {**kept, "type": [NULL, _leaf(field["type"][1], projection)], TYPE_PROPERTY: projection}
    return {**kept, "type": [NULL, _container(field["type"][1], projection)]}


def _union(union: Avro, projection: Projection) -> Avro:
    """Project the union of array items or map values; the property stands on the type itself there."""
    if isinstance(projection, str):
        leaf = _leaf(union[1], projection)
        return [NULL, {**(leaf if isinstance(leaf, dict) else {"type": leaf}), TYPE_PROPERTY: projection}]
    return [NULL, _container(union[1], projection)]


def _leaf(avro: Avro, projection: str) -> Avro:
    kind = avro.get("logicalType", avro["type"]) if isinstance(avro, dict) else avro
    if kind not in _WIDER.get(projection, (kind,)):
        raise TypeError(f"{kind} is not what {projection} becomes")
    return _LEAVES[projection]


def _container(avro: Avro, projection: Projection) -> Avro:
    if isinstance(projection, list):
        return {**avro, "fields": _fields(avro["fields"], projection)}
    part = _PARTS[avro["type"]]
    return {**avro, part: _union(avro[part], projection[part])}
