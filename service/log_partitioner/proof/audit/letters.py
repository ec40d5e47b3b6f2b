"""Dead letters against the source (DESIGN 3.7): are they of real records, untouched, and rightly dead?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from log_partitioner.formats.dead_letter import stored_record
from log_partitioner.formats.findings import Kind
from log_partitioner.proof.audit.source import count_seen
from log_partitioner.proof.audit.store import Address
from log_partitioner.proof.oracle.judge import record_digest, value_digest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from log_partitioner.proof.audit.announced import SeenDeadLetter
    from log_partitioner.proof.audit.context import Context
    from log_partitioner.proof.audit.source import Found, SourceColumn

Problem = tuple[Kind, str]


def check_letter(context: Context, letter: SeenDeadLetter, column: SourceColumn, seen: set[object]) -> None:
    """Check a dead letter, and note that its entries were seen in one; `seen` are the ones of its batch."""
    says, place = letter.says, (letter.says.tp, letter.says.offset)
    context.dead_letters[says.reason] += says.entries
    where = f"{says.tp} offset {says.offset} ({says.reason}, batch {says.batch_id})"
    if context.is_gone(*place):
        return
    record = column.find(says.offset)
    if record is None:
        text = f"dead letter of {where}: no such record in the source"
        context.findings.add(Kind.DEAD_LETTER_UNEXPECTED, text, place, count=says.entries)
        return
    identity = says.tp, says.offset, says.reason, (says.indexes or (-1,))[0]
    problems = [] if identity not in seen else [_wrong(": more than one of this record, reason and first index")]
    seen.add(identity)
    for kind, text in [*problems, *_payload(context, letter, record), *_entries(letter, record, column)]:
        context.findings.add(kind, f"{where}{text}", place)


def _payload(context: Context, letter: SeenDeadLetter, record: Found) -> Iterator[Problem]:
    value, key, headers = letter.value_digest, letter.key, letter.headers
    if (object_key := letter.says.object_key) is not None:
        (stored,) = context.open_objects([Address(context.ground.settings.s3.bucket, object_key)])
        if stored is None:
            yield Kind.OBJECT_MISSING, f": no object {object_key}"
            return
        try:
            whole = stored_record(object_key, stored.data, key=key, headers=headers)
        except msgspec.DecodeError as error:
            yield _wrong(f": {object_key} is no record: {error}")
            return
        value, key, headers = value_digest(whole.value), whole.key, tuple(whole.headers)
    if record_digest(value=value, key=key, headers=headers) != record.digest:
        yield _wrong(": value, key or headers are not those of the record")


def _entries(letter: SeenDeadLetter, record: Found, column: SourceColumn) -> Iterator[Problem]:
    indexes, entries = letter.says.indexes, len(record.rows)
    if letter.says.of_entries not in (None, entries) and not letter.is_replayed:
        yield _wrong(f": of {letter.says.of_entries} entries, and the record has {entries}")
    if indexes is None:
        if not record.is_whole and entries != 1:
            yield _wrong(f": all of a record that splits into {entries} entries")
        indexes = tuple(range(entries))
    elif list(indexes) != sorted(set(indexes)) or not indexes:
        yield _wrong(f": indexes {str(indexes)[:100]} are not ascending")
    for index in indexes:
        if not 0 <= index < entries:
            yield Kind.DEAD_LETTER_UNEXPECTED, f": index {index} of a record with {entries} entries"
            continue
        count_seen(column.letters, record.rows[index])
        shape = column.shapes[record.rows[index]]
        if letter.says.reason in shape.reasons or letter.is_replayed:  # by settings that were mended since
            continue
        if shape.key is not None:
            yield Kind.DEAD_LETTER_UNEXPECTED, f" index {index}: nothing is wrong with it"
        else:
            yield _wrong(f" index {index}: the reason should be {' or '.join(sorted(shape.reasons))}")


def _wrong(text: str) -> Problem:
    return Kind.DEAD_LETTER_WRONG, text
