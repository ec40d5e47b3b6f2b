"""Verdicts, kinds of findings, numbers and times in words for a person; all times are UTC."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from log_partitioner.formats.findings import Kind
from log_partitioner_pipeline.audit.result import Result, Verdict, Window, Witness

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SIZES = ("B", "KiB", "MiB", "GiB", "TiB")
_STEP = 1024
_WHOLE_FROM = 100
_SECOND_MS = 1000

MEANINGS = {
    Kind.MISSING: "An entry that must be in a file is in no file and in no dead letter.",
    Kind.DUPLICATED: "A surplus place of an entry: it is once too often in files and dead letters.",
    Kind.UNEXPECTED: "A row of an entry that the source does not have, or that must be a dead letter.",
    Kind.MISPLACED: "A row under a wrong user, date or hour.",
    Kind.ALTERED: "A row with values that are not those of the source.",
    Kind.META: "A row whose _meta has a wrong event time (in the right hour), id, timestamp or root.",
    Kind.ID_MISMATCH: "A unique id occurs in other numbers than in the source, though positions agree.",
    Kind.DEAD_LETTER_MISSING: "An entry that must be a dead letter is in none, and in no file.",
    Kind.DEAD_LETTER_DUPLICATED: "A surplus dead letter of an entry.",
    Kind.DEAD_LETTER_UNEXPECTED: "A dead letter of an entry without fault, or of no entry at all.",
    Kind.DEAD_LETTER_WRONG: "A dead letter with a wrong reason, index, bytes or headers.",
    Kind.REFERENCE_MISSING: "A reference that a flush record (or a run record) counts, and that is not there.",
    Kind.REFERENCE_DUPLICATED: "A surplus message with the same reference id.",
    Kind.REFERENCE_WRONG: "A statement of a reference is wrong: counts, ranges, times, schema or version.",
    Kind.OBJECT_MISSING: "An object that is referenced, and that is not there.",
    Kind.OBJECT_ALTERED: "An object whose size, checksum or etag is not the reference's.",
    Kind.OBJECT_UNREADABLE: "An object with the right bytes that is no Avro file of this product.",
    Kind.OBJECT_UNREFERENCED: "An object under the prefix that nothing committed names.",
    Kind.FLUSH_GAP: "A hole between flush records, or between them and the committed offset.",
    Kind.FLUSH_OVERLAP: "Offsets of a TopicPartition that two flush records cover.",
    Kind.FLUSH_WRONG: "A statement of a flush record that source or references do not bear out.",
    Kind.BACKFILL_WRONG: "A statement of a backfill's run record that its messages do not bear out.",
    Kind.TABLE_MISSING: "An entry in a file that the table has taken, and that is not in the table.",
    Kind.TABLE_DUPLICATED: "A surplus row of an entry in the table, beyond those in files.",
    Kind.TABLE_UNEXPECTED: "A row of the table of an entry that the source does not have, or that is dead.",
    Kind.TABLE_ALTERED: "A row of the table with values or _meta neither of the source nor of a file.",
    Kind.CSV_BROKEN: "A line of the archived CSV that is no row.",
    Kind.CSV_UNREADABLE: "A file of the archive that cannot be read to its end as what settings say.",
}


def verdict_title(verdict: Verdict) -> str:
    """Return the verdict as a heading."""
    return {
        Verdict.CLEAN: "Clean",
        Verdict.FINDINGS: "Findings",
        Verdict.COULD_NOT_TELL: "Could not tell",
    }[verdict]


def verdict_sentence(result: Result) -> str:
    """Return the meaning of the verdict for this result."""
    counts = result.counts
    asked = "" if counts.in_table is None else ", and in the table as in the files"
    match result.verdict:
        case Verdict.CLEAN if counts.entries == 0:
            return "The source has no entries here, and nothing else claims any."
        case Verdict.CLEAN if result.against is Witness.CSV:
            return "As far as source and archive can be compared, the archive has each entry once, as it should be."
        case Verdict.CLEAN:
            entries = plural(counts.entries, "entry", "entries")
            retired = plural(counts.rows_retired, "row", "rows")
            kept = f" {retired} of retired objects were read from the table." if counts.rows_retired else ""
            return f"{entries} of the source: each is in exactly one file or dead letter{asked}.{kept}"
        case Verdict.FINDINGS:
            total = sum(one.count for one in result.findings)
            kinds = ", ".join(f"{number(one.count)} {kind_name(one.kind)}" for one in result.findings)
            doubts = f" {plural(len(result.could_not_tell), 'thing', 'things')} could not be told besides."
            return f"{plural(total, 'finding', 'findings')}: {kinds}.{doubts if result.could_not_tell else ''}"
        case Verdict.COULD_NOT_TELL:
            reasons = plural(len(result.could_not_tell), "reason", "reasons")
            return f"Nothing wrong was found, but that is not the whole answer, for {reasons}."


def window_words(window: Window) -> str:
    """Return the window that was asked for, in words."""
    if window.is_everything:
        return "everything that the worker answers for"
    begin = "the beginning" if window.from_ms is None else moment(window.from_ms)
    end = "the end" if window.until_ms is None else moment(window.until_ms)
    return f"records from {begin} until {end}"


def kind_name(kind: Kind | str) -> str:
    """Return a kind in words."""
    return str(kind).replace("_", " ")


def number(value: float | None) -> str:
    """Write a number with separated thousands; a dash if there is none."""
    if value is None:
        return "\N{EN DASH}"
    return f"{value:,}"


def plural(count: int, one: str, several: str) -> str:
    """Write a number with its noun."""
    return f"{number(count)} {one if count == 1 else several}"


def size(value: int | None) -> str:
    """Write bytes in the unit that fits."""
    if value is None:
        return "\N{EN DASH}"
    amount, unit = float(value), 0
    while amount >= _STEP and unit < len(SIZES) - 1:
        amount, unit = amount / _STEP, unit + 1
    return f"{amount:.0f} {SIZES[unit]}" if unit == 0 or amount >= _WHOLE_FROM else f"{amount:.1f} {SIZES[unit]}"


def moment(at_ms: int | None) -> str:
    """Write an instant to the second; a dash if there is none, the number if no calendar has it."""
    return _written(at_ms, "%Y-%m-%d %H:%M:%S")


def precise(at_ms: int | None) -> str:
    """Write an instant to the millisecond."""
    text = _written(at_ms, "%Y-%m-%d %H:%M:%S")
    return text if at_ms is None else f"{text}.{at_ms % 1000:03}"


def _written(at_ms: int | None, form: str) -> str:
    if at_ms is None:
        return "\N{EN DASH}"
    try:
        return (_EPOCH + timedelta(milliseconds=at_ms)).strftime(form)
    except OverflowError:
        return f"{at_ms} ms"


def seconds(value_ms: float | None) -> str:
    """Write milliseconds as a duration in the two largest units."""
    if value_ms is None:
        return "\N{EN DASH}"
    sign, rest = ("\N{MINUS SIGN}" if value_ms < 0 else ""), abs(value_ms) / _SECOND_MS
    for unit, name, part, lower in ((86_400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if rest >= unit:
            return f"{sign}{rest // unit:.0f} {name} {rest % unit // part:.0f} {lower}"
    return f"{sign}{rest:.1f} s" if rest >= 1 else f"{sign}{abs(value_ms):.0f} ms"
