"""Dead letters against the source (DESIGN 3.7): are they of real records, untouched, and rightly dead?"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from log_partitioner.formats.dead_letter import RECORD_SUFFIX, decode_stored_record
from log_partitioner.formats.findings import Kind
from log_partitioner.proof.audit.source import count_seen
from log_partitioner.proof.audit.store import Address
from log_partitioner.proof.oracle.judge import record_digest, value_digest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from log_partitioner.proof.audit.announced import SeenDeadLetter
    from log_partitioner.proof.audit.context import Context
    from log_partitioner.proof.audit.source import FlushSource, Found


def check_letters(context: Context, letters: Iterable[SeenDeadLetter], source: FlushSource) -> None:
    """Check the dead letters of one batch, and note that their entries were seen in dead letters."""
    seen: Counter[object] = Counter()
    for letter in letters:
        says = letter.says
        context.dead_letters[says.reason] += letter.entries
        where = f"{letter.tp} offset {says.offset} ({says.reason}, batch {says.batch_id})"
        if context.is_gone(letter.tp, says.offset):
            continue
        record = source.columns[letter.tp].find(says.offset)
        if record is None:
            text = f"dead letter of {where}: no such record in the source"
            context.findings.add(Kind.DEAD_LETTER_UNEXPECTED, text, count=letter.entries)
            continue
        identity = letter.tp, says.offset, says.reason, (says.indexes or (-1,))[0]
        if identity in seen:
            _wrong(context, f"{where}: more than one of this record, reason and first index")
        seen[identity] += 1
        _check_payload(context, letter, record, where)
        _check_entries(context, letter, record, source, where)


def _check_payload(context: Context, letter: SeenDeadLetter, record: Found, where: str) -> None:
    value, key, headers = letter.value_digest, letter.key, letter.headers
    if (object_key := letter.says.object_key) is not None:
        (stored,) = context.open_objects([Address(context.settings.s3.bucket, object_key)])
        if stored is None:
            context.findings.add(Kind.OBJECT_MISSING, f"{where}: no object {object_key}")
            return
        value = value_digest(stored.data)
        if object_key.endswith(RECORD_SUFFIX):
            try:
                whole = decode_stored_record(stored.data)
            except msgspec.DecodeError as error:
                _wrong(context, f"{where}: {object_key} is no record: {error}")
                return
            value, key, headers = value_digest(whole.value), whole.key, tuple(whole.headers)
    if record_digest(value=value, key=key, headers=headers) != record.digest:
        _wrong(context, f"{where}: value, key or headers are not those of the record")


def _check_entries(context: Context, letter: SeenDeadLetter, record: Found, source: FlushSource, where: str) -> None:
    indexes, entries = letter.says.indexes, len(record.rows)
    if indexes is None:
        if not record.is_whole and entries != 1:
            _wrong(context, f"{where}: all of a record that splits into {entries} entries")
        indexes = tuple(range(entries))
    elif list(indexes) != sorted(set(indexes)) or not indexes:
        _wrong(context, f"{where}: indexes {str(indexes)[:100]} are not ascending")
    for index in indexes:
        if not 0 <= index < entries:
            text = f"{where}: index {index} of a record with {entries} entries"
            context.findings.add(Kind.DEAD_LETTER_UNEXPECTED, text)
            continue
        count_seen(source.columns[letter.tp].letters, record.rows[index])
        shape = source.columns[letter.tp].shapes[record.rows[index]]
        if letter.says.reason in shape.reasons:
            continue
        if shape.key is not None:
            context.findings.add(Kind.DEAD_LETTER_UNEXPECTED, f"{where} index {index}: nothing is wrong with it")
        else:
            _wrong(context, f"{where} index {index}: the reason should be {' or '.join(sorted(shape.reasons))}")


def _wrong(context: Context, text: str) -> None:
    context.findings.add(Kind.DEAD_LETTER_WRONG, text)
