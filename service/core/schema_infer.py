"""One entry -> its type in the lattice, by rules that look at that entry alone (DESIGN 3.3).

Values are what `service.core.decode` yields: None, bool, int, float, str, list, dict, and `msgspec.Raw` for a
number that is kept as its JSON text.
"""

from __future__ import annotations

from typing import Any

import msgspec

from service.core.lattice import ArrayType, Limits, RecordType, Scalar, Type, join, to_map

LONG53_MAX = 2**53
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


class TooDeepError(ValueError):
    """An entry nests deeper than `Limits.json_depth_max`."""


class TooManyFieldsError(ValueError):
    """An entry has more top-level fields than one schema may have."""


def infer_entry(entry: dict[str, Any], limits: Limits) -> RecordType:
    """Infer the type of one entry; its top level is a record however many keys it has.

    Raises:
        TooDeepError: the entry nests deeper than `limits.json_depth_max`.
    """
    return RecordType({name: infer(value, limits, depth=2) for name, value in entry.items()})


def infer(value: Any, limits: Limits, *, depth: int) -> Type:
    """Infer the type of a value; `depth` is the one an object or array has in this position.

    Raises:
        TooDeepError: the value nests deeper than `limits.json_depth_max`.
    """
    kind = type(value)
    if kind is str:
        return Scalar.STRING
    if value is None:
        return Scalar.NULL
    if kind is int:
        return _infer_int(value)
    if kind is bool:
        return Scalar.BOOL
    if kind is float:
        return Scalar.DOUBLE
    if kind is msgspec.Raw:
        return Scalar.JSON
    if depth > limits.depth_max:
        require_depth(value, limits, depth=depth)
        return Scalar.JSON
    if kind is dict:
        record = RecordType({name: infer(item, limits, depth=depth + 1) for name, item in value.items()})
        if len(record.by_name) <= limits.object_keys_max:
            return record
        return to_map(record, object_keys_max=limits.object_keys_max)
    item_type: Type = Scalar.NULL
    for item in value:
        item_type = join(item_type, infer(item, limits, depth=depth + 1), object_keys_max=limits.object_keys_max)
    return ArrayType(item_type)


def _infer_int(value: int) -> Scalar:
    if -LONG53_MAX <= value <= LONG53_MAX:
        return Scalar.LONG53
    return Scalar.LONG64 if INT64_MIN <= value <= INT64_MAX else Scalar.JSON


def require_depth(value: Any, limits: Limits, *, depth: int) -> None:
    """Refuse a value that nests deeper than the limit; iterative, so that no input exhausts the stack.

    Raises:
        TooDeepError: it does.
    """
    level = [value]
    while level:
        level = [
            child
            for container in level
            for child in (container.values() if type(container) is dict else container)
            if type(child) in (dict, list)
        ]
        depth += 1
        if level and depth > limits.json_depth_max:
            raise TooDeepError(f"nested deeper than {limits.json_depth_max} levels")


def fit_entry(entry_type: RecordType, *, fields_max: int, bytes_max: int) -> RecordType:
    """Turn the largest subtrees of an entry into JSON until its schema is within the limits of one schema.

    The largest is the top-level field with most fields, then most bytes of schema, then the last name.

    Raises:
        TooManyFieldsError: nothing is left to turn, the entry has too many or too long top-level keys.
    """
    while entry_type.fields > fields_max or entry_type.size > bytes_max:
        containers = [(child.fields, child.size, name) for name, child in entry_type.by_name.items() if child.fields]
        if not containers:
            raise TooManyFieldsError(f"{entry_type.fields} fields, {entry_type.size} bytes of schema")
        entry_type = RecordType({**entry_type.by_name, max(containers)[2]: Scalar.JSON})
    return entry_type
