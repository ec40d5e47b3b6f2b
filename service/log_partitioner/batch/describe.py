"""A part and its written blocks -> the content of its line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from log_partitioner.avro.schema_types import RecordType, Scalar
from log_partitioner.batch.chunk import Blocks
from log_partitioner.batch.pack_plan import Part, Plan
from log_partitioner.batch.reference_lines import Described, absent_fields, root_place, widen
from log_partitioner.batch.rows import Rows

CACHED_FIELDS_MAX = 200_000
FEW_TYPES = 32  # of one part


class Describing:
    """Describes the parts of one batch."""

    def __init__(self, rows: Rows, plan: Plan) -> None:
        self._rows = rows
        self._plan = plan
        # Fields without a value in entries of a type (by number) in a part of another (by identity: the plan keeps it).
        self._absent: dict[tuple[int, int], tuple[str, ...]] = {}

    def describe(self, part: Part, blocks: Blocks, start: int) -> Described:
        """Describe a part whose blocks, all of them, stand from `start` on."""
        rows, planned = self._rows, part.end - part.begin
        assert blocks.rows == planned, f"W3: {blocks.rows} rows of a part are written, {planned} are planned"
        roots: dict[Any, list[int]] = {}
        if rows.roots:
            for row in self._plan.order[part.begin : part.end]:
                if (root := rows.roots.get(row)) is not None:
                    widen(roots, root_place(root), root.offset)
        return Described(
            rows.keys[part.key],
            part.entry_type,
            blocks.rows,
            blocks.earliest_us,
            blocks.latest_us,
            self._nulls_of(blocks.types, part.entry_type),
            start,
            blocks.length,
            {rows.tps[number]: [low, high, count] for number, low, high, count in blocks.sources},
            roots,
        )

    def _nulls_of(self, types: Sequence[tuple[int, int]], entry_type: RecordType) -> Mapping[str, int]:
        """Count the entries without a value by field, ascending by name; the types of entries tell these fields."""
        if len(types) > FEW_TYPES:
            return self._nulls_of_many(types, entry_type)
        nulls: dict[str, int] = {}
        for number, count in types:
            absent = self._absent.get((number, id(entry_type)))
            for name in self._absent_in(number, entry_type) if absent is None else absent:
                nulls[name] = nulls.get(name, 0) + count
        return nulls if len(types) == 1 else dict(sorted(nulls.items()))

    def _nulls_of_many(self, types: Sequence[tuple[int, int]], entry_type: RecordType) -> Mapping[str, int]:
        """Count the same by the entries' fields: each of a thousand types may lack all fields of the others."""
        entries, present = sum(count for _, count in types), Counter[str]()
        for number, count in types:
            for name, child in self._rows.types[number].by_name.items():
                if child is not Scalar.NULL:
                    present[name] += count
        return {name: entries - present[name] for name in entry_type.by_name if present[name] < entries}

    def _absent_in(self, number: int, entry_type: RecordType) -> tuple[str, ...]:
        if len(self._absent) * entry_type.fields > CACHED_FIELDS_MAX:  # a hostile schema has a thousand
            self._absent.clear()
        absent = self._absent[number, id(entry_type)] = absent_fields(self._rows.types[number], entry_type)
        return absent
