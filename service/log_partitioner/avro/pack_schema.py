"""The schema of a pack: exact types are merged so that every value reads back equal, with projections back (DESIGN 6).

A field of the merged type may be absent from an exact type, may have a type where the exact one has null, `{}` or `[]`
throughout, and is long64 if one of them is. Types that do not fuse so stand **side by side**: the name has a field for
each, in the innermost object that has the name, and an exact type has one of them. Avro names are the object's own.
"""

from __future__ import annotations

from itertools import count
from operator import attrgetter
from typing import Any, NamedTuple

from log_partitioner.avro.names import beside
from log_partitioner.avro.schema_types import ArrayType, MapType, RecordType, Scalar, Type
from log_partitioner.formats.projection import EMPTY_OBJECT, ITEMS, LONG53, NULL, VALUES

_LONGS = (Scalar.LONG53, Scalar.LONG64)


def merge(left: RecordType, right: RecordType) -> RecordType:
    """Add the fields of a type to a merged one; the same object if it has them."""
    if left == right:
        return left
    mine, changed = left.by_name, {}
    for name, child in right.by_name.items():
        key, fused = _place(mine, name, child)
        if mine.get(key) is not fused:
            changed[key] = fused
    return RecordType({**mine, **changed}) if changed else left


def _place(fields: dict[str, Type], name: str, child: Type) -> tuple[str, Type]:
    """Return the key of the first field of a name that takes a type, and the field's type then."""
    for number in count():
        key = beside(name, number)
        old = fields.get(key)
        fused = child if old is None else _fuse(old, child)
        if fused is not None:
            return key, fused
    raise AssertionError("a name has some fields")


def _fuse(left: Type, right: Type) -> Type | None:
    """Return the type of a field that holds both, `left` if that does; None if each needs a field of its own."""
    if right is Scalar.NULL or left == right:
        return left
    if left is Scalar.NULL:
        return right
    if isinstance(left, RecordType):
        if isinstance(right, RecordType):
            return merge(left, right)
        return right if isinstance(right, MapType) and not left.by_name else None
    if isinstance(left, ArrayType):
        item = _fuse(left.item, right.item) if isinstance(right, ArrayType) else None
        return item and (left if item is left.item else ArrayType(item))
    if isinstance(left, MapType):
        if isinstance(right, RecordType) and not right.by_name:
            return left
        value = _fuse(left.value, right.value) if isinstance(right, MapType) else None
        return value and (left if value is left.value else MapType(value))
    return Scalar.LONG64 if left in _LONGS and right in _LONGS else None


class PlacedField(NamedTuple):
    """A field of an exact type, and the number and type of the merged field that holds it."""

    name: str
    own: Type
    number: int
    merged: Type


def places(own: RecordType, merged: RecordType) -> list[PlacedField]:
    """Return where the fields of an exact type stand in a merged one that holds it; ascending by number."""
    numbers = {key: number for number, key in enumerate(merged.by_name)}
    found = []
    for name, child in own.by_name.items():
        key, _ = _place(merged.by_name, name, child)
        found.append(PlacedField(name, child, numbers[key], merged.by_name[key]))
    return sorted(found, key=attrgetter("number"))


def projection(own: RecordType, merged: RecordType) -> Any:
    """Return the projection that makes an exact type out of a merged one that holds it; None if they are equal."""
    if own == merged:
        return None
    return [
        one.number if one.own == one.merged else [one.number, _projection(one.own, one.merged)]
        for one in places(own, merged)
    ]


def _projection(own: Type, merged: Type) -> Any:
    """Project one position whose types differ."""
    if own is Scalar.NULL:
        return NULL
    if own is Scalar.LONG53:
        return LONG53
    if isinstance(own, RecordType):
        return projection(own, merged) if own.by_name and isinstance(merged, RecordType) else EMPTY_OBJECT
    if isinstance(own, ArrayType) and isinstance(merged, ArrayType):
        return {ITEMS: _projection(own.item, merged.item)}
    assert isinstance(own, MapType) and isinstance(merged, MapType), f"{own} did not go into {merged}"  # noqa: PT018
    return {VALUES: _projection(own.value, merged.value)}
