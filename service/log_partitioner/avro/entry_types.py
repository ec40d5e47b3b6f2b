"""Entry -> its type, made once: the type of an object follows from its keys and the types of its values.

The result equals that of `infer.infer_entry` and `fit_entry`. Equal types are one object, so that comparing types costs
nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec

from log_partitioner.avro.infer import LONG53_MAX, TooManyFieldsError, fit_entry, infer_int, require_depth
from log_partitioner.avro.schema_types import ArrayType, MapType, RecordType, Scalar, Type, join_all
from log_partitioner.config.settings import SchemaBounds

T = TypeVar("T", bound=Type)

KNOWN_BYTES_MAX = 64 * 1024 * 1024  # of all that is remembered, as it is weighed here
_TYPE_BYTES, _PART_BYTES = 800, 150
_LEAVES: dict[type, Scalar] = {
    str: Scalar.STRING,
    type(None): Scalar.NULL,
    bool: Scalar.BOOL,
    float: Scalar.DOUBLE,
    msgspec.Raw: Scalar.JSON,
}


class EntryTypes:
    """Infers types by one set of bounds; bounded memory; for one thread."""

    def __init__(self, bounds: SchemaBounds) -> None:
        self._bounds = bounds
        # By keys and types of values, as they stand and in any order; some programs write theirs in a random one.
        self._in_order: dict[tuple[Any, ...], RecordType] = {}
        self._records: dict[frozenset[tuple[str, Type]], RecordType] = {}
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
        parts = self._parts(value.values(), depth)
        in_order = (*value, *parts)
        found = self._in_order.get(in_order)
        if found is None:
            key = frozenset(zip(value, parts, strict=True))
            found = self._records.get(key)
            if found is None:
                found = self._one(RecordType(dict(zip(value, parts, strict=True))))
                self._weigh(_TYPE_BYTES + sum(_PART_BYTES + 4 * len(name) for name in value) + 3 * found.size)
                self._records[key] = self._in_order[in_order] = found
        return found

    def _parts(self, values: Iterable[Any], depth: int) -> list[Type]:
        """Return the types of values at `depth`."""
        parts: list[Type] = []
        for value in values:
            kind = type(value)
            if kind is int:  # without a call: some logs are numbers for the most part
                parts.append(Scalar.LONG53 if -LONG53_MAX <= value <= LONG53_MAX else infer_int(value))
            else:
                parts.append(_LEAVES.get(kind) or self._container(value, depth))
        return parts

    def _container(self, value: Any, depth: int) -> Type:
        """Return the type of an object or an array at `depth`."""
        if depth > self._bounds.depth_max:
            require_depth(value, self._bounds, depth=depth)
            return Scalar.JSON
        if type(value) is dict and len(value) <= self._bounds.object_keys_max:
            return self._record(value, depth + 1)
        if type(value) is dict:
            return self._one(MapType(self._join(value.values(), depth + 1)))
        return self._one(ArrayType(self._join(value, depth + 1)))

    def _join(self, values: Iterable[Any], depth: int) -> Type:
        """Return the join of the types of values at `depth`."""
        types = frozenset(self._parts(values, depth))
        found = self._joined.get(types)
        if found is None:
            found = self._one(join_all(types, object_keys_max=self._bounds.object_keys_max))
            self._weigh(_TYPE_BYTES + _PART_BYTES * len(types) + 3 * found.size)
            self._joined[types] = found
        return found

    def _one(self, made: T) -> T:
        """Return the type that equals this one and was made first."""
        return self._made.setdefault(made, made)  # type: ignore[return-value]  # equal types are of one kind

    def _weigh(self, size: int) -> None:
        """Count what is kept; beyond KNOWN_BYTES_MAX, forget all, and learn it again."""
        self._weight += size
        if self._weight > KNOWN_BYTES_MAX:
            for known in (self._in_order, self._records, self._joined, self._made):
                known.clear()
            self._weight = size
