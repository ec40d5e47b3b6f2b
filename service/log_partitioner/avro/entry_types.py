"""Entry -> its type, made once per shape: keys and Python types of an object almost always determine its type.

Values that a shape leaves open are looked at in every object: integers beyond 53 bits, nested objects (by their own
shapes) and arrays. The result equals that of `infer.infer` for each field, then `fit_entry`. Equal types are one
object, so that comparing types costs nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple, TypeVar

from log_partitioner.avro.infer import (
    CONTAINERS,
    LEAVES,
    LONG53_MAX,
    TooManyFieldsError,
    fit_entry,
    infer_all,
    infer_int,
    require_depth,
)
from log_partitioner.avro.schema_types import ArrayType, MapType, RecordType, Scalar, Type, join_all
from log_partitioner.config.settings import SchemaBounds

T = TypeVar("T", bound=Type)

ITEMS_MAX = 200  # of an array, or a map, that are typed one by one
KNOWN_BYTES_MAX = 64 * 1024 * 1024  # of all that is remembered, as it is weighed here
_TYPE_BYTES, _PART_BYTES = 800, 150

Parts = tuple[tuple[str, Type], ...]
"""Names and types of the values of an object that its shape leaves open."""


class _Shape(NamedTuple):
    """The keys of integers and of nested values, and the types that objects of the shape had so far."""

    integers: list[str]
    nested: list[str]
    types: dict[Parts, RecordType]


class EntryTypes:
    """Infers types by one set of bounds; bounded memory; for one thread."""

    def __init__(self, bounds: SchemaBounds) -> None:
        self._bounds = bounds
        # By keys and types of values, as they stand and in any order; some programs write theirs in a random one.
        self._in_order: dict[tuple[Any, ...], _Shape] = {}
        self._shapes: dict[frozenset[tuple[str, type]], _Shape] = {}
        self._joined: dict[frozenset[Type], Type] = {}
        self._made: dict[Type, Type] = {}
        self._weight = 0

    def of(self, entry: dict[str, Any]) -> RecordType:
        """Return the type of an entry, within the bounds of one schema.

        Raises:
            TooDeepError: the entry nests deeper than `SchemaBounds.json_depth_max`.
            TooManyFieldsError: no schema has room for its top-level keys.
        """
        bounds = self._bounds
        if len(entry) > bounds.fields_max:  # before a type is made that is refused
            raise TooManyFieldsError(f"{len(entry)} top-level fields")
        whole = self._record(entry, 2)
        fitting = fit_entry(whole, fields_max=bounds.fields_max, bytes_max=bounds.bytes_max)
        return whole if fitting is whole else self._one(fitting)

    def _record(self, value: dict[str, Any], depth: int) -> RecordType:
        """Return the type of an object whose values stand at `depth`."""
        shape = self._in_order.get((*value, *map(type, value.values()))) or self._shape(value)
        parts: list[tuple[str, Type]] = []
        for name in shape.integers:
            if not -LONG53_MAX <= value[name] <= LONG53_MAX:
                parts.append((name, infer_int(value[name])))  # noqa: PERF401 - faster for the few that most have
        for name in shape.nested:
            parts.append((name, self._container(value[name], depth)))  # noqa: PERF401 - as above
        known = tuple(parts)
        return shape.types.get(known) or self._make(value, shape, known)

    def _shape(self, value: dict[str, Any]) -> _Shape:
        """Return the shape of an object that is new, or has its keys in another order than the first of its shape."""
        key = frozenset(zip(value, map(type, value.values()), strict=True))
        shape = self._shapes.get(key)
        if shape is None:
            integers = [name for name, item in value.items() if type(item) is int]
            shape = _Shape(integers, [name for name, item in value.items() if type(item) in CONTAINERS], {})
            self._weigh(_TYPE_BYTES + sum(_PART_BYTES + 4 * len(name) for name in value))
            self._shapes[key] = self._in_order[(*value, *map(type, value.values()))] = shape
        return shape

    def _make(self, value: dict[str, Any], shape: _Shape, parts: Parts) -> RecordType:
        by_name = dict(parts)
        made = self._one(RecordType({name: by_name.get(name) or LEAVES[type(item)] for name, item in value.items()}))
        self._weigh(_TYPE_BYTES + _PART_BYTES * len(parts) + 3 * made.size)
        shape.types[parts] = made
        return made

    def _container(self, value: Any, depth: int) -> Type:
        """Return the type of an object or an array at `depth`."""
        if depth > self._bounds.depth_max:
            require_depth(value, self._bounds, depth=depth)
            return Scalar.JSON
        if type(value) is list:
            return self._one(ArrayType(self._join(value, depth + 1)))
        if type(value) is dict and len(value) <= self._bounds.object_keys_max:
            return self._record(value, depth + 1)
        return self._one(MapType(self._join(value.values(), depth + 1)))

    def _join(self, values: Collection[Any], depth: int) -> Type:
        """Return the join of the types of values at `depth`."""
        if len(values) > ITEMS_MAX:  # a type for each of a million objects would weigh more than they
            return self._one(infer_all(values, self._bounds, depth=depth))
        types: set[Type] = set()
        for value in values:
            kind = type(value)
            types.add(infer_int(value) if kind is int else LEAVES.get(kind) or self._container(value, depth))
        known = frozenset(types)
        found = self._joined.get(known)
        if found is None:
            found = self._one(join_all(known, object_keys_max=self._bounds.object_keys_max))
            self._weigh(_TYPE_BYTES + _PART_BYTES * len(known) + 3 * found.size)
            self._joined[known] = found
        return found

    def _one(self, made: T) -> T:
        """Return the type that equals this one and was made first."""
        return self._made.setdefault(made, made)  # type: ignore[return-value]  # equal types are of one kind

    def _weigh(self, size: int) -> None:
        """Count the memory that is kept; beyond KNOWN_BYTES_MAX forget all types, and learn them again."""
        self._weight += size
        if self._weight > KNOWN_BYTES_MAX:
            for known in (self._in_order, self._shapes, self._joined, self._made):
                known.clear()
            self._weight = size
