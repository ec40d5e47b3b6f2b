"""Decides which PartitionKeys may share a pack: by a join of exact types that changes no value, with projections back.

The merged schema may have more nullable fields, give a type to a field that is null, `{}` or `[]` throughout, and widen
long53 to long64; it changes no other type and no Avro name (DESIGN 6). Then every value reads back equal, and the exact
schema is a projection of the merged one (`log_partitioner.formats.projection`).

If types need too many packs, top-level fields of one name whose types do not merge stand beside each other. Then any
types share a pack until its schema is full, and each PartitionKey uses one of these fields.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import partial
from itertools import count
from operator import itemgetter
from sys import maxsize
from typing import Any

from log_partitioner.avro.names import BESIDE, avro_names, beside, original_of, sanitise
from log_partitioner.avro.schema_types import ArrayType, MapType, RecordType, Scalar, Type, field_size
from log_partitioner.formats.projection import EMPTY_OBJECT, ITEMS, LONG53, NULL, VALUES

NAMING_COST = 20  # what giving names to fields costs, beside looking at them
_LONGS = (Scalar.LONG53, Scalar.LONG64)


class IncompatibleError(ValueError):
    """The two may not share a pack."""


def _merge(left: Type, right: Type, keys_max: int) -> Type:
    if left is right or right is Scalar.NULL:
        return left
    if left is Scalar.NULL:
        return right
    if isinstance(left, RecordType):
        if isinstance(right, RecordType):
            return _merge_records(left, right, keys_max)
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
    raise IncompatibleError(left, right)  # without words: their texts may be long, and nobody reads them


def _merge_records(left: RecordType, right: RecordType, keys_max: int) -> RecordType:
    if left == right:
        return left
    mine = left.by_name
    changed = {name: theirs for name, theirs in right.by_name.items() if name not in mine}
    keys = len(mine) + len(changed)
    if keys > keys_max:
        raise IncompatibleError(f"more than {keys_max} keys")
    for name, theirs in right.by_name.items():
        if name not in changed:
            new = _merge(mine[name], theirs, keys_max)
            if new is not mine[name]:
                changed[name] = new
    merged = RecordType({**mine, **changed}) if changed else left
    if len(mine) < keys or len(right.by_name) < keys:
        _require_names((left, right), merged.by_name)
    return merged


def _require_names(owns: tuple[RecordType, ...], merged: Collection[str], reserved: tuple[str, ...] = ()) -> None:
    """Refuse names of one record together if one of its own gets another Avro name beside the others."""
    if len({*reserved, *map(_plain_name, merged)}) == len(reserved) + len(merged):
        return  # each is its original's alone, in any company
    names = avro_names(merged, reserved=reserved)
    for own in owns:
        for original, name in avro_names(own.by_name, reserved=reserved).items():
            if names[original] != name:
                raise IncompatibleError(f"{original!r} is {name} alone, {names[original]} beside others")


def _plain_name(original: str) -> str:
    """Return the Avro name that a field has if no other field would have it; in lower case, as names are compared."""
    return sanitise(original).lower()


class Merging:
    """The growing type of a pack's entries: adding a type costs its own fields, unless names collide.

    `reserved` are the Avro names that no top-level field gets; nested objects have at most `keys_max` keys. If
    `types_max` is above one, a name may have as many fields beside each other, and Avro names are the pack's own.
    `compared` counts the fields that were compared.
    """

    def __init__(self, first: RecordType, *, reserved: tuple[str, ...], keys_max: int, types_max: int = 1) -> None:
        self.compared = 0
        self._reserved = reserved
        self._keys_max = keys_max
        self._types_max = types_max
        self._entry_type: RecordType | None = first
        self._by_name = dict(first.by_name)
        self._fields, self._size = first.fields, first.size
        self._names: set[str] | None = set(reserved)  # in lower case; None once two of them are the same
        self._take(first.by_name)

    @property
    def entry_type(self) -> RecordType:
        """The join of all types added so far."""
        if self._entry_type is None:
            self._entry_type = RecordType(self._by_name)
        return self._entry_type

    def add(self, own: RecordType, *, fields_max: int, bytes_max: int) -> bool:
        """Merge one more type; False, and nothing is changed, if it does not merge, or passes a bound of one schema."""
        self.compared += own.fields
        changed: dict[str, Type] = {}
        new: list[str] = []
        fields, size = self._fields, self._size
        try:
            for name, child in own.by_name.items():
                key, merged = self._place(name, child)
                old = self._by_name.get(key)
                if old is None:
                    new.append(key)
                    fields, size = fields + 1 + merged.fields, size + field_size(key, merged)
                elif merged is not old:
                    fields, size = fields + merged.fields - old.fields, size + merged.size - old.size
                if merged is not old:
                    changed[key] = merged
            if fields > fields_max or size > bytes_max:
                return False
            if self._types_max == 1 and not self._are_free(new):
                self.compared += NAMING_COST * (self._fields + own.fields)
                if new or len(own.by_name) < len(self._by_name):
                    _require_names((self.entry_type, own), [*self._by_name, *new], self._reserved)
        except IncompatibleError:
            return False
        if changed:
            self._take(new)
            self._by_name.update(changed)
            self._fields, self._size, self._entry_type = fields, size, None
        return True

    def _place(self, name: str, child: Type) -> tuple[str, Type]:
        """Return the key of the first field of a name into which a type goes, and the field's merged type.

        Raises:
            IncompatibleError: none takes it, and the name has as many as it may have.
        """
        for number in range(self._types_max):
            key = beside(name, number)
            old = self._by_name.get(key)
            if old is None:
                return key, child
            try:
                return key, _merge(old, child, self._keys_max)
            except IncompatibleError:
                continue
        raise IncompatibleError(name)

    def _are_free(self, originals: list[str]) -> bool:
        """Return whether every name, these included, belongs to one original: then no other fields can change it."""
        names = set(map(_plain_name, originals))
        return self._names is not None and len(names) == len(originals) and self._names.isdisjoint(names)

    def _take(self, originals: Iterable[str]) -> None:
        for original in originals:
            name = _plain_name(original)
            if self._names is None or name in self._names:
                self._names = None
                return
            self._names.add(name)


class MergedFields:
    """The fields of a merged type by number, and which of them a PartitionKey has."""

    def __init__(self, merged: RecordType) -> None:
        self._merged = merged
        self._children = [*merged.by_name.values()]
        self._numbers = {key: number for number, key in enumerate(merged.by_name)}
        self._many = {original_of(key) for key in merged.by_name if BESIDE in key}

    def __len__(self) -> int:
        return len(self._children)

    @property
    def are_beside(self) -> bool:
        """Whether a name has several fields."""
        return bool(self._many)

    def of(self, own: RecordType) -> list[tuple[str, int, Type]]:
        """Return name, number and type of the merged field for each field of an exact type; ascending."""
        numbers = self.numbers(own)
        found = [(name, numbers[name], self._children[numbers[name]]) for name in own.by_name]
        return sorted(found, key=itemgetter(1)) if self._many else found

    def numbers(self, own: RecordType) -> Mapping[str, int]:
        """Return the numbers of these fields by name."""
        if not self._many:
            return self._numbers
        return {
            name: self._first_holding(name, child) if name in self._many else self._numbers[name]
            for name, child in own.by_name.items()
        }

    def _first_holding(self, name: str, child: Type) -> int:
        """Return the number of the first field of a name that holds a type: the one that took it."""
        for number in map(self._numbers.__getitem__, map(partial(beside, name), count())):
            try:
                if _merge(self._children[number], child, maxsize) is self._children[number]:
                    return number
            except IncompatibleError:
                continue
        raise AssertionError("the numbers end before")

    def projection(self, own: RecordType) -> Any:
        """Return the projection that makes an exact type out of the merged one; None if equal."""
        if own == self._merged:
            return None
        return [
            number if own.by_name[name] == child else [number, _projection(own.by_name[name], child)]
            for name, number, child in self.of(own)
        ]


def _projection(own: Type, merged: Type) -> Any:
    """Project one position whose types differ."""
    if own is Scalar.NULL:
        return NULL
    if own is Scalar.LONG53:
        return LONG53
    if isinstance(own, RecordType):
        return MergedFields(merged).projection(own) if own.by_name and isinstance(merged, RecordType) else EMPTY_OBJECT
    if isinstance(own, ArrayType) and isinstance(merged, ArrayType):
        return {ITEMS: _projection(own.item, merged.item)}
    assert isinstance(own, MapType) and isinstance(merged, MapType), f"{own} did not go into {merged}"  # noqa: PT018
    return {VALUES: _projection(own.value, merged.value)}
