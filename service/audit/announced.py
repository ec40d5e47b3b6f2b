"""What the worker has announced: references, flush records, dead letters, as read from their topics.

Owns their sums per batch, and what is known of a batch in part. What repeats is held once, schema texts not at all.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from service.accounting import Kind, Sums, tp_of
from service.audit.findings import Findings
from service.audit.put_away import Claim
from service.audit.whose import has_reference
from service.formats.adoption import Adoption, Lineage, decode_flushes
from service.formats.dead_letter import HEADER_REASON, DeadLetterHeaders, parse_headers
from service.formats.flush_record import BackfillRecord, FlushRecord, merge_parts
from service.formats.model import Headers, SourceRecord, TopicPartition
from service.formats.reference import (
    Line,
    Reference,
    ReferenceMessage,
    SchemaLocation,
    decode_message,
    decode_references,
    encode_message,
    reference_id,
)
from service.oracle.judge import value_digest

if TYPE_CHECKING:
    from collections.abc import Iterator

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


class Announced:
    """All committed messages of the workers and backfills of one history; those of others are counted by group."""

    def __init__(self, findings: Findings, lineage: Lineage) -> None:
        self.others: Counter[str] = Counter()
        self.groups: set[str] = set()  # all that have flush records
        self.references: list[Reference] = []
        self.flushes: list[FlushRecord] = []
        self.backfills: dict[str, BackfillRecord] = {}
        self.dead_letters: list[SeenDeadLetter] = []
        self.reference_messages: Counter[str] = Counter()
        self.inline_texts: dict[SchemaLocation, set[str]] = {}
        # By reference id, where nulls are left out: bytes of a message of this line alone, without a schema text.
        self.bytes_without_nulls: dict[str, int] = {}
        self._findings = findings
        self._lineage = lineage
        self._shared: dict[Any, Any] = {}
        self._flush_parts: list[FlushRecord] = []

    def add_references(self, message: SourceRecord) -> None:
        """Take a message of the references topic."""
        try:
            references = decode_references(message.value or b"")
        except msgspec.DecodeError as error:
            self._findings.add(Kind.REFERENCE_WRONG, f"{_at(message)}: not a message of references: {error}")
            return
        if not references:
            self._findings.add(Kind.REFERENCE_WRONG, f"{_at(message)}: a message without references")
            return
        if not all(has_reference(self._lineage, one) for one in references):
            self.others[references[0].group_id] += 1
            return
        batch_id, schema = references[0].batch_id, references[0].schema
        if message.key != batch_id.encode():
            self._findings.add(Kind.REFERENCE_WRONG, f"{_at(message)}: its key is not its batch id, {batch_id}")
        self.reference_messages[batch_id] += 1
        slim_schema = self._share(msgspec.structs.replace(schema, text=None))
        if schema.text is not None:
            self.inline_texts.setdefault(slim_schema, set()).add(schema.text)
        self.references += [self._slim(reference, slim_schema) for reference in references]
        if any(reference.nulls is None for reference in references):
            self._weigh(decode_message(message.value or b""), references)

    def _weigh(self, message: ReferenceMessage, references: list[Reference]) -> None:
        for line, reference in zip(message.references, references, strict=True):
            if line.nulls is None:
                self.bytes_without_nulls[reference.reference_id] = _bytes_alone(message, line)

    def _slim(self, reference: Reference, schema: SchemaLocation) -> Reference:
        ranges = tuple(map(self._share, reference.location.ranges[:-1])) + reference.location.ranges[-1:]
        return msgspec.structs.replace(
            reference,
            location=msgspec.structs.replace(reference.location, ranges=ranges),
            partition_key=self._share(reference.partition_key),
            schema=schema,
        )

    def _share(self, value: Any) -> Any:
        return self._shared.setdefault(value, value)

    def add_flush(self, message: SourceRecord) -> None:
        """Take a message of the flushes topic; `flushes` has it after `join_flushes`."""
        try:
            record = decode_flushes(message.value or b"")
        except msgspec.DecodeError as error:
            self._findings.add(Kind.FLUSH_WRONG, f"{_at(message)}: not a flush record: {error}")
            return
        if isinstance(record, Adoption):
            return  # the history is made of them
        self.groups.add(record.group_id)
        if self._lineage.has_flush(record):
            self._flush_parts.append(record)
        else:
            self.others[record.group_id] += 1

    def join_flushes(self) -> None:
        """Put flush records together that came in parts."""
        self.flushes, problems = merge_parts(self._flush_parts)
        self._flush_parts = []
        for problem in problems:
            self._findings.add(Kind.FLUSH_WRONG, problem)

    def add_dead_letter(self, message: SourceRecord) -> None:
        """Take a message of the dead letters topic: the record's own headers come first, then ours."""
        names = [name for name, _ in message.headers]
        begin = len(names) - 1 - names[::-1].index(HEADER_REASON) if HEADER_REASON in names else 0
        try:
            says = parse_headers(message.headers[begin:])
        except (KeyError, ValueError) as error:
            self._findings.add(Kind.DEAD_LETTER_WRONG, f"{_at(message)}: headers cannot be read: {error!r}")
            return
        if not self._lineage.has(says.group_id, says.topic, says.partition, (says.end_offset or says.offset + 1)):
            self.others[says.group_id] += 1
            return
        own = message.headers[:begin]
        self.dead_letters.append(SeenDeadLetter(says, message.key, own, value_digest(message.value)))

    def drop_batches(self, batch_ids: set[str]) -> None:
        """Forget batches that were committed while the audit was reading."""
        self.references = [one for one in self.references if one.batch_id not in batch_ids]
        self.flushes = [one for one in self.flushes if one.batch_id not in batch_ids]
        self.dead_letters = [one for one in self.dead_letters if one.says.batch_id not in batch_ids]
        for batch_id in batch_ids:
            del self.reference_messages[batch_id]

    def claims(self) -> Iterator[Claim]:
        """Yield what dead letters say of their offsets as a whole."""
        for one in self.dead_letters:
            yield Claim(one.tp, one.says.offset, one.says.end_offset, one.says.reason)

    def sums(self) -> dict[str, Sums]:
        """Add up references and dead letters by batch id."""
        sums: dict[str, Sums] = {}
        for batch_id, messages in self.reference_messages.items():
            sums.setdefault(batch_id, Sums()).reference_messages = messages
        for reference in self.references:
            batch = sums.setdefault(reference.batch_id, Sums())
            batch.references += 1
            for source in reference.sources:
                batch.in_files[tp_of(source)] += source.entries
        for letter in self.dead_letters:
            batch = sums.setdefault(letter.says.batch_id, Sums())
            batch.dead_letter_records += 1
            batch.dead_letters[letter.tp] += letter.entries
        return sums

    def cut_off(self, *, are_whole: bool) -> set[str]:
        """Return the batches that are known to be announced in part only.

        Backfills that are not finished and, unless the topic still has its beginning, batches whose first line is gone.
        """
        cut = {batch_id for batch_id, record in self.backfills.items() if not record.is_finished}
        if not are_whole:
            known = {reference.reference_id for reference in self.references}
            cut |= {batch_id for batch_id in self.reference_messages if reference_id(batch_id, 0) not in known}
        return cut

    def incomplete(self) -> set[str]:
        """Return the batches that have not as many references as their record says."""
        records = {flush.batch_id: flush.totals.references for flush in self.flushes}
        records |= {batch_id: record.totals.references for batch_id, record in self.backfills.items()}
        return {batch_id for batch_id, sums in self.sums().items() if sums.references != records.get(batch_id)}


def _bytes_alone(message: ReferenceMessage, line: Line) -> int:
    """Return the bytes of a message of one line alone, without a schema text."""
    schema = msgspec.structs.replace(message.schema, text=None)
    schemas = (message.schemas[line.schema],)
    return len(encode_message(msgspec.structs.replace(message, schema=schema, schemas=schemas, references=(line,))))


def _at(message: SourceRecord) -> str:
    return f"{message.tp} offset {message.offset}"
