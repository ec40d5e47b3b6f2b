"""Decides which rows of a closed batch go into which object, by their types alone, before one is written.

    rows in order -> parts       the rows of one PartitionKey under one exact type
    parts -> objects             an object of its own, or a pack of one schema, maybe of one hour

A PartitionKey whose joined type would pass a bound of one schema, or whose rows a bound of one object, is cut into
parts in the order of arrival; each part is an object of its own, so that references of one PartitionKey stand in order.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from log_partitioner.avro.container import Codec
from log_partitioner.batch.reference_lines import SOURCE_BYTES
from log_partitioner.batch.rows import Rows
from log_partitioner.batch.types import CompiledTypes, Types
from log_partitioner.config.settings import Layout, SchemaBounds, Settings
from log_partitioner.input.json_text import JsonDecoder

Hour = tuple[str, int]
_Run = tuple[int, int, int, int, int | None]
"""Rows of one PartitionKey as [begin, end) of an order: (key, begin, end, bytes of texts, joined type if it fits)."""

MESSAGE_HEAD_BYTES = 16_000  # of a references message beside lines, lists and schema text, with the longest names
FEW_PARTS = 8  # so many PartitionKeys stay files under `auto`
HOUR_PARTS_MIN = 100  # so many make a pack of an hour's own
META_BYTES = 128  # of a row beside its text, with an ordinary topic and user
LINE_HEAD_BYTES = 25_600  # a user of the most characters, each escaped to six bytes, and some numbers
LINE_SOURCE_BYTES = 60  # the four numbers of one TopicPartition
PROJECTED_SHARE = 0.75  # a projection has less than a third of a schema's estimated bytes: a quarter of a line
GROUPS_MAX = 8  # groups that are open at once
MADE_BYTES_MAX = 16 * 1024 * 1024  # of merged types that are kept while packs are planned
SCHEMA_TEXTS_MIN = 100  # texts are compressed to a tenth, headers are not


class SealRules(NamedTuple):
    """The rules of sealing; sizes in bytes. `decode` reads the text of an entry as the recorder's decoder did.

    PartitionKeys with more than `packed_bytes_max` of JSON text, and `schema_texts_min` times their schema, keep an
    object of their own; `object_bytes_max` of text cuts that. `pack_bytes_max` counts bytes of the object. A line of a
    reference message has room for `line_bytes_max`, all its lines for `group_bytes_max`; a part with too many
    TopicPartitions for a line is cut, too.
    """

    bounds: SchemaBounds
    decode: Callable[[bytes], Any]
    layout: Layout
    packed_bytes_max: int
    schema_texts_min: int
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
        decode=JsonDecoder(keep_inexact_text=settings.input.inexact_numbers == "text").decode_again,
        layout=settings.layout,
        packed_bytes_max=spool.packed_bytes_max,
        schema_texts_min=SCHEMA_TEXTS_MIN,
        object_bytes_max=spool.object_bytes_max,
        pack_bytes_max=spool.pack_bytes_max,
        line_bytes_max=lines_max,
        group_bytes_max=lines_max,
        codec=spool.codec,
        block_bytes=spool.block_bytes,
    )


class Part(NamedTuple):
    """Rows [begin, end) of the order, all of one PartitionKey under one exact type.

    `size` estimates their bytes in an object, rather too high, from their texts. A type is its number among the rows'.
    `group` is the number of the schema that it shares with others, None for an object of its own; `hour` is set if the
    pack is one hour's own.
    """

    key: int
    begin: int
    end: int
    size: int
    entry_type: int
    group: int | None
    hour: Hour | None


class Plan(NamedTuple):
    """The parts in order, the merged type of each group, and which group ends where another one begins."""

    order: array[int]
    parts: list[Part]
    merged: Sequence[int]
    replaces: Mapping[int, int]


def plan_objects(rows: Rows, rules: SealRules) -> Plan:
    """Plan the objects of a batch."""
    order, layout = rows.in_order(), rules.layout
    parts = list(_cut(rows, order, rules))
    parts_of_key = Counter(part.key for part in parts)
    if layout == "file" or (layout == "auto" and len(parts_of_key) <= FEW_PARTS):
        return Plan(order, parts, [], {})
    groups = _Groups(rows.types)  # the types of all parts are there
    group_of: list[int | None] = [None] * len(parts)
    for at, part in enumerate(parts):
        schema_bytes = rows.types.size(part.entry_type)
        is_small = part.size <= max(rules.packed_bytes_max, rules.schema_texts_min * schema_bytes)
        if is_small and schema_bytes <= PROJECTED_SHARE * rules.line_bytes_max and parts_of_key[part.key] == 1:
            group_of[at] = groups.assign(part.entry_type)
    hours = [rows.keys[part.key][1:] for part in parts]
    counts = Counter(zip(group_of, hours, strict=True))
    for at, (key, begin, end, size, entry_type, _, _) in enumerate(parts):  # in place: there may be a million
        group, hour = group_of[at], hours[at]
        if group is not None:
            is_busy = counts[group, hour] >= HOUR_PARTS_MIN
            parts[at] = Part(key, begin, end, size, entry_type, group, hour if is_busy else None)
    return Plan(order, parts, groups.merged, groups.replaces)


def _sources_max(rows: Rows, line_bytes_max: int) -> int:
    """Return the most TopicPartitions that the rows of one line may have, beside the user and the exact schema."""
    longest = max((len(tp.topic) for tp in rows.tps), default=0)
    room = line_bytes_max * 3 // 4 - LINE_HEAD_BYTES
    return max(1, room // (SOURCE_BYTES + longest + LINE_SOURCE_BYTES))


def _cut(rows: Rows, order: array[int], rules: SealRules) -> Iterator[Part]:
    sources_max = _sources_max(rows, rules.line_bytes_max)
    for key, begin, end, text_bytes, whole in _runs(rows, order):
        size = text_bytes + META_BYTES * (end - begin)
        if whole is not None and size <= rules.object_bytes_max and len(rows.tps) <= sources_max:
            yield Part(key, begin, end, size, whole, None, None)
        else:
            yield from _cut_run(rows, order, (key, begin, end), rules.object_bytes_max, sources_max)


def _runs(rows: Rows, order: array[int]) -> Iterable[_Run]:
    """Split the order by PartitionKey."""
    if isinstance(rows.types, CompiledTypes):
        return rows.types.compiled.runs(order, rows.key_of, rows.type_of, rows.text_sizes)
    return _python_runs(rows, order)


def _python_runs(rows: Rows, order: Sequence[int]) -> Iterator[_Run]:
    key_of, type_of, sizes = rows.key_of, rows.type_of, rows.text_sizes
    begin = 0
    for key, run in groupby(order, key_of.__getitem__):
        its_rows = [*run]
        end = begin + len(its_rows)
        types = {type_of[row] for row in its_rows}
        yield key, begin, end, sum(sizes[row] for row in its_rows), rows.types.join([*types])
        begin = end


def _cut_run(
    rows: Rows, order: Sequence[int], run: tuple[int, int, int], bytes_max: int, sources_max: int
) -> Iterator[Part]:
    """Cut the rows of one PartitionKey in the order of arrival, wherever they pass a bound."""
    key, begin, end = run
    while begin < end:
        size, at = 0, begin
        sources: set[int] = set()
        while at < end:
            row = order[at]
            weight = rows.text_sizes[row] + META_BYTES
            sources.add(rows.tp_of[row])
            if at > begin and (size + weight > bytes_max or len(sources) > sources_max):
                break
            size += weight
            at += 1
        behind, entry_type = _fitting(rows, order[begin:at])
        behind += begin
        size -= sum(rows.text_sizes[row] + META_BYTES for row in order[behind:at])
        yield Part(key, begin, behind, size, entry_type, None, None)
        begin = behind


def _fitting(rows: Rows, some: Sequence[int]) -> tuple[int, int]:
    """Return how many of the first rows fit into one schema, at least one, and their joined type."""
    types = [rows.type_of[row] for row in some]
    fits, beyond, joined = 1, len(types) + 1, types[0]
    while beyond - fits > 1:
        count = min(2 * fits, len(types)) if beyond > len(types) else (fits + beyond) // 2
        found = rows.types.join([*dict.fromkeys(types[:count])])
        if found is None:
            beyond = count
        else:
            fits, joined = count, found
    return fits, joined


class _Groups:
    """Merges exact types into few pack schemas, first come first served.

    A type goes into the group that has most of its top-level names, if that has half of them, or no more groups may be
    open. A group whose schema is full ends, and another one begins in its place.
    """

    def __init__(self, types: Types) -> None:
        self.merged: list[int] = []
        self.replaces: dict[int, int] = {}
        self._types = types
        self._kept, self._made_at = len(types), types.memory_bytes
        self._open: list[int] = []
        self._known: dict[int, int] = {}

    def assign(self, entry_type: int) -> int:
        """Return the number of the group that a type goes into."""
        number = self._known.get(entry_type)
        if number is None or number not in self._open:
            number = self._known[entry_type] = self._find(entry_type)
        return number

    def _find(self, entry_type: int) -> int:
        types, merged, groups = self._types, self.merged, self._open
        shared = [types.shared(merged[number], entry_type) for number in groups]
        most = max(shared, default=0)
        new = len(merged)
        if groups and (2 * most >= types.width(entry_type) or len(groups) == GROUPS_MAX):
            best = groups[shared.index(most)]
            found = types.merged(merged[best], entry_type)
            if found is not None:
                merged[best] = found
                if types.memory_bytes - self._made_at > MADE_BYTES_MAX:
                    self.merged = types.keep_only(self._kept, merged)
                    self._made_at = types.memory_bytes
                return best
            groups.remove(best)
            self.replaces[new] = best
        groups.append(new)
        merged.append(entry_type)
        return new
