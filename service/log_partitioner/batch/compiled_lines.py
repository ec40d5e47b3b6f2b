"""Lines of an object that holds several parts, by compiled code; `LineWriter` writes the same lines in Python.

Compiled code knows no roots; if rows have one, `LineWriter` writes all lines of their batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from log_partitioner import native
from log_partitioner.avro.schema_types import RecordType
from log_partitioner.batch.pack_schema import MergedFields
from log_partitioner.batch.reference_lines import HOUR_BYTES, SOURCE_BYTES, LineGroup, Spans, absent_fields, encode
from log_partitioner.formats.model import TopicPartition
from log_partitioner.formats.reference import CoveredRange

if TYPE_CHECKING:
    import log_partitioner_native


class Numbered:
    """Numbers that stand in lines: hours and exact types of parts as they come, TopicPartitions and types of rows."""

    def __init__(
        self, tps: Sequence[TopicPartition], spans: Spans, row_types: Sequence[RecordType], *, bytes_max: int
    ) -> None:
        self.tps = tps
        self.spans = spans
        self.row_types = row_types
        self.hours: list[tuple[str, int]] = []
        self.types: list[RecordType] = []
        self._hours: dict[tuple[str, int], int] = {}
        self._types: dict[int, int] = {}  # by identity: the plan keeps the types
        self._equal: dict[RecordType, int] = {}
        ranks = [0] * len(tps)
        for rank, number in enumerate(sorted(range(len(tps)), key=tps.__getitem__)):
            ranks[number] = rank
        self.rules: dict[str, Any] = {
            "bytes_max": bytes_max,
            "hour_bytes": HOUR_BYTES,
            "source_bytes": [SOURCE_BYTES + len(tp.topic) for tp in tps],
            "span_starts": [spans[tp][0] for tp in tps],
            "ranks": ranks,
        }

    def hour(self, hour: tuple[str, int]) -> int:
        """Return the number of an hour."""
        number = self._hours.get(hour)
        if number is None:
            number = self._hours[hour] = len(self.hours)
            self.hours.append(hour)
        return number

    def exact_type(self, exact_type: RecordType) -> int:
        """Return the number of a part's type."""
        number = self._types.get(id(exact_type))
        if number is None:
            number = self._types[id(exact_type)] = self._equal.setdefault(exact_type, len(self.types))
            if number == len(self.types):
                self.types.append(exact_type)
        return number


class CompiledLines:
    """Writes the lines of one object, whose header has the type `merged`."""

    def __init__(self, merged: RecordType, numbered: Numbered) -> None:
        assert native.module is not None, "the fast lane is not installed"
        self._numbered = numbered
        fields = MergedFields(merged)
        types, row_types = numbered.types, numbered.row_types

        # They know nothing of whom they work for: Python would not find the cycle, and the batch would stay for ever.
        def projection(exact_type: int) -> bytes:
            return encode(fields.projection(types[exact_type]))

        def absent(row_type: int, exact_type: int) -> list[int]:
            numbers = fields.numbers(types[exact_type])
            return sorted(numbers[name] for name in absent_fields(row_types[row_type], types[exact_type]))

        self._native: log_partitioner_native.Lines = native.module.Lines(numbered.rules, projection, absent)

    @property
    def lines(self) -> int:
        """How many there are."""
        return self._native.lines

    def add(self, chunk: Any, first: int, last: int, start: int) -> None:
        """Write the lines of parts [first, last) of a chunk, whose blocks stand from `start` on."""
        self._native.add(chunk, first, last, start)

    def groups(self) -> list[LineGroup]:
        """Return all lines, in their order; call once, at the end."""
        tps, spans, hours = self._numbered.tps, self._numbered.spans, self._numbered.hours
        return [
            LineGroup(
                tuple(CoveredRange(tps[tp].topic, tps[tp].partition, *spans[tps[tp]]) for tp, _ in sources),
                tuple(named for _, named in sources),
                event_time_us,
                tuple(hours[hour] for hour in its_hours),
                tuple(map(msgspec.Raw, schemas)),
                count,
                msgspec.Raw(lines),
            )
            for sources, event_time_us, its_hours, schemas, count, lines in self._native.groups()
        ]
