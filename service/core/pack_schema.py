"""Which PartitionKeys may share a pack: the join of exact types that changes no value, and its projections back.

The merged schema may have more nullable fields, give a type to what is null, `{}` or `[]` throughout, and be long64
where an exact one is long53; it changes no other type and no Avro name (DESIGN 6). Then every value reads back equal,
and the exact schema is a projection of the merged one (`service.core.projection`).
"""

from __future__ import annotations

from typing import Any

from service.core.lattice import ArrayType, MapType, RecordType, Scalar, Type
from service.core.names import avro_names
from service.core.projection import EMPTY_OBJECT, ITEMS, LONG53, NULL, VALUES

_LONGS = (Scalar.LONG53, Scalar.LONG64)


class IncompatibleError(ValueError):
    """The two may not share a pack."""


def merge_entries(left: RecordType, right: RecordType, *, reserved: tuple[str, ...], keys_max: int) -> RecordType:
    """Merge the types of two PartitionKeys' entries; `left` itself where it holds `right` already.

    `reserved` are the Avro names that no top-level field gets; nested objects have at most `keys_max` keys.

    Raises:
        IncompatibleError: a type or an Avro name would change, or an object would become a map.
    """
    return _merge_records(left, right, reserved=reserved, keys_max=None, nested_max=keys_max)


def _merge(left: Type, right: Type, keys_max: int) -> Type:
    if left is right or right is Scalar.NULL:
        return left
    if left is Scalar.NULL:
        return right
    if isinstance(left, RecordType):
        if isinstance(right, RecordType):
            return _merge_records(left, right, reserved=(), keys_max=keys_max, nested_max=keys_max)
        if isinstance(right, MapType) and not left.by_name:
            return right
    elif isinstance(left, ArrayType):
        if isinstance(right, ArrayType):
            item = _merge(left.item, right.item, keys_max)
            return left if item is left.item else ArrayType(item)
    elif isinstance(left, MapType):
        if isinstance(right, MapType):
            value = _merge(left.value, right.value, keys_max)
            return left if value is left.value else MapType(value)
        if isinstance(right, RecordType) and not right.by_name:
            return left
    elif left in _LONGS and right in _LONGS:
        return Scalar.LONG64
    raise IncompatibleError(f"{left} and {right}")


def _merge_records(
    left: RecordType, right: RecordType, *, reserved: tuple[str, ...], keys_max: int | None, nested_max: int
) -> RecordType:
    if left is right or left == right:
        return left
    changed: dict[str, Type] = {}
    mine = left.by_name
    is_wider = False
    for name, theirs in right.by_name.items():
        old = mine.get(name)
        if old is None:
            changed[name] = theirs
            is_wider = True
        else:
            new = _merge(old, theirs, nested_max)
            if new is not old:
                changed[name] = new
    merged = RecordType({**mine, **changed}) if changed else left
    if keys_max is not None and len(merged.by_name) > keys_max:
        raise IncompatibleError(f"more than {keys_max} keys")
    if is_wider:
        _require_names(left, merged, reserved)
    if len(merged.by_name) > len(right.by_name):
        _require_names(right, merged, reserved)
    return merged


def _require_names(own: RecordType, merged: RecordType, reserved: tuple[str, ...]) -> None:
    names = avro_names(merged.by_name, reserved=reserved)
    for original, name in avro_names(own.by_name, reserved=reserved).items():
        if names[original] != name:
            raise IncompatibleError(f"{original!r} is {name} alone, {names[original]} beside others")


def projection_of(own: RecordType, merged: RecordType) -> Any:
    """Say what the exact type of a PartitionKey is of a merged one that it went into; None where it is all of it."""
    return None if own == merged else _fields(own, merged)


def _fields(own: RecordType, merged: RecordType) -> list[Any]:
    found: list[Any] = []
    for number, (name, child) in enumerate(merged.by_name.items()):
        mine = own.by_name.get(name)
        if mine is not None:
            found.append(number if mine == child else [number, _projection(mine, child)])
    return found


def _projection(own: Type, merged: Type) -> Any:
    """Project one position whose types differ."""
    if own is Scalar.NULL:
        return NULL
    if own is Scalar.LONG53:
        return LONG53
    if isinstance(own, RecordType):
        return _fields(own, merged) if own.by_name and isinstance(merged, RecordType) else EMPTY_OBJECT
    if isinstance(own, ArrayType) and isinstance(merged, ArrayType):
        return {ITEMS: _projection(own.item, merged.item)}
    assert isinstance(own, MapType) and isinstance(merged, MapType), f"{own} did not go into {merged}"  # noqa: PT018
    return {VALUES: _projection(own.value, merged.value)}
