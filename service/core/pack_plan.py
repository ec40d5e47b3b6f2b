"""Which rows of a closed batch go into which object, decided from their types alone, before one is written.

    rows in order -> parts       the rows of one PartitionKey under one exact type
    parts -> objects             an object of its own, or a pack of one schema, maybe of one hour

A PartitionKey whose joined type would pass a bound of one schema, or whose rows a bound of one object, is cut into parts
in the order of arrival; each part is an object of its own, so that references of one PartitionKey stand in order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Literal, NamedTuple

from service.core.avro_schema import META
from service.core.entry_types import SchemaBounds
from service.core.lattice import RecordType, join_records
from service.core.pack_schema import IncompatibleError, merge_entries
from service.core.rows import Rows

Layout = Literal["auto", "pack", "file"]
Hour = tuple[str, int]

FEW_PARTS = 8  # so many PartitionKeys stay files under `auto`
HOUR_PARTS_MIN = 100  # so many make a pack of an hour's own
META_BYTES = 128  # of a row beside its text, with an ordinary topic and user
GROUPS_MAX = 64  # packs with a schema of their own; what fits none of them is an object of its own


class LayoutRules(NamedTuple):
    """How objects are cut; sizes in bytes of entries as JSON text, `pack_bytes_max` in bytes of the object.

    PartitionKeys with more than `packed_bytes_max` keep an object of their own; `object_bytes_max` cuts that.
    """

    layout: Layout
    packed_bytes_max: int
    object_bytes_max: int
    pack_bytes_max: int


class Part(NamedTuple):
    """Rows [begin, end) of the order: those of one PartitionKey under one exact type.

    `size` estimates their bytes in an object, rather too high, from their texts. `group` is the number of the schema
    that it shares with others, None for an object of its own; `hour` is set where the pack is one hour's own.
    """

    key: int
    begin: int
    end: int
    size: int
    entry_type: RecordType
    group: int | None
    hour: Hour | None


class Plan(NamedTuple):
    """The parts in order, and the merged type of each group."""

    order: list[int]
    parts: list[Part]
    merged: list[RecordType]


def plan_objects(rows: Rows, bounds: SchemaBounds, rules: LayoutRules, *, is_one_record: bool = False) -> Plan:
    """Plan the objects of a batch; one record that makes many PartitionKeys is packed under every layout."""
    order = rows.in_order()
    groups = _Groups(bounds)
    layout: Layout = "auto" if is_one_record and rules.layout == "file" else rules.layout
    cut = list(_cut(rows, order, bounds, rules.object_bytes_max))
    parts_of_key = Counter(part.key for part in cut)
    if layout == "file" or (layout == "auto" and len(parts_of_key) <= FEW_PARTS):
        return Plan(order, cut, [])
    packed: list[Part] = []
    for part in cut:
        is_small = part.size <= rules.packed_bytes_max and parts_of_key[part.key] == 1
        packed.append(part._replace(group=groups.assign(part.entry_type)) if is_small else part)
    counts = Counter((part.group, _hour(rows, part)) for part in packed if part.group is not None)
    busy = {place for place, count in counts.items() if count >= HOUR_PARTS_MIN}
    placed = [part._replace(hour=hour) if (part.group, hour := _hour(rows, part)) in busy else part for part in packed]
    return Plan(order, placed, groups.merged)


def _hour(rows: Rows, part: Part) -> Hour:
    key = rows.keys[part.key]
    return key.date, key.hour


def _cut(rows: Rows, order: list[int], bounds: SchemaBounds, object_bytes_max: int) -> Iterator[Part]:
    joins = _Joins(rows.types, bounds)
    key_of, type_of, sizes = rows.key_of, rows.type_of, rows.text_sizes
    begin, end = 0, len(order)
    while begin < end:
        key = key_of[order[begin]]
        entry_type, size, first = rows.types[type_of[order[begin]]], 0, begin
        at = begin
        while at < end and key_of[row := order[at]] == key:
            weight = sizes[row] + META_BYTES
            size += weight
            wider = joins.join(entry_type, type_of[row])
            if wider is None or (size > object_bytes_max and at > first):
                yield Part(key, first, at, size - weight, entry_type, None, None)
                entry_type, size, first = rows.types[type_of[row]], weight, at
            else:
                entry_type = wider
            at += 1
        yield Part(key, first, at, size, entry_type, None, None)
        begin = at


class _Joins:
    """Joins the types of one PartitionKey's rows; each pair is joined once."""

    def __init__(self, types: list[RecordType], bounds: SchemaBounds) -> None:
        self._types = types
        self._bounds = bounds
        self._known: dict[tuple[int, int], RecordType | None] = {}
        self._interned: dict[RecordType, RecordType] = {one: one for one in reversed(types)}

    def join(self, one: RecordType, other: int) -> RecordType | None:
        """Join a type with that of this number; None where the result passes a bound of one schema."""
        if one is self._types[other]:
            return one
        pair = (id(one), other)
        found = self._known.get(pair, one)
        if found is one and pair not in self._known:
            found = self._known[pair] = self._join(one, self._types[other])
        return found

    def _join(self, one: RecordType, other: RecordType) -> RecordType | None:
        bounds = self._bounds
        joined = join_records(one, other, object_keys_max=bounds.limits.object_keys_max)
        if joined.fields > bounds.fields_max or joined.size > bounds.bytes_max:
            return None
        return self._interned.setdefault(joined, joined)


class _Groups:
    """Merges exact types into as few pack schemas as the rule allows, first come first served."""

    def __init__(self, bounds: SchemaBounds) -> None:
        self.merged: list[RecordType] = []
        self._bounds = bounds
        self._known: dict[RecordType, int | None] = {}

    def assign(self, entry_type: RecordType) -> int | None:
        """Give the number of the group that a type goes into; None where there is no room."""
        if entry_type not in self._known:
            self._known[entry_type] = self._find(entry_type)
        return self._known[entry_type]

    def _find(self, entry_type: RecordType) -> int | None:
        for number in range(len(self.merged)):
            merged = self._merge(self.merged[number], entry_type)
            if merged is not None:
                self.merged[number] = merged
                return number
        if len(self.merged) == GROUPS_MAX:
            return None
        self.merged.append(entry_type)
        return len(self.merged) - 1

    def _merge(self, merged: RecordType, entry_type: RecordType) -> RecordType | None:
        bounds = self._bounds
        try:
            wider = merge_entries(merged, entry_type, reserved=(META,), keys_max=bounds.limits.object_keys_max)
        except IncompatibleError:
            return None
        return None if wider.fields > bounds.fields_max or wider.size > bounds.bytes_max else wider
