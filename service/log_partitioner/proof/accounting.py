"""The arithmetic that records must satisfy: one copy for both audits and the tests. Pure.

Compares flush records with the source, with what their batches have published and with each other; run records of
backfills with their messages; source ranges of references with the record that covers them. A fault is reported once.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from log_partitioner.formats.findings import Kind
from log_partitioner.formats.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized

    from log_partitioner.formats.flush_record import (
        BackfilledTopicPartition,
        BackfillRecord,
        FlushedTopicPartition,
        FlushTotals,
    )
    from log_partitioner.formats.reference import SourceRange


class ExitCode(IntEnum):
    """The exit codes of an audit."""

    CLEAN = 0
    FINDINGS = 1
    COULD_NOT_TELL = 2

    @classmethod
    def of(cls, findings: Sized, doubts: Sized) -> ExitCode:
        """Findings outweigh doubts, because a fault that was found stays one."""
        return cls.FINDINGS if findings else cls.COULD_NOT_TELL if doubts else cls.CLEAN


class Wrong(NamedTuple):
    """One finding; `number` is its count, [`offset`, `end`) are its offsets of the TopicPartition."""

    kind: Kind
    text: str
    tp: TopicPartition | None = None
    offset: int | None = None
    end: int | None = None
    number: int = 1

    @property
    def place(self) -> tuple[TopicPartition, *tuple[int, ...]] | None:
        """Its TopicPartition with its first offset, as far as it has them."""
        if self.tp is None:
            return None
        return (self.tp,) if self.offset is None else (self.tp, self.offset)


@dataclass(slots=True, kw_only=True)
class Sums:
    """Sums over the references and dead letters of one batch; `reference_messages` counts messages with references."""

    references: int = 0
    reference_messages: int = 0
    dead_letter_records: int = 0
    in_files: Counter[TopicPartition] = field(default_factory=Counter)
    dead_letters: Counter[TopicPartition] = field(default_factory=Counter)


class Counted(NamedTuple):
    """The source's own counts for one offset range; the last three are None if the range has no record."""

    records: int
    entries: int
    min_offset: int | None
    max_offset: int | None
    timestamp_max_ms: int | None


def tp_of(line: FlushedTopicPartition | BackfilledTopicPartition | SourceRange) -> TopicPartition:
    """Return the TopicPartition of a line of a flush or run record, or of a source range."""
    return TopicPartition(line.topic, line.partition)


class Covering(Protocol):
    """A line that covers the offsets [first_offset, next_offset) of a TopicPartition."""

    @property
    def first_offset(self) -> int:
        """The first one."""

    @property
    def next_offset(self) -> int:
        """The one behind the last."""


C = TypeVar("C", bound=Covering)


def judge_joins(
    tp: TopicPartition, lines: Iterable[C], *, start: int | None, committed: int
) -> Iterator[tuple[Wrong, C | None]]:
    """Check that lines of one TopicPartition, in offset order, join from `start` to the committed offset.

    If `start` is None, they may begin anywhere. Yields findings, each with its line; a gap behind all lines has none.
    """
    reached = start
    for number, line in enumerate(lines):
        first, after = line.first_offset, line.next_offset
        if first >= committed:
            break
        if reached is None or number == 0:
            reached = first if start is None else min(start, first)
        if first > reached:
            yield Wrong(Kind.FLUSH_GAP, f"no flush record covers [{reached}, {first})", tp, reached, first), line
        elif first < reached:
            end = min(reached, after)
            text = f"more than one flush record covers [{first}, {end})"
            yield Wrong(Kind.FLUSH_OVERLAP, text, tp, first, end), line
        if after < first:
            yield Wrong(Kind.FLUSH_WRONG, f"[{first}, {after}) runs backwards", tp, after, first), line
        reached = max(reached, after)
    if reached is not None and reached < committed:
        yield Wrong(Kind.FLUSH_GAP, f"no flush record covers [{reached}, {committed})", tp, reached, committed), None


def judge_ways_join(tp: TopicPartition, lines: Sequence[FlushedTopicPartition]) -> Iterator[Wrong]:
    """Check that a line begins with what the one before it had recorded of ways, or anew with nothing."""
    for before, line in pairwise(lines):
        if before.next_offset == line.first_offset and line.first_ways and line.first_ways != before.next_ways:
            text = f"{_span(line)}: first_ways are not the next_ways of the flush record before it"
            yield Wrong(Kind.FLUSH_WRONG, text, tp, line.first_offset, line.next_offset)


def judge_uncommitted(tp: TopicPartition, lines: Iterable[C], *, committed: int | None) -> Iterator[tuple[Wrong, C]]:
    """Check that no line covers offsets that the group has not committed: its offsets are gone, set back, or another's.

    A flush record and the offsets are committed as one, so an offset asked for later is never behind a line.
    """
    above = [line for line in lines if committed is None or line.next_offset > committed]
    if above:
        begin = min(max(line.first_offset, committed or 0) for line in above)
        end = max(line.next_offset for line in above)
        text = f"flush records cover [{begin}, {end}), which the group has not committed"
        yield Wrong(Kind.FLUSH_WRONG, text, tp, begin, end), min(above, key=lambda line: line.first_offset)


def judge_line(line: FlushedTopicPartition, counted: Counted) -> Iterator[Wrong]:
    """Compare the statements of a flush record about a range with the source."""
    facts = {
        "records": (line.records, counted.records),
        "entries": (line.entries, counted.entries),
        "min_offset": (line.min_offset, counted.min_offset),
        "max_offset": (line.max_offset, counted.max_offset),
    }
    if counted.records:  # a flush without a record may know no newest one, or that of the flush before
        facts["timestamp_max_ms"] = (line.timestamp_max_ms, counted.timestamp_max_ms)
    if differences := _differences("{0} is {1}, counted {2}", facts):
        text = f"{_span(line)}: {'; '.join(differences)}"
        yield Wrong(Kind.FLUSH_WRONG, text, tp_of(line), line.first_offset, line.next_offset)


def judge_ways(line: FlushedTopicPartition, ways: Mapping[str, tuple[int, ...]], replays: int) -> Iterator[Wrong]:
    """Compare a line with the replays in its range, and with how far the ways of its records come, in order of use."""
    tp, span = tp_of(line), (line.first_offset, line.next_offset)
    if line.discarded_replays != replays:
        text = f"{_span(line)}: discarded_replays is {line.discarded_replays}, counted {replays}"
        yield Wrong(Kind.FLUSH_WRONG, text, tp, *span)
    if list((line.next_ways or {}).items()) != list(ways.items()):
        yield Wrong(Kind.FLUSH_WRONG, f"{_span(line)}: next_ways are not those of its records", tp, *span)


def judge_totals(totals: FlushTotals, lines: Sequence[FlushedTopicPartition]) -> Iterator[Wrong]:
    """Check a flush record against itself: totals are the sums of its lines, and the conservation law holds."""
    facts = {name: (getattr(totals, name), sum(getattr(line, name) for line in lines)) for name in _SUMMED}
    differences = _differences("total of {0} is {1}, its lines say {2}", facts)
    accounted = totals.entries_in_files + totals.dead_letters
    if totals.entries != accounted:
        differences.append(f"{totals.entries} entries, accounted for are {accounted}")
    if differences:
        yield Wrong(Kind.FLUSH_WRONG, "; ".join(differences))


def judge_published(
    totals: FlushTotals,
    lines: Iterable[FlushedTopicPartition],
    sums: Sums,
    good: Sums | None = None,
    *,
    has_source: bool = True,
) -> Iterator[Wrong]:
    """Compare what a flush record says became of its entries with what its batch has published.

    `good` sums up what backfills have published within the flush record's ranges. A backfill replaces entries that the
    batch lacks, so only entries are compared then, not the number of references. A wrong number of references is a
    finding by itself; the entries in files are not compared in that case. Missing dead letters are a finding by
    themselves as long as the source is there; their entries are not compared in that case.
    """
    good = good or Sums()
    are_made_good = sums.references < totals.references and good.in_files.total() > 0
    if sums.references != totals.references and not are_made_good:
        yield _miscounted_references("flush record", totals.references, sums.references)
    has_letters = sums.dead_letter_records >= totals.dead_letter_records or good.dead_letters.total() > 0
    has_letters = has_letters or not has_source
    known = set()
    for line in lines:
        tp = tp_of(line)
        known.add(tp)
        in_files, dead = sums.in_files[tp] + good.in_files[tp], sums.dead_letters[tp] + good.dead_letters[tp]
        said = line.entries - line.dead_letters
        differences = []
        if said != in_files and (sums.references == totals.references or are_made_good):
            differences.append(f"{said} entries in files, its references say {in_files}")
        if line.dead_letters != dead and has_letters:
            differences.append(f"{line.dead_letters} entries dead, its dead letters say {dead}")
        if differences:
            text = f"{_span(line)}: {'; '.join(differences)}"
            yield Wrong(Kind.FLUSH_WRONG, text, tp, line.first_offset, line.next_offset)
    for tp in sorted((+sums.dead_letters).keys() - known):  # of references see `judge_range`
        yield Wrong(Kind.FLUSH_WRONG, "dead letters of a TopicPartition that its flush record does not name", tp)
    letters = totals.dead_letter_records
    if sums.dead_letters.total() == totals.dead_letters and sums.dead_letter_records != letters:
        text = f"its flush record says {letters} dead letters, there are {sums.dead_letter_records}"
        yield Wrong(Kind.FLUSH_WRONG, text)


def judge_run(record: BackfillRecord, sums: Sums, committed: Mapping[TopicPartition, int]) -> Iterator[Wrong]:
    """Yield the faults of a backfill's newest run record.

    If references are missing, the sums are short as a consequence and are not compared. A range is checked if
    `committed`, the group's offsets, has its TopicPartition.
    """
    totals = record.totals
    if totals.references != sums.references:
        yield _miscounted_references("run record", totals.references, sums.references)
    if totals.references <= sums.references:
        yield from _judge_run_sums(record, sums)
    for line in record.topic_partitions:
        tp = tp_of(line)
        if tp in committed and not line.first_offset <= line.next_offset <= committed[tp]:
            text = f"{_span(line)} is not below the committed offset {committed[tp]}"
            yield Wrong(Kind.BACKFILL_WRONG, text, tp, line.first_offset)


def _judge_run_sums(record: BackfillRecord, sums: Sums) -> Iterator[Wrong]:
    totals = record.totals
    facts = {
        "entries in files": (totals.entries_in_files, sums.in_files.total()),
        "dead letters": (totals.dead_letters, sums.dead_letters.total()),
        "messages with dead letters": (totals.dead_letter_records, sums.dead_letter_records),
        "messages": (record.published, sums.reference_messages + sums.dead_letter_records),
    }
    if differences := _differences("{1} {0}, counted {2}", facts):
        yield Wrong(Kind.BACKFILL_WRONG, "; ".join(differences))
    known = set()
    for line in record.topic_partitions:
        tp = tp_of(line)
        known.add(tp)
        said, counted = (line.entries_in_files, line.dead_letters), (sums.in_files[tp], sums.dead_letters[tp])
        if said != counted:
            text = "its run record says {} entries in files and {} dead, counted {} and {}".format(*said, *counted)
            yield Wrong(Kind.BACKFILL_WRONG, text, tp, line.first_offset)
    for tp in sorted((sums.in_files + sums.dead_letters).keys() - known):
        yield Wrong(Kind.BACKFILL_WRONG, "its run record says nothing of this TopicPartition", tp)


def judge_range(source: SourceRange, line: tuple[int, int] | None, *, record: str) -> Iterator[str]:
    """Yield differences of a reference's range from `line`, [first, next) of its `record`, and faults in itself."""
    stated = _span(source)
    if line is None:
        yield f"a range of which its {record} says nothing"
    elif line != (source.first_offset, source.next_offset):
        yield f"range {stated}, its {record} says [{line[0]}, {line[1]})"
    if not source.first_offset <= source.min_offset <= source.max_offset < source.next_offset:
        yield f"offsets {source.min_offset} to {source.max_offset} are not in {stated}"


_SUMMED = ("records", "entries", "dead_letters")


def _miscounted_references(record: str, said: int, found: int) -> Wrong:
    text = f"its {record} says {said} references, there are {found}"
    if said > found:
        return Wrong(Kind.REFERENCE_MISSING, text, number=said - found)
    return Wrong(Kind.REFERENCE_WRONG, text)


def _span(line: Covering) -> str:
    return f"[{line.first_offset}, {line.next_offset})"


def _differences(text: str, facts: Mapping[str, tuple[int | None, int | None]]) -> list[str]:
    """Write `text` of each fact that is said to be one number and counted to be another."""
    return [text.format(name, _shown(said), _shown(found)) for name, (said, found) in facts.items() if said != found]


def _shown(value: int | None) -> str:
    return "none" if value is None else str(value)
