"""Run records of backfills counted again: pure, from what they say and what their messages add up to (DESIGN 8).

A backfill's references have no flush record. Its run record is as strict: it says which ranges were looked at, how many
references and dead letters were published, and how many entries of each TopicPartition they hold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from pipeline.audit.result import Kind
from service.formats.model import TopicPartition


class Line(NamedTuple):
    """What a run record says of one TopicPartition: the range that was looked at, entries published of it."""

    first_offset: int
    next_offset: int
    entries_in_files: int
    dead_letters: int


class RunRecord(NamedTuple):
    """The newest record of a run; `before` is how far the one before it had come (None: there is none any more).

    `published` and `messages` count messages, of which one has many references.
    """

    batch_id: str
    worker: str
    published: int
    messages: int
    before: int | None
    references: int
    entries_in_files: int
    dead_letters: int
    dead_letter_records: int
    lines: dict[TopicPartition, Line]


class Sums(NamedTuple):
    """What the references and dead letters of a run add up to; `reference_messages` have the references."""

    references: int
    reference_messages: int
    dead_letter_records: int
    in_files: Counter[TopicPartition]
    dead_letters: Counter[TopicPartition]


class Wrong(NamedTuple):
    """One finding about a run."""

    kind: Kind
    text: str
    tp: TopicPartition | None = None
    offset: int | None = None
    number: int = 1


def judge(record: RunRecord, sums: Sums, committed: Mapping[TopicPartition, int]) -> Iterator[Wrong]:
    """Say what is wrong with a run; of missing references follows that sums are short, which is not said again.

    Ranges are checked where `committed`, the group's offsets, has their TopicPartition.
    """
    if record.references != sums.references:
        text = f"its run record says {record.references} references, there are {sums.references}"
        lacking = record.references - sums.references
        yield Wrong(Kind.REFERENCE_MISSING, text, number=lacking) if lacking > 0 else Wrong(Kind.REFERENCE_WRONG, text)
    if record.references <= sums.references:
        yield from _judge_sums(record, sums)
    if record.before is not None and record.before >= record.published:
        yield Wrong(Kind.BACKFILL_WRONG, f"has come to {record.published} after {record.before}")
    for tp, line in record.lines.items():
        if tp in committed and line.next_offset > committed[tp]:
            span = f"[{line.first_offset}, {line.next_offset})"
            text = f"{span} is not below the committed offset {committed[tp]}"
            yield Wrong(Kind.BACKFILL_WRONG, text, tp, line.first_offset)


def _judge_sums(record: RunRecord, sums: Sums) -> Iterator[Wrong]:
    facts = {
        "entries in files": (record.entries_in_files, sums.in_files.total()),
        "dead letters": (record.dead_letters, sums.dead_letters.total()),
        "messages with dead letters": (record.dead_letter_records, sums.dead_letter_records),
        "messages": (record.published, sums.reference_messages + sums.dead_letter_records),
    }
    differences = [f"{said} {name}, counted {counted}" for name, (said, counted) in facts.items() if said != counted]
    if differences:
        yield Wrong(Kind.BACKFILL_WRONG, "; ".join(differences))
    for tp, line in record.lines.items():
        said, counted = (line.entries_in_files, line.dead_letters), (sums.in_files[tp], sums.dead_letters[tp])
        if said != counted:
            text = "its run record says {} entries in files and {} dead, counted {} and {}".format(*said, *counted)
            yield Wrong(Kind.BACKFILL_WRONG, text, tp, line.first_offset)
    for tp in sorted((sums.in_files.keys() | sums.dead_letters.keys()) - record.lines.keys()):
        yield Wrong(Kind.BACKFILL_WRONG, "its run record says nothing of this TopicPartition", tp)
