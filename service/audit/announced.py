"""What the worker has announced: references, flush records, dead letters, as read from their topics.

Owns their sums per batch. Schema texts and field counts, which repeat, are held once.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import msgspec

from service.audit.findings import Findings, Kind
from service.audit.judge import value_digest
from service.core.dead_letter import HEADER_REASON, DeadLetterHeaders, parse_headers
from service.core.model import Headers, SourceRecord, TopicPartition
from service.core.reference import (
    BackfillRecord,
    FieldCounts,
    FlushRecord,
    Reference,
    decode_flush_record,
    decode_reference,
)

Committed = dict[TopicPartition, int | None]  # the group's offsets; None where it has none


class SeenDeadLetter(NamedTuple):
    """A dead letter: our headers, and as much of the record's own bytes as it takes to compare them."""

    says: DeadLetterHeaders
    key: bytes | None
    headers: Headers
    value_digest: bytes

    @property
    def tp(self) -> TopicPartition:
        """The TopicPartition of the source record."""
        return TopicPartition(self.says.topic, self.says.partition)

    @property
    def entries(self) -> int:
        """How many entries it accounts for."""
        return 1 if self.says.indexes is None else len(self.says.indexes)


class BatchSums:
    """What the references and dead letters of one batch add up to."""

    def __init__(self) -> None:
        self.references = 0
        self.in_files: Counter[TopicPartition] = Counter()
        self.dead_letters: Counter[TopicPartition] = Counter()
        self.dead_letter_records = 0


class Announced:
    """All committed messages of the worker and of backfills."""

    def __init__(self, findings: Findings) -> None:
        self.references: list[Reference] = []
        self.flushes: list[FlushRecord] = []
        self.backfills: dict[str, BackfillRecord] = {}
        self.dead_letters: list[SeenDeadLetter] = []
        self.inline_texts: dict[str, set[str]] = {}
        self._findings = findings
        self._field_counts: dict[bytes, dict[str, FieldCounts]] = {}

    def add_reference(self, message: SourceRecord) -> None:
        """Take a message of the references topic."""
        try:
            reference = decode_reference(message.value or b"")
        except msgspec.DecodeError as error:
            self._findings.add(Kind.REFERENCE, f"{_at(message)}: not a reference: {error}")
            return
        if reference.schema.text is not None:
            self.inline_texts.setdefault(reference.schema.fingerprint, set()).add(reference.schema.text)
        counts = self._field_counts.setdefault(msgspec.json.encode(reference.field_counts), reference.field_counts)
        schema = msgspec.structs.replace(reference.schema, text=None)
        self.references.append(msgspec.structs.replace(reference, schema=schema, field_counts=counts))

    def add_flush(self, message: SourceRecord) -> None:
        """Take a message of the flushes topic."""
        try:
            self.flushes.append(decode_flush_record(message.value or b""))
        except msgspec.DecodeError as error:
            self._findings.add(Kind.FLUSH, f"{_at(message)}: not a flush record: {error}")

    def add_dead_letter(self, message: SourceRecord) -> None:
        """Take a message of the dead letters topic: the record's own headers come first, then ours."""
        names = [name for name, _ in message.headers]
        begin = len(names) - 1 - names[::-1].index(HEADER_REASON) if HEADER_REASON in names else 0
        try:
            says = parse_headers(message.headers[begin:])
        except (KeyError, ValueError) as error:
            self._findings.add(Kind.DEAD_LETTER, f"{_at(message)}: headers cannot be read: {error!r}")
            return
        own = message.headers[:begin]
        self.dead_letters.append(SeenDeadLetter(says, message.key, own, value_digest(message.value)))

    def drop_batches(self, batch_ids: set[str]) -> None:
        """Forget batches that were committed while the audit was reading."""
        self.references = [one for one in self.references if one.batch_id not in batch_ids]
        self.flushes = [one for one in self.flushes if one.batch_id not in batch_ids]
        self.dead_letters = [one for one in self.dead_letters if one.says.batch_id not in batch_ids]

    def sums(self) -> dict[str, BatchSums]:
        """Add up references and dead letters by batch id."""
        sums: dict[str, BatchSums] = {}
        for reference in self.references:
            batch = sums.setdefault(reference.batch_id, BatchSums())
            batch.references += 1
            for source in reference.sources:
                batch.in_files[TopicPartition(source.topic, source.partition)] += source.entries
        for letter in self.dead_letters:
            batch = sums.setdefault(letter.says.batch_id, BatchSums())
            batch.dead_letter_records += 1
            batch.dead_letters[letter.tp] += letter.entries
        return sums


def _at(message: SourceRecord) -> str:
    return f"{message.tp} offset {message.offset}"
