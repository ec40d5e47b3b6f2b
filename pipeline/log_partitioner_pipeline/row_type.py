"""Published schema of a row -> its type in the lattice: the reverse of `avro.schema.schema_of` (DESIGN 3.3)."""

from __future__ import annotations

from collections import Counter
from typing import Any

from log_partitioner.avro.names import beside
from log_partitioner.avro.schema import LOGICAL, MARKED, META, PLAIN
from log_partitioner.avro.schema_types import ArrayType, MapType, RecordType, Scalar, Type
from log_partitioner.formats.projection import EMPTY_OBJECT, NAME_PROPERTY, TYPE_PROPERTY

_SCALARS: dict[tuple[str, str | None], Scalar] = {
    **{(avro, None): scalar for scalar, avro in PLAIN.items()},
    **{pair: scalar for scalar, pair in (MARKED | LOGICAL).items()},
}


def type_of(schema: dict[str, Any]) -> RecordType:
    """Read a published schema back.

    Raises:
        ValueError: it is not a row schema of this product.
    """
    fields = schema.get("fields")
    if not fields or fields[0].get("name") != META:
        raise ValueError(f"the first field of a row is {META}")
    return _record_of(fields[1:])


def _record_of(fields: list[dict[str, Any]]) -> RecordType:
    by_name: dict[str, Type] = {}
    fields_of: Counter[str] = Counter()
    for field in fields:
        original = field.get(NAME_PROPERTY, field["name"])
        by_name[beside(original, fields_of[original])] = _type_of(field["type"], mark=field.get(TYPE_PROPERTY))
        fields_of[original] += 1
    return RecordType(by_name)


def _type_of(union: Any, *, mark: str | None = None) -> Type:
    if not (isinstance(union, list) and len(union) == 2 and union[0] == "null"):  # noqa: PLR2004 - null and one type
        raise ValueError(f"every inferred type is a union of null and one type, not {union!r}")
    avro = union[1]
    if isinstance(avro, dict):
        mark = avro.get(TYPE_PROPERTY, avro.get("logicalType", mark))
        name = avro["type"]
        if mark == EMPTY_OBJECT:
            return RecordType({})
        if name == "record":
            return _record_of(avro["fields"])
        if name == "array":
            return ArrayType(_type_of(avro["items"]))
        if name == "map":
            return MapType(_type_of(avro["values"]))
        avro = name
    scalar = _SCALARS.get((avro, mark))
    if scalar is None:
        raise ValueError(f"no type is written as {avro!r} with mark {mark!r}")
    return scalar
