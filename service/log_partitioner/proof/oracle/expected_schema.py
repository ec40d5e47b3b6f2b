"""The schema that a set of entries must have (DESIGN 3.3), computed from the entries.

Owns the types and their join. A type is a kind or a container of types:

    "null" "boolean" "long53" "long64" "double" "string" "json" "bytes" "decimal" "timestamp" "date"
    Record({name: type}) sorted by name · Array(type) · Map(type)

Types are hashable, so that the many entries of one shape share it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from log_partitioner.formats.values import Bytes, Date, Decimal, DeclaredMap, Timestamp
from log_partitioner.proof.oracle.json_text import Exact

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from log_partitioner.config.settings import SchemaBounds

LONG53_MAX = 1 << 53
LONG64_MAX = (1 << 63) - 1
LONG64_MIN = -(1 << 63)
_CHARACTERS_PER_CHARACTER = 6  # of a schema's text, to those of our own form
_INTEGERS = frozenset({"long53", "long64"})
_DOUBLES = frozenset({"long53", "double"})
_TEXTS = {str: "string", Bytes: "bytes", Decimal: "decimal", Timestamp: "timestamp", Date: "date"}


class Record(NamedTuple):
    """An object; fields in the order of their names."""

    fields: tuple[tuple[str, Type], ...]


class Array(NamedTuple):
    """A list; `[]` is an array of null."""

    items: Type


class Map(NamedTuple):
    """An object that its format declares a map, or with more keys than a record may have."""

    values: Type
    tag: str = "map"  # without it the tuple would equal an Array of the same


Type = str | Record | Array | Map


def type_of_entry(entry: dict[str, object], *, depth_max: int) -> Type:
    """Infer the type of one entry, before the limit on keys, which concerns all entries of a file."""
    return _type_of(entry, 1, depth_max)


def join(types: Collection[Type]) -> Type:
    """Join types; the join of no type is null."""
    kinds = set(types)
    kinds.discard("null")
    if not kinds:
        return "null"
    if len(kinds) == 1:
        return kinds.pop()
    if kinds <= _INTEGERS:
        return "long64"
    if kinds <= _DOUBLES:
        return "double"
    records = [kind for kind in kinds if isinstance(kind, Record)]
    if len(records) == len(kinds):
        fields: dict[str, set[Type]] = {}
        for record in records:
            for name, kind in record.fields:
                fields.setdefault(name, set()).add(kind)
        return Record(tuple((name, join(fields[name])) for name in sorted(fields)))
    maps = [kind.values for kind in kinds if isinstance(kind, Map)]
    if len(maps) + len(records) == len(kinds):
        return Map(join(maps + [kind for record in records for _, kind in record.fields]))
    arrays = [kind.items for kind in kinds if isinstance(kind, Array)]
    return Array(join(arrays)) if len(arrays) == len(kinds) else "json"


def limit_keys(entry: Type, keys_max: int) -> Type:
    """Turn nested records with more than `keys_max` keys into maps; the entry itself stays a record."""
    assert isinstance(entry, Record), f"an entry is a record, not {entry}"
    return Record(tuple((name, _limit_keys(kind, keys_max)) for name, kind in entry.fields))


def is_over(kind: Type, limits: SchemaBounds) -> bool:
    """Return whether an entry of this type may pass a bound of one schema; its text is estimated generously."""
    fields = sum(1 for _ in paths_of(kind))
    return fields > limits.fields_max or _CHARACTERS_PER_CHARACTER * len(str(kind)) > limits.bytes_max


def schema_differences(expected: Type, published: Type, path: str = "") -> Iterator[str]:
    """Yield the differences of the published schema from the expected one."""
    if expected == published:
        return
    if isinstance(expected, Record) and isinstance(published, Record):
        wanted, given = dict(expected.fields), dict(published.fields)
        for name in sorted(wanted.keys() | given.keys()):
            at = f"{path}.{name}" if path else name
            if name not in given:
                yield f"{at}: field is missing ({_label(wanted[name])})"
            elif name not in wanted:
                yield f"{at}: field occurs in no entry ({_label(given[name])})"
            else:
                yield from schema_differences(wanted[name], given[name], at)
    elif isinstance(expected, Array) and isinstance(published, Array):
        yield from schema_differences(expected.items, published.items, f"{path}[]")
    elif isinstance(expected, Map) and isinstance(published, Map):
        yield from schema_differences(expected.values, published.values, f"{path}{{}}")
    else:
        yield f"{path}: {_label(published)} where the entries make it {_label(expected)}"


def without_subtrees(expected: Type, published: Type) -> Type:
    """Return the expected type with JSON for each field that holds objects or lists and is published as JSON.

    Entries over the limits have such subtrees turned into it.
    """
    if not isinstance(expected, Record) or not isinstance(published, Record):
        return expected
    given = dict(published.fields)
    return Record(
        tuple(
            (name, "json" if given.get(name) == "json" and not isinstance(kind, str) else kind)
            for name, kind in expected.fields
        )
    )


def is_covered_by(own: Type, merged: Type) -> bool:
    """Return whether a pack may hold entries of an own type under a merged one, so that each value reads back equal.

    The merged type may have more nullable fields, give a type to a field that is null, `{}` or `[]` throughout, and
    widen long53 to long64. A pack may have several fields of one name.
    """
    if own in (merged, "null"):
        return True
    if isinstance(own, Record):
        if not own.fields:
            return isinstance(merged, Record | Map)
        given: dict[str, list[Type]] = {}
        for name, kind in merged.fields if isinstance(merged, Record) else ():
            given.setdefault(name, []).append(kind)
        return all(any(is_covered_by(kind, one) for one in given.get(name, ())) for name, kind in own.fields)
    if isinstance(own, Array) and isinstance(merged, Array):
        return is_covered_by(own.items, merged.items)
    if isinstance(own, Map) and isinstance(merged, Map):
        return is_covered_by(own.values, merged.values)
    return own == "long53" and merged == "long64"


def paths_of(kind: Type, at: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the path of every field, nested ones too."""
    if isinstance(kind, Record):
        for name, item in kind.fields:
            yield (*at, name)
            yield from paths_of(item, (*at, name))
    elif isinstance(kind, Array):
        yield from paths_of(kind.items, (*at, "[]"))
    elif isinstance(kind, Map):
        yield from paths_of(kind.values, (*at, "{}"))


def _type_of(value: object, depth: int, depth_max: int) -> Type:
    """Infer a type; `depth` is that of a container in this place."""
    if isinstance(value, str):
        return _TEXTS[type(value)]
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        if -LONG53_MAX <= value <= LONG53_MAX:
            return "long53"
        return "long64" if LONG64_MIN <= value <= LONG64_MAX else "json"
    if isinstance(value, float):
        return "double"
    if isinstance(value, Exact) or depth > depth_max:
        return "json"
    if isinstance(value, DeclaredMap):
        return Map(join([_type_of(item, depth + 1, depth_max) for item in value.values()]))
    if isinstance(value, dict):
        return Record(tuple(sorted((name, _type_of(item, depth + 1, depth_max)) for name, item in value.items())))
    assert isinstance(value, list), f"{type(value)} is not JSON"
    return Array(join([_type_of(item, depth + 1, depth_max) for item in value]))


def _limit_keys(kind: Type, keys_max: int) -> Type:
    if isinstance(kind, Array):
        return Array(_limit_keys(kind.items, keys_max))
    if isinstance(kind, Map):
        return Map(_limit_keys(kind.values, keys_max))
    if not isinstance(kind, Record):
        return kind
    if len(kind.fields) > keys_max:
        return Map(_limit_keys(join([item for _, item in kind.fields]), keys_max))
    return Record(tuple((name, _limit_keys(item, keys_max)) for name, item in kind.fields))


def _label(kind: Type) -> str:
    return kind if isinstance(kind, str) else type(kind).__name__.lower()
