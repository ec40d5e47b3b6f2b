"""The lattice of inferred types, and its join (DESIGN 3.3).

    null < every other type                                   join is associative, commutative and idempotent;
    long53 < long64                                           json is the top.
    long53 < double                                           long64 v double = json: neither holds the other.
    record < map

bytes, decimal, timestamp and date are types that formats declare (`formats.values`); no text of JSON has one.

A record is an object with known keys, a map an object that its format calls one, or that has more distinct keys than
`SchemaBounds.object_keys_max`, `{}` a record without fields, `[]` an array of null. Types are immutable and compare by
value, identity first.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum
from functools import partial, reduce


class Scalar(Enum):
    """The types without parts."""

    NULL = "null"
    BOOL = "bool"
    LONG53 = "long53"
    LONG64 = "long64"
    DOUBLE = "double"
    STRING = "string"
    JSON = "json"
    BYTES = "bytes"
    DECIMAL = "decimal"
    TIMESTAMP = "timestamp"
    DATE = "date"

    fields: int
    size: int

    def __init__(self, _text: str) -> None:
        """Set no fields, and some bytes of schema text, as types with parts have them."""
        self.fields = 0
        self.size = 40

    __hash__ = object.__hash__  # members are singletons; Enum's own hash is Python code


def field_size(name: str, child: Type) -> int:
    """Estimate the bytes of schema text of one field.

    A name stands in the text at most three times (sanitised, original, record name), escaped to six bytes.
    """
    return 60 + 4 * len(name) + child.size


class RecordType:
    """An object whose keys are columns; `by_name` is sorted by name."""

    __slots__ = ("_hash", "by_name", "fields", "size")
    fields: int
    size: int

    def __init__(self, by_name: dict[str, Type]) -> None:
        self.by_name = {name: by_name[name] for name in sorted(by_name)}
        fields, size = len(by_name), 80
        for name, child in by_name.items():
            fields += child.fields
            size += field_size(name, child)
        self.fields, self.size = fields, size
        self._hash = hash(tuple(self.by_name.items()))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, RecordType) and self._hash == other._hash and self.by_name == other.by_name

    def __repr__(self) -> str:
        return f"RecordType({self.by_name!r})"


class ArrayType:
    """A list; all its items have one type."""

    __slots__ = ("_hash", "fields", "item", "size")
    fields: int
    size: int

    def __init__(self, item: Type) -> None:
        self.item = item
        self.fields = item.fields
        self.size = 40 + item.size
        self._hash = hash(("array", item))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ArrayType) and self._hash == other._hash and self.item == other.item

    def __repr__(self) -> str:
        return f"ArrayType({self.item!r})"


class MapType:
    """An object whose keys are data; all its values have one type."""

    __slots__ = ("_hash", "fields", "size", "value")
    fields: int
    size: int

    def __init__(self, value: Type) -> None:
        self.value = value
        self.fields = value.fields
        self.size = 40 + value.size
        self._hash = hash(("map", value))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MapType) and self._hash == other._hash and self.value == other.value

    def __repr__(self) -> str:
        return f"MapType({self.value!r})"


Type = Scalar | RecordType | ArrayType | MapType

EMPTY_RECORD = RecordType({})
_NUMBER_JOINS = {
    frozenset({Scalar.LONG53, Scalar.LONG64}): Scalar.LONG64,
    frozenset({Scalar.LONG53, Scalar.DOUBLE}): Scalar.DOUBLE,
}


def join(left: Type, right: Type, *, object_keys_max: int) -> Type:
    """Return the least type that holds the values of both.

    Returns `left` itself, the same object, when it already holds `right`: callers compare by identity.
    """
    if left is right or right is Scalar.NULL or left is Scalar.JSON:
        return left
    if left is Scalar.NULL or right is Scalar.JSON:
        return right
    if isinstance(left, Scalar) or isinstance(right, Scalar):
        if isinstance(left, Scalar) and isinstance(right, Scalar):
            return _NUMBER_JOINS.get(frozenset({left, right}), Scalar.JSON)
        return Scalar.JSON
    if isinstance(left, ArrayType) or isinstance(right, ArrayType):
        if isinstance(left, ArrayType) and isinstance(right, ArrayType):
            item = join(left.item, right.item, object_keys_max=object_keys_max)
            return left if item is left.item else ArrayType(item)
        return Scalar.JSON
    if isinstance(left, RecordType) and isinstance(right, RecordType):
        joined = join_records(left, right, object_keys_max=object_keys_max)
        return joined if len(joined.by_name) <= object_keys_max else to_map(joined, object_keys_max=object_keys_max)
    left_map = left if isinstance(left, MapType) else to_map(left, object_keys_max=object_keys_max)
    right_map = right if isinstance(right, MapType) else to_map(right, object_keys_max=object_keys_max)
    value = join(left_map.value, right_map.value, object_keys_max=object_keys_max)
    return left_map if value is left_map.value else MapType(value)


def join_records(left: RecordType, right: RecordType, *, object_keys_max: int) -> RecordType:
    """Join field by field, without a bound on their number, as the top level of an entry needs it."""
    if left is right:
        return left
    changed: dict[str, Type] = {}
    mine = left.by_name
    for name, theirs in right.by_name.items():
        old = mine.get(name)
        if old is None:
            changed[name] = theirs
        else:
            new = join(old, theirs, object_keys_max=object_keys_max)
            if new is not old:
                changed[name] = new
    return RecordType({**mine, **changed}) if changed else left


def join_entries(types: Collection[RecordType], *, object_keys_max: int) -> RecordType:
    """Join many types of entries at once: a field costs what it has, however many types there are."""
    by_name: dict[str, set[Type]] = {}
    for one in types:
        for name, child in one.by_name.items():
            by_name.setdefault(name, set()).add(child)
    return RecordType({name: join_all(some, object_keys_max=object_keys_max) for name, some in by_name.items()})


def join_all(types: Collection[Type], *, object_keys_max: int) -> Type:
    """Join many types of one position."""
    distinct = {*types} - {Scalar.NULL}
    if len(distinct) <= 1:
        return distinct.pop() if distinct else Scalar.NULL
    records = [one for one in distinct if isinstance(one, RecordType)]
    if len(records) == len(distinct):
        joined = join_entries(records, object_keys_max=object_keys_max)
        return joined if len(joined.by_name) <= object_keys_max else to_map(joined, object_keys_max=object_keys_max)
    arrays = [one for one in distinct if isinstance(one, ArrayType)]
    if len(arrays) == len(distinct):
        return ArrayType(join_all([one.item for one in arrays], object_keys_max=object_keys_max))
    return reduce(partial(join, object_keys_max=object_keys_max), distinct)


def to_map(record: RecordType, *, object_keys_max: int) -> MapType:
    """Turn an object with too many keys into a map of the join of its fields."""
    return MapType(join_all(record.by_name.values(), object_keys_max=object_keys_max))
