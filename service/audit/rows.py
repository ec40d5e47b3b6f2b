"""One row of a file against the source: its identity, its `_meta`, its values.

Owns the checks of a row and the sums over the rows of one reference.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from service.accounting import Kind
from service.audit.findings import Findings
from service.audit.source_table import SourceColumns, SourceTable, count_seen
from service.formats.model import PartitionKey, RootLink, TopicPartition
from service.oracle.equal import digest
from service.oracle.published_schema import META, PublishedSchema, RestoreError


class AlteredRow(NamedTuple):
    """An example to be explained: where the entry is, and what the file says."""

    tp: TopicPartition
    offset: int
    entry_index: int
    where: str
    values: object


class RowTally:
    """What the rows of one reference add up to; `of_backfill` says whose it is."""

    def __init__(self, *, of_backfill: bool = False) -> None:
        self.of_backfill = of_backfill
        self.entries = 0
        self.times: tuple[int, int] | None = None
        self.non_nulls: Counter[str] = Counter()
        self.sources: dict[TopicPartition, int] = {}
        self.roots: dict[tuple[str, int], list[int]] = {}
        self.first: dict[TopicPartition, tuple[int, int]] = {}
        self.last: dict[TopicPartition, tuple[int, int]] = {}
        self.types: set[int] = set()
        self.misplaced = 0
        self.all_in_source = True

    def add(self, meta: dict[str, Any], tp: TopicPartition, values: object) -> None:
        """Count a row."""
        self.entries += 1
        time_us = meta["event_time"]
        low, high = self.times or (time_us, time_us)
        self.times = (min(low, time_us), max(high, time_us))
        self.sources[tp] = self.sources.get(tp, 0) + 1
        if isinstance(values, dict):
            self.non_nulls.update(values.keys())
        root = meta["root"]
        if root is not None:
            self.roots.setdefault((root["topic"], root["partition"]), []).append(root["offset"])


class RowAudit:
    """Checks rows and marks their entries as seen."""

    def __init__(self, table: SourceTable, findings: Findings) -> None:
        self.altered: list[AlteredRow] = []
        self._table = table
        self._findings = findings

    def check(
        self, row: dict[str, Any], schema: PublishedSchema, key: PartitionKey, tally: RowTally, where: str
    ) -> None:
        """Check a row of a file of `key`."""
        meta = row[META]
        tp = TopicPartition(meta["topic"], meta["partition"])
        position = (meta["offset"], meta["index"])
        try:
            values = schema.restore(row)
        except RestoreError as error:
            values = {"": str(error)}
        tally.add(meta, tp, values)
        if tally.last.get(tp, (-1, -1)) >= position:
            self._findings.add(Kind.REFERENCE_WRONG, f"{where}: {tp} {position} stands after {tally.last[tp]}")
        tally.first.setdefault(tp, position)
        tally.last[tp] = position
        self._check_entry(meta, values, tp, key, tally, where)

    def _check_entry(
        self, meta: dict[str, Any], values: object, tp: TopicPartition, key: PartitionKey,
        tally: RowTally, where: str,
    ) -> None:  # fmt: skip
        offset, index = meta["offset"], meta["index"]
        where = f"{where}: {tp} offset {offset} index {index}"
        columns = self._table.of(tp)
        if offset < columns.low_offset:
            tally.all_in_source = False
            return  # the source is gone; stated as a doubt
        record = columns.find(offset)
        if record is None or not 0 <= index < record.entries:
            self._findings.add(Kind.UNEXPECTED, f"{where}: not in the source below the committed offset")
            return
        line = record.first_row + index
        count_seen(columns.in_files, line)
        if tally.of_backfill:
            count_seen(columns.files_of_backfills, line)
        if not columns.is_deliverable(line):
            reasons = " or ".join(sorted(columns.reasons(line)))
            self._findings.add(Kind.UNEXPECTED, f"{where}: should be dead: {reasons}")
            return
        if self._check_meta(meta, columns, line, key, where):
            tally.types.add(columns.type_number(line))
        else:
            tally.misplaced += 1
        if not columns.has_digest(line, digest(values)):
            self._findings.counts[Kind.ALTERED] += 1  # the example is made later, with the source at hand
            if len(self.altered) < self._findings.examples_max:
                self.altered.append(AlteredRow(tp, offset, index, where, values))

    def _check_meta(
        self, meta: dict[str, Any], columns: SourceColumns, line: int, key: PartitionKey, where: str
    ) -> bool:
        """Check `_meta`; tell whether the row belongs here."""
        expected = columns.key(line)
        if expected != key or meta["user"] != expected.user:
            text = f"{where}: belongs to {tuple(expected)}, is under {tuple(key)}, user {meta['user']!r}"
            self._findings.add(Kind.MISPLACED, text)
        wrong = []
        if meta["event_time"] != columns.event_time_us(line):
            wrong.append(f"event time is {meta['event_time']}, should be {columns.event_time_us(line)}")
        root = meta["root"]
        link = None if root is None else RootLink(root["topic"], root["partition"], root["offset"], root["index"])
        if not columns.has_extras(line, entry_id=meta["id"], timestamp_ms=meta["timestamp"], root=link):
            wrong.append("id, timestamp or root in _meta is wrong")
        if wrong:
            self._findings.add(Kind.META, f"{where}: {'; '.join(wrong)}")
        return expected == key
