"""One entry -> its type in the lattice, by rules that look at that entry alone (DESIGN 3.3).

Values come from `log_partitioner.input.decode`: None, bool, int, float, str, list, dict, `msgspec.Raw` for a number
that is kept as its JSON text, and the classes of `log_partitioner.formats.values`.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import chain
from typing import Any

import msgspec

from log_partitioner.avro.schema_types import ArrayType, MapType, RecordType, Scalar, Type, join
from log_partitioner.config.settings import SchemaBounds
from log_partitioner.formats.values import Bytes, Date, Decimal, DeclaredMap, Timestamp

LEAVES: dict[type, Scalar] = {
    str: Scalar.STRING,
    type(None): Scalar.NULL,
    bool: Scalar.BOOL,
    float: Scalar.DOUBLE,
    int: Scalar.LONG53,
    msgspec.Raw: Scalar.JSON,
    Bytes: Scalar.BYTES,
    Decimal: Scalar.DECIMAL,
    Timestamp: Scalar.TIMESTAMP,
    Date: Scalar.DATE,
}
"""Types of values without parts, but for large integers (`infer_int`)."""
CONTAINERS = (dict, list, DeclaredMap)
LONG53_MAX = 2**53
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


class TooDeepError(ValueError):
    """An entry nests deeper than `SchemaBounds.json_depth_max`."""


class TooManyFieldsError(ValueError):
    """An entry has more top-level fields than one schema may have."""


def infer(value: Any, limits: SchemaBounds, *, depth: int) -> Type:
    """Infer the type of a value; `depth` is the one an object or array has in this position.

    Raises:
        TooDeepError: the value nests deeper than `limits.json_depth_max`.
    """
    kind = type(value)
    if kind is int:
        return infer_int(value)
    leaf = LEAVES.get(kind)
    if leaf is not None:
        return leaf
    if depth > limits.depth_max:
        require_depth(value, limits, depth=depth)
        return Scalar.JSON
    if kind is list:
        return ArrayType(infer_all(value, limits, depth=depth + 1))
    if kind is DeclaredMap or len(value) > limits.object_keys_max:
        return MapType(infer_all(value.values(), limits, depth=depth + 1))
    return RecordType({name: infer(item, limits, depth=depth + 1) for name, item in value.items()})


def infer_all(values: Collection[Any], limits: SchemaBounds, *, depth: int) -> Type:
    """Infer the join of many values of one position; objects and arrays among them stand at `depth`.

    Objects are taken apart together and key by key: joining their types one by one would cost the square of the
    keys that differ, which a hostile record has many of.
    """
    containers: list[Any] = [value for value in values if type(value) in CONTAINERS]
    joined: Type = Scalar.NULL
    if len(containers) < len(values):
        for kind in {infer(value, limits, depth=depth) for value in values if type(value) not in CONTAINERS}:
            joined = join(joined, kind, object_keys_max=limits.object_keys_max)
    if not containers:
        return joined
    is_list = type(containers[0]) is list
    are_alike = all((type(value) is list) is is_list for value in containers)
    if depth > limits.depth_max or joined is not Scalar.NULL or not are_alike:
        for value in containers:
            require_depth(value, limits, depth=depth)
        return Scalar.JSON
    if is_list:
        return ArrayType(infer_all(list(chain.from_iterable(containers)), limits, depth=depth + 1))
    return _infer_objects(containers, limits, depth=depth)


def _infer_objects(objects: list[dict[str, Any]], limits: SchemaBounds, *, depth: int) -> Type:
    by_name: dict[str, list[Any]] = {}
    for one in objects:
        for name, item in one.items():
            by_name.setdefault(name, []).append(item)
    if len(by_name) > limits.object_keys_max or any(type(one) is DeclaredMap for one in objects):
        return MapType(infer_all(list(chain.from_iterable(by_name.values())), limits, depth=depth + 1))
    return RecordType({name: infer_all(items, limits, depth=depth + 1) for name, items in by_name.items()})


def infer_int(value: int) -> Scalar:
    """Infer the type of an integer: beyond 64 bits it is JSON text."""
    if -LONG53_MAX <= value <= LONG53_MAX:
        return Scalar.LONG53
    return Scalar.LONG64 if INT64_MIN <= value <= INT64_MAX else Scalar.JSON


def require_depth(value: Any, limits: SchemaBounds, *, depth: int) -> None:
    """Refuse an object or array at `depth` that nests deeper than the limit; iterative, so no input exhausts the stack.

    Raises:
        TooDeepError: it does.
    """
    level = [value]
    while level:
        if depth > limits.json_depth_max:
            raise TooDeepError(f"nested deeper than {limits.json_depth_max} levels")
        level = [
            child
            for container in level
            for child in (container if type(container) is list else container.values())
            if type(child) in CONTAINERS
        ]
        depth += 1


def fit_entry(entry_type: RecordType, *, fields_max: int, bytes_max: int) -> RecordType:
    """Turn the largest subtrees of an entry into JSON until its schema is within the limits of one schema.

    The largest is the top-level field with most fields, then most bytes of schema, then the last name.

    Raises:
        TooManyFieldsError: nothing is left to turn, the entry has too many or too long top-level keys.
    """
    fields, size = entry_type.fields, entry_type.size
    if fields <= fields_max and size <= bytes_max:
        return entry_type
    turned: dict[str, Type] = {}
    containers = [(child.fields, child.size, name) for name, child in entry_type.by_name.items() if child.fields]
    for child_fields, child_size, name in sorted(containers, reverse=True):
        turned[name] = Scalar.JSON
        fields -= child_fields
        size -= child_size - Scalar.JSON.size
        if fields <= fields_max and size <= bytes_max:
            return RecordType({**entry_type.by_name, **turned})
    raise TooManyFieldsError(f"{fields} fields, {size} bytes of schema")
