"""A result, those before it and the workers' logs -> one HTML page.

Nothing in a page comes from a clock or from this machine: the same input yields the same bytes. The template escapes
texts of the data, and the page forbids itself scripts and the network.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from log_partitioner.privacy import printable
from log_partitioner_pipeline.audit.history import kept, read_result
from log_partitioner_pipeline.audit.result import Example, Result, Verdict, Witness
from log_partitioner_pipeline.errors import PipelineError
from log_partitioner_pipeline.report import words
from log_partitioner_pipeline.report.around import Log, Range, ranges_of, read_log
from log_partitioner_pipeline.report.plots import plots_of

RANGES_SHOWN = 200
EXAMPLES_SHOWN = 1000
HOURS_SHOWN = 500
AUDITS_SHOWN = 60

_NO_LOGS = Log([], 0, 0)

Cell = str | int | None


class Listing(NamedTuple):
    """One table; numbers stand on the right of their cells."""

    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[Cell]]


def write_page(
    result: Result,
    file: Path,
    *,
    earlier: Sequence[Result] = (),
    history: Path | None = None,
    logs: Sequence[Path] = (),
) -> None:
    """Write the page of a result beside earlier ones about the same witness; replaces a page that is there as a whole.

    A file of the history that is no result is left out, and the page says so.

    Raises:
        PipelineError: a log cannot be read, or the page cannot be written.
    """
    results, notes = list(earlier), []
    for kept_file in kept(history) if history is not None else []:
        try:
            results.append(read_result(kept_file))
        except PipelineError as error:
            notes.append(f"left out of the history: {error}")
    try:
        log = read_log(_lines(logs))
    except OSError as error:
        raise PipelineError(f"a log cannot be read: {error}") from error
    page = render(result, earlier=results, log=log, notes=notes)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        partial = file.with_name(f"{file.name}.partial")
        partial.write_text(page, encoding="utf-8")
        partial.replace(file)
    except OSError as error:
        raise PipelineError(f"the page cannot be written: {error}") from error


def render(result: Result, *, earlier: Sequence[Result] = (), log: Log = _NO_LOGS, notes: Sequence[str] = ()) -> str:
    """Make the page of `result`; `earlier` are results to compare it with, `notes` are remarks about the input."""
    audits = audits_of(result, earlier)
    return (
        _templates()
        .get_template("page.html.j2")
        .render(
            result=result,
            sentence=_sentence(result),
            notes=[*result.notes, *notes],
            accounts=list(_accounts(result)),
            plots=plots_of(result, audits),
            ranges=ranges_of(result, log.events, examples_max=EXAMPLES_SHOWN),
            log=log,
            events=sorted(Counter(event.name for event in log.events).items()),
            audits=_audits(audits),
            details=_listings(result),
            ranges_shown=RANGES_SHOWN,
            examples_shown=EXAMPLES_SHOWN,
        )
    )


def audits_of(result: Result, earlier: Iterable[Result]) -> list[Result]:
    """Return the newest audits up to this one about the same witness, each once, the oldest first."""
    before = [one for one in earlier if one.against is result.against and one.started_at_ms <= result.started_at_ms]
    once = {one.run_id: one for one in (*before, result)}
    return sorted(once.values(), key=lambda one: (one.started_at_ms, one.run_id))[-AUDITS_SHOWN:]


def _accounts(result: Result) -> Iterator[Listing]:
    for title, counts in (("Counts", result.counts), ("Archive", result.archive), ("Unique ids", result.ids)):
        if counts is not None:
            yield Listing(title, (), list(_cells(counts).items()))
    yield Listing("Dead letters by reason", (), list(result.dead_letters.items()))


def _audits(audits: Sequence[Result]) -> Listing:
    rows = [(words.moment(one.started_at_ms), words.plain(one.verdict), _found(one)) for one in reversed(audits)]
    title = f"The last {words.plural(len(audits), 'audit', 'audits')} as a table"
    return Listing(title, ("audited at (UTC)", "verdict", "findings"), rows)


def _listings(result: Result) -> Iterator[Listing]:
    hours = sorted(result.hours, key=lambda one: (bool(one.findings), one.date, one.hour))[-HOURS_SHOWN:]
    hours.sort(key=lambda one: (one.date, one.hour))
    of_all = f"{len(hours)} of {len(result.hours) + result.hours_left_out:,}"
    yield _listing(f"Dates and hours of event time: {of_all}", hours)
    record_hours = result.record_hours[-HOURS_SHOWN:]
    of_all = f"{len(record_hours)} of {len(result.record_hours):,}"
    yield _listing(f"Hours of record timestamps (UTC): {of_all}", record_hours)
    yield _listing("Offsets that were audited", result.coverage)
    yield Listing("Ids that differ", (), [(text,) for text in result.ids.examples] if result.ids else [])
    yield Listing("Places", (), list(result.places.items()))
    yield Listing("Seconds by step", (), [(name, f"{took_s:.1f}") for name, took_s in result.durations_s.items()])


def _listing(title: str, rows: Sequence[msgspec.Struct]) -> Listing:
    """List all fields of rows."""
    cells = [_cells(row) for row in rows]
    return Listing(title, list(cells[0]) if cells else (), [list(one.values()) for one in cells])


def _cells(row: msgspec.Struct) -> dict[str, Cell]:
    """Return the fields by their names in words, with values for a person."""
    fields = msgspec.structs.asdict(row).items()
    return {words.plain(name.removesuffix("_ms")): _cell(name, value) for name, value in fields}


def _cell(name: str, value: object) -> Cell:
    match value:
        case dict():
            return ", ".join(f"{count:,} {words.plain(kind)}" for kind, count in value.items())
        case list():
            return len(value)
        case bool():
            return "yes" if value else "no"
        case int() if name == "begins_ms":
            return words.moment(value)
        case int() if name.endswith("_ms"):
            return words.seconds(value)
        case int() if "bytes" in name:
            return words.size(value)
        case int() | None:
            return value
        case Verdict():
            return words.plain(value)
        case _:
            return str(value)


def _sentence(result: Result) -> str:
    """Say what the verdict means for this result."""
    counts, doubts = result.counts, words.plural(len(result.could_not_tell), "reason", "reasons")
    match result.verdict:
        case Verdict.CLEAN if counts.entries == 0:
            return "The source has no entries here, and nothing else claims any."
        case Verdict.CLEAN if result.against is Witness.CSV:
            return "As far as source and archive can be compared, the archive has each entry once, as it should be."
        case Verdict.CLEAN:
            table = "" if counts.in_table is None else ", and in the table as in the files"
            entries = words.plural(counts.entries, "entry", "entries")
            return f"{entries} of the source: each is in exactly one file or dead letter{table}."
        case Verdict.FINDINGS:
            total = words.plural(sum(one.count for one in result.findings), "finding", "findings")
            besides = f" The audit could not tell all, for {doubts}." if result.could_not_tell else ""
            return f"{total}: {_found(result)}.{besides}"
        case Verdict.COULD_NOT_TELL:
            return f"Nothing wrong was found, but that is not the whole answer, for {doubts}."


def _found(result: Result) -> str:
    return ", ".join(f"{one.count:,} {words.plain(one.kind)}" for one in result.findings)


def _place(one: Range) -> str:
    offsets = [example.offset for example in one.examples if example.offset is not None]
    if one.tp is None or not offsets:
        return "of no offsets"
    first, last = min(offsets), max(offsets)
    return f"{one.tp} offset {first}" if first == last else f"{one.tp} offsets {first} to {last}"


def _facts(one: Example) -> str:
    """Write what is known of a finding beside its place and text."""
    names = ("user", "date", "hour", "id", "object", "reference_id", "batch_id", "worker")
    facts = {words.plain(name): getattr(one, name) for name in names}
    facts["record of"] = None if one.timestamp_ms is None else words.moment(one.timestamp_ms)
    return ", ".join(f"{name} {value}" for name, value in facts.items() if value is not None)


def _lines(files: Iterable[Path]) -> Iterator[bytes]:
    for file in files:
        with file.open("rb") as lines:
            yield from lines


@cache
def _templates() -> Environment:
    environment = Environment(
        loader=PackageLoader("log_partitioner_pipeline.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalized,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for function in (words.number, words.plural, words.moment, words.seconds, words.plain, _place, _facts):
        environment.filters[function.__name__.lstrip("_")] = function
    return environment


def _finalized(value: object) -> object:
    """Show characters of the data by their numbers if they are invisible."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value
