"""Dead letters against the source (DESIGN 3.7): are they of real records, untouched, and rightly dead?

Owns the rules for one dead letter; who is in no file and no dead letter is `reconcile`'s question.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from service.accounting import Kind
from service.audit.findings import Findings
from service.audit.source_table import RecordAt, SourceColumns, SourceTable, count_seen
from service.formats.dead_letter import RECORD_SUFFIX, decode_stored_record
from service.oracle.judge import record_digest, value_digest

if TYPE_CHECKING:
    from service.audit.announced import SeenDeadLetter

ReadStored = Callable[[str], bytes | None]


class DeadLetterAudit:
    """Checks dead letters one by one and counts them by reason.

    `read_stored` gives what was stored as an object - the value, or by its suffix the whole record - or None;
    `backfills` are the batch ids of backfills.
    """

    def __init__(
        self, table: SourceTable, findings: Findings, *, read_stored: ReadStored, backfills: frozenset[str]
    ) -> None:
        self.entries_by_reason: Counter[str] = Counter()
        self._table = table
        self._findings = findings
        self._read_stored = read_stored
        self._backfills = backfills
        self._seen: set[tuple[str, int, int, str, int]] = set()

    def check(self, letter: SeenDeadLetter) -> None:
        """Check one dead letter and mark its entries as accounted for."""
        says = letter.says
        self.entries_by_reason[says.reason] += letter.entries
        where = f"{letter.tp} offset {says.offset} ({says.reason}, batch {says.batch_id})"
        columns = self._table.of(letter.tp)
        if says.offset < columns.low_offset:
            return  # the source is gone; stated as a doubt
        record = columns.find(says.offset)
        if record is None:
            self._findings.add(
                Kind.DEAD_LETTER_UNEXPECTED,
                f"dead letter of {where}: no such record in the source",
                count=letter.entries,
            )
            return
        identity = (says.topic, says.partition, says.offset, says.reason, says.indexes[0] if says.indexes else -1)
        if identity in self._seen:
            self._findings.add(Kind.DEAD_LETTER_WRONG, f"{where}: more than one of this record, reason and first index")
        self._seen.add(identity)
        self._check_payload(letter, record, where)
        self._check_entries(letter, record, columns, where)

    def _check_payload(self, letter: SeenDeadLetter, record: RecordAt, where: str) -> None:
        value, key, headers = letter.value_digest, letter.key, letter.headers
        object_key = letter.says.object_key
        if object_key is not None:
            stored = self._read_stored(object_key)
            if stored is None:
                self._findings.add(Kind.OBJECT_MISSING, f"{where}: no object {object_key}")
                return
            if object_key.endswith(RECORD_SUFFIX):
                try:
                    whole = decode_stored_record(stored)
                except msgspec.DecodeError as error:
                    self._findings.add(Kind.DEAD_LETTER_WRONG, f"{where}: {object_key} is no record: {error}")
                    return
                value, key, headers = value_digest(whole.value), whole.key, tuple(whole.headers)
            else:
                value = value_digest(stored)
        if record_digest(value=value, key=key, headers=headers) != record.digest:
            self._findings.add(Kind.DEAD_LETTER_WRONG, f"{where}: value, key or headers are not those of the record")

    def _check_entries(self, letter: SeenDeadLetter, record: RecordAt, columns: SourceColumns, where: str) -> None:
        indexes = letter.says.indexes
        if indexes is None:
            if not record.is_whole and record.entries != 1:
                text = f"{where}: all of a record that splits into {record.entries} entries"
                self._findings.add(Kind.DEAD_LETTER_WRONG, text)
            indexes = tuple(range(record.entries))
        elif list(indexes) != sorted(set(indexes)) or not indexes:
            self._findings.add(Kind.DEAD_LETTER_WRONG, f"{where}: indexes {_shown(indexes)} are not ascending")
        for index in indexes:
            if not 0 <= index < record.entries:
                text = f"{where}: index {index} of a record with {record.entries} entries"
                self._findings.add(Kind.DEAD_LETTER_UNEXPECTED, text)
                continue
            row = record.first_row + index
            count_seen(columns.in_dead_letters, row)
            if letter.says.batch_id in self._backfills:
                count_seen(columns.dead_letters_of_backfills, row)
            self._check_entry(letter, columns, row, f"{where} index {index}")

    def _check_entry(self, letter: SeenDeadLetter, columns: SourceColumns, row: int, where: str) -> None:
        reasons = columns.reasons(row)
        if letter.says.reason in reasons:
            return
        if columns.is_deliverable(row):
            self._findings.add(Kind.DEAD_LETTER_UNEXPECTED, f"{where}: nothing is wrong with it")
        else:
            self._findings.add(Kind.DEAD_LETTER_WRONG, f"{where}: the reason should be {' or '.join(sorted(reasons))}")


def _shown(indexes: tuple[int, ...]) -> str:
    return ",".join(map(str, indexes[:10])) + ("..." if len(indexes) > 10 else "")  # noqa: PLR2004
