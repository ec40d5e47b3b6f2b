"""Entry -> its type, inferred once per shape: keys and Python types of an entry almost always determine its type.

A shape is the keys of an object in their order and the Python types of its values. Values that a shape leaves open are
inspected in every entry: integers beyond 53 bits, nested objects (by their own shapes) and lists. The result equals
that of `infer.infer_entry` and `fit_entry`. All entries of one type get the same object, so that comparing types costs
nothing.
"""

from __future__ import annotations

from typing import Any

import msgspec

from log_partitioner.avro.infer import LONG53_MAX, TooManyFieldsError, fit_entry, infer, infer_entry
from log_partitioner.avro.schema_types import RecordType, Scalar, Type
from log_partitioner.config.settings import SchemaBounds

SHAPES_BYTES_MAX = 64 * 1024 * 1024  # of all known shapes and their types, as they are weighed here
_SHAPE_BYTES, _SHAPE_FIELD_BYTES = 600, 100
_LEAVES: dict[type, Scalar] = {
    str: Scalar.STRING,
    type(None): Scalar.NULL,
    bool: Scalar.BOOL,
    float: Scalar.DOUBLE,
    msgspec.Raw: Scalar.JSON,
}


class _Shape:
    """One shape: its type as long as every integer is within 53 bits, and the names of the values to inspect."""

    __slots__ = ("by_parts", "integers", "nested", "plain")

    def __init__(self, entry: dict[str, Any]) -> None:
        self.integers = [name for name, value in entry.items() if type(value) is int]
        self.nested = [name for name, value in entry.items() if type(value) in (dict, list)]
        self.plain: RecordType | None = None
        self.by_parts: dict[tuple[Type, ...], RecordType] = {}


class EntryTypes:
    """Infers types by one set of bounds; bounded memory; for one thread."""

    def __init__(self, bounds: SchemaBounds) -> None:
        self._bounds = bounds
        self._shapes: dict[tuple[Any, ...], _Shape] = {}
        self._weight = 0

    def of(self, value: dict[str, Any], depth: int = 1) -> RecordType:
        """Return the type of an entry, within the bounds of one schema; or of an object in it, at `depth`.

        Raises:
            TooDeepError: the entry nests deeper than `SchemaBounds.json_depth_max`.
            TooManyFieldsError: no schema has room for its top-level keys.
        """
        if depth == 1 and len(value) > self._bounds.fields_max:  # before a type is made that is refused
            raise TooManyFieldsError(f"{len(value)} top-level fields")
        key = (depth, *value, *map(type, value.values()))
        shape = self._shapes.get(key) or self._learn(key, value)
        if shape.plain is not None:
            for name in shape.integers:
                if not -LONG53_MAX <= value[name] <= LONG53_MAX:
                    break
            else:
                return shape.plain
        parts: list[Type] = [infer(value[name], self._bounds, depth=depth + 1) for name in shape.integers]
        parts += [self._nested(value[name], depth + 1) for name in shape.nested]
        known = tuple(parts)
        found = shape.by_parts.get(known)
        if found is None:
            found = self._make(value, shape, known, depth)
            shape.by_parts[known] = found
            self._weigh(_SHAPE_BYTES + 3 * found.size)
        return found

    def _nested(self, value: Any, depth: int) -> Type:
        limits = self._bounds
        if type(value) is dict and depth <= limits.depth_max and len(value) <= limits.object_keys_max:
            return self.of(value, depth)
        return infer(value, limits, depth=depth)

    def _make(self, value: dict[str, Any], shape: _Shape, parts: tuple[Type, ...], depth: int) -> RecordType:
        by_part = dict(zip((*shape.integers, *shape.nested), parts, strict=True))
        made = RecordType({name: by_part.get(name) or _LEAVES[type(item)] for name, item in value.items()})
        return self._fit(made) if depth == 1 else made

    def _learn(self, key: tuple[Any, ...], value: dict[str, Any]) -> _Shape:
        shape = _Shape(value)
        self._weigh(_SHAPE_BYTES + sum(_SHAPE_FIELD_BYTES + 4 * len(name) for name in value))
        self._shapes[key] = shape
        if not shape.nested:
            widest = {**value, **dict.fromkeys(shape.integers, 0)}
            made = infer_entry(widest, self._bounds)
            shape.plain = self._fit(made) if key[0] == 1 else made
            self._weigh(2 * made.size)
        return shape

    def _fit(self, made: RecordType) -> RecordType:
        bounds = self._bounds
        return fit_entry(made, fields_max=bounds.fields_max, bytes_max=bounds.bytes_max)

    def _weigh(self, size: int) -> None:
        """Count what is kept; beyond SHAPES_BYTES_MAX, forget all shapes and learn them again."""
        self._weight += size
        if self._weight > SHAPES_BYTES_MAX:
            self._shapes.clear()
            self._weight = size
