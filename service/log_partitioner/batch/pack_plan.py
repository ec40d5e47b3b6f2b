"""Decides which rows of a closed batch go into which object, by their types alone, before one is written.

    rows in order -> parts       the rows of one PartitionKey under one exact type
    parts -> objects             an object of its own, or a pack of one schema, maybe of one hour

A PartitionKey whose joined type would pass a bound of one schema, or whose rows a bound of one object, is cut into
parts in the order of arrival; each part is an object of its own, so that references of one PartitionKey stand in order.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from log_partitioner import native
from log_partitioner.avro.container import Codec
from log_partitioner.avro.schema import META
from log_partitioner.avro.schema_types import RecordType, Type, field_size, join
from log_partitioner.batch.pack_schema import Merging
from log_partitioner.batch.reference_lines import SOURCE_BYTES
from log_partitioner.batch.rows import Rows
from log_partitioner.config.settings import Layout, SchemaBounds, Settings
from log_partitioner.input.decode import RecordDecoder

Hour = tuple[str, int]
_Run = tuple[int, int, int, int, list[int]]
"""Rows of one PartitionKey as [begin, end) of an order: (key, begin, end, bytes of texts, types in their order)."""

MESSAGE_HEAD_BYTES = 16_000  # of a message of references, with the longest names, beside lines, lists and schema text
FEW_PARTS = 8  # so many PartitionKeys stay files under `auto`
HOUR_PARTS_MIN = 100  # so many make a pack of an hour's own
META_BYTES = 128  # of a row beside its text, with an ordinary topic and user
KNOWN_TYPES_MAX = 16  # of one PartitionKey; what more make is hardly met again
LINE_HEAD_BYTES = 25_600  # a user of the most characters, each escaped to six bytes, and some numbers
LINE_SOURCE_BYTES = 60  # the four numbers of one TopicPartition
PROJECTED_SHARE = 0.75  # a projection has less than a third of a schema's estimated bytes: a quarter of a line
GROUPS_MAX = 64  # packs with a schema of their own that are open at once
COMPARED_MAX = 50_000_000  # fields of types with those of packs: some seconds


class SealRules(NamedTuple):
    """The rules of sealing; sizes in bytes. `decode` reads the text of an entry as the recorder's decoder did.

    PartitionKeys with more than `packed_bytes_max` of JSON text keep an object of their own; `object_bytes_max` of text
    cuts that. `pack_bytes_max` counts bytes of the object. A line of a reference message has room for
    `line_bytes_max`, all its lines for `group_bytes_max`; a part with too many TopicPartitions for a line is cut, too.
    """

    bounds: SchemaBounds
    decode: Callable[[bytes], Any]
    layout: Layout
    packed_bytes_max: int
    object_bytes_max: int
    pack_bytes_max: int
    line_bytes_max: int
    group_bytes_max: int
    codec: Codec
    block_bytes: int


def seal_rules(settings: Settings) -> SealRules:
    """Turn settings into the rules of sealing; entries are decoded again exactly as they were recorded."""
    spool = settings.spool
    lines_max = settings.kafka.message_bytes_max - settings.kafka.inline_text_max - MESSAGE_HEAD_BYTES
    return SealRules(
        bounds=settings.schema_bounds,
        decode=RecordDecoder(settings.input).json.decode_again,
        layout=settings.layout,
        packed_bytes_max=spool.packed_bytes_max,
        object_bytes_max=spool.object_bytes_max,
        pack_bytes_max=spool.pack_bytes_max,
        line_bytes_max=lines_max,
        group_bytes_max=lines_max,
        codec=spool.codec,
        block_bytes=spool.block_bytes,
    )


class Part(NamedTuple):
    """Rows [begin, end) of the order: those of one PartitionKey under one exact type.

    `size` estimates their bytes in an object, rather too high, from their texts. `group` is the number of the schema
    that it shares with others, None for an object of its own; `hour` is set if the pack is one hour's own.
    """

    key: int
    begin: int
    end: int
    size: int
    entry_type: RecordType
    group: int | None
    hour: Hour | None


class Plan(NamedTuple):
    """The parts in order, and the merged type of each group.

    Each group from `passing` on ends when the next one begins.
    """

    order: array[int]
    parts: list[Part]
    merged: list[RecordType]
    passing: int = 0


def plan_objects(rows: Rows, rules: SealRules, *, is_one_record: bool = False) -> Plan:
    """Plan the objects of a batch; one record that makes many PartitionKeys is packed under every layout."""
    order = rows.in_order()
    groups = _Groups(rules.bounds)
    layout: Layout = "auto" if is_one_record and rules.layout == "file" else rules.layout
    parts = list(_cut(rows, order, rules))
    parts_of_key = Counter(part.key for part in parts)
    if layout == "file" or (layout == "auto" and len(parts_of_key) <= FEW_PARTS):
        return Plan(order, parts, [])
    group_of: list[int | None] = [None] * len(parts)
    for at, part in enumerate(parts):
        is_describable = part.entry_type.size <= PROJECTED_SHARE * rules.line_bytes_max
        if part.size <= rules.packed_bytes_max and is_describable and parts_of_key[part.key] == 1:
            group_of[at] = groups.assign(part.entry_type)
    hours = [rows.keys[part.key][1:] for part in parts]
    counts = Counter(zip(group_of, hours, strict=True))
    for at, (key, begin, end, size, entry_type, _, _) in enumerate(parts):  # in place: there may be a million
        group, hour = group_of[at], hours[at]
        if group is not None:
            is_busy = counts[group, hour] >= HOUR_PARTS_MIN
            parts[at] = Part(key, begin, end, size, entry_type, group, hour if is_busy else None)
    return Plan(order, parts, groups.merged(), groups.passing)


def _sources_max(rows: Rows, line_bytes_max: int) -> int:
    """Return the most TopicPartitions that the rows of one line may have, beside the user and the exact schema."""
    longest = max((len(tp.topic) for tp in rows.tps), default=0)
    room = line_bytes_max * 3 // 4 - LINE_HEAD_BYTES
    return max(1, room // (SOURCE_BYTES + longest + LINE_SOURCE_BYTES))


def _cut(rows: Rows, order: array[int], rules: SealRules) -> Iterator[Part]:
    joined = _Joined(rows.types, rules.bounds)
    sources_max = _sources_max(rows, rules.line_bytes_max)
    for run in _runs(rows, order):
        key, begin, end, text_bytes, types = run
        size = text_bytes + META_BYTES * (end - begin)
        whole = joined.of(types) if size <= rules.object_bytes_max and len(rows.tps) <= sources_max else None
        if whole is not None:
            yield Part(key, begin, end, size, whole, None, None)
        else:
            yield from _cut_run(rows, order, run, joined, rules.object_bytes_max, sources_max)


def _runs(rows: Rows, order: array[int]) -> Iterable[_Run]:
    """Split the order by PartitionKey."""
    if rows.is_fast:
        assert native.module is not None, "the fast lane is not installed"
        return native.module.runs(order, rows.key_of, rows.type_of, rows.text_sizes)  # type: ignore[no-any-return]
    return _python_runs(rows, order)


def _python_runs(rows: Rows, order: Sequence[int]) -> Iterator[_Run]:
    key_of, type_of, sizes = rows.key_of, rows.type_of, rows.text_sizes
    begin, end = 0, len(order)
    while begin < end:
        key, at, size = key_of[order[begin]], begin, 0
        types: dict[int, None] = {}
        while at < end and key_of[row := order[at]] == key:
            types[type_of[row]] = None
            size += sizes[row]
            at += 1
        yield key, begin, at, size, [*types]
        begin = at


def _cut_run(
    rows: Rows, order: Sequence[int], run: _Run, joined: _Joined, bytes_max: int, sources_max: int
) -> Iterator[Part]:
    """Cut the rows of one PartitionKey in the order of arrival, wherever they pass a bound."""
    key, begin, end, _, _ = run
    joined.begin(rows.type_of[order[begin]])
    size, first = 0, begin
    sources: set[int] = set()
    for at in range(begin, end):
        row = order[at]
        weight = rows.text_sizes[row] + META_BYTES
        size += weight
        sources.add(rows.tp_of[row])
        is_full = (size > bytes_max and at > first) or len(sources) > sources_max
        if is_full or not joined.add(rows.type_of[row]):
            yield Part(key, first, at, size - weight, joined.entry_type(), None, None)
            joined.begin(rows.type_of[row])
            size, first, sources = weight, at, {rows.tp_of[row]}
    yield Part(key, first, end, size, joined.entry_type(), None, None)


class _Joined:
    """The join of the types of one part as it grows: a row costs the size of its own type, not that of the join."""

    def __init__(self, types: Sequence[RecordType], bounds: SchemaBounds) -> None:
        self._types = types
        self._bounds = bounds
        self._known: dict[frozenset[int], RecordType] = {}
        self._wholes: dict[tuple[int, ...], RecordType | None] = {}

    def of(self, numbers: Sequence[int]) -> RecordType | None:
        """Return the join of these types, remembered if they are few; None if they pass a bound of a schema."""
        if len(numbers) == 1:
            return self._types[numbers[0]]
        known = tuple(numbers) if len(numbers) <= KNOWN_TYPES_MAX else None
        if known in self._wholes:
            return self._wholes[known]
        self.begin(numbers[0])
        whole = self.entry_type() if all(map(self.add, numbers)) else None
        if known is not None:
            self._wholes[known] = whole
        return whole

    def begin(self, number: int) -> None:
        """Begin a part with the type of this number."""
        first = self._types[number]
        self._numbers = {number}
        self._by_name, self._is_firsts = first.by_name, True
        self._fields, self._size = first.fields, first.size

    def add(self, number: int) -> bool:
        """Join the type of this number; False, and nothing is changed, if the result passes a bound of a schema."""
        if number in self._numbers:
            return True
        keys_max, fields, size = self._bounds.object_keys_max, self._fields, self._size
        changed: dict[str, Type] = {}
        for name, child in self._types[number].by_name.items():
            old = self._by_name.get(name)
            new = child if old is None else join(old, child, object_keys_max=keys_max)
            if new is not old:
                changed[name] = new
                fields += new.fields + 1 if old is None else new.fields - old.fields
                size += field_size(name, new) if old is None else new.size - old.size
        if fields > self._bounds.fields_max or size > self._bounds.bytes_max:
            return False
        if changed:
            if self._is_firsts:  # the first type's own, which others hold
                self._by_name, self._is_firsts = dict(self._by_name), False
            self._by_name.update(changed)
            self._fields, self._size = fields, size
        self._numbers.add(number)
        return True

    def entry_type(self) -> RecordType:
        """Return the join; the same object for the same few types."""
        if len(self._numbers) == 1:
            return self._types[next(iter(self._numbers))]
        if len(self._numbers) > KNOWN_TYPES_MAX:
            return RecordType(self._by_name)
        numbers = frozenset(self._numbers)
        known = self._known.get(numbers)
        if known is None:
            known = self._known[numbers] = RecordType(self._by_name)
        return known


class _Groups:
    """Merges exact types into as few pack schemas as the rule allows, first come first served.

    A type that fits none of the first GROUPS_MAX groups, or whose search took too long, goes into a group with types
    beside each other. Such a group takes any type until its schema is full; then the next one begins. The number of
    these groups is bounded by the number of fields of all types.
    """

    def __init__(self, bounds: SchemaBounds) -> None:
        self.passing = 0
        self._bounds = bounds
        self._groups: list[Merging] = []
        self._known: dict[RecordType, int] = {}

    def merged(self) -> list[RecordType]:
        """Return the merged type of each group."""
        return [group.entry_type for group in self._groups]

    def assign(self, entry_type: RecordType) -> int:
        """Return the number of the group that a type goes into."""
        number = self._known.get(entry_type)
        if number is None or self.passing <= number < len(self._groups) - 1:
            number = self._known[entry_type] = self._find(entry_type)
        return number

    def _find(self, entry_type: RecordType) -> int:
        bounds, groups = self._bounds, self._groups
        is_passing = sum(group.compared for group in groups[: self.passing]) > COMPARED_MAX
        for number in range(0 if is_passing else self.passing):
            if groups[number].add(entry_type, fields_max=bounds.fields_max, bytes_max=bounds.bytes_max):
                return number
        is_passing = is_passing or self.passing == GROUPS_MAX
        last = groups[-1] if is_passing and len(groups) > self.passing else None
        if last is None or not last.add(entry_type, fields_max=bounds.fields_max, bytes_max=bounds.bytes_max):
            types_max = bounds.fields_max if is_passing else 1
            keys_max = bounds.object_keys_max
            groups.append(Merging(entry_type, reserved=(META,), keys_max=keys_max, types_max=types_max))
            self.passing += not is_passing
        return len(groups) - 1
