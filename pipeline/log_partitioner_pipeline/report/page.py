"""A result, those before it and the workers' logs -> one HTML page.

Nothing in a page comes from a clock or from this machine: the same input yields the same bytes. Texts of the data are
escaped by the templates, and the page forbids itself scripts and the network.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from log_partitioner.formats.log_events import EVENTS, BatchCommitted, BatchDiscarded, Positioned
from log_partitioner.privacy import printable
from log_partitioner_pipeline.audit.result import Archive, Hour, Result, Witness
from log_partitioner_pipeline.report import plots, series, words
from log_partitioner_pipeline.report.around import facts_of, moments_of
from log_partitioner_pipeline.report.beside import Range, ranges_of
from log_partitioner_pipeline.report.events import REBALANCES, Log
from log_partitioner_pipeline.report.svg import Plot
from log_partitioner_pipeline.report.timeline import timeline

RANGES_OPEN = 40
RANGES_SHOWN = 1000
EXAMPLES_SHOWN = 1000
HOURS_SHOWN = 500
AUDITS_SHOWN = 60
_EVENTS_COUNTED = (BatchCommitted, BatchDiscarded, Positioned)


class Account(NamedTuple):
    """One line of the table of accounts; `number` None: not asked for. `is_wrong`: it should be 0."""

    name: str
    number: int | None
    text: str = ""
    is_wrong: bool = False


def render(result: Result, *, earlier: Sequence[Result] = (), log: Log | None = None, notes: Sequence[str] = ()) -> str:
    """Make the page of `result`; `earlier` are results to compare it with, `notes` are remarks about the input."""
    events = [] if log is None else log.events
    ranges = ranges_of(result, events)
    audited = series.audits([*earlier, result])[-AUDITS_SHOWN:]
    return (
        _templates()
        .get_template("page.html.j2")
        .render(
            result=result,
            title=words.verdict_title(result.verdict),
            sentence=words.verdict_sentence(result),
            accounts=accounts_of(result),
            flow=_flow(result),
            found=_found(result),
            timeline=timeline(ranges, result.flushes, events),
            ranges=ranges,
            ranges_open=RANGES_OPEN,
            ranges_shown=RANGES_SHOWN,
            examples_shown=EXAMPLES_SHOWN,
            hours=_shown(result.hours),
            record_hours=result.record_hours[-HOURS_SHOWN:],
            audited=audited,
            audits=plots.over_audits(audited) if len(audited) > 1 else None,
            log=log,
            logged=_logged(log),
            notes=[*result.notes, *notes],
            is_archive=result.against is Witness.CSV,
        )
    )


def accounts_of(result: Result) -> list[tuple[str, list[Account]]]:
    """Return the table of accounts in its parts."""
    counts, wrong = result.counts, {finding.kind.value: finding.count for finding in result.findings}
    entry_kinds = ("missing", "duplicated", "unexpected", "misplaced", "altered", "meta", "id_mismatch")
    letter_kinds = ("dead_letter_missing", "dead_letter_duplicated", "dead_letter_unexpected", "dead_letter_wrong")
    shown = (*entry_kinds, *letter_kinds)
    others = sum(count for kind, count in wrong.items() if kind not in shown)
    parts = [
        (
            "Source",
            [
                Account("records", counts.records),
                Account("entries", counts.entries),
                Account("deliverable", counts.deliverable, "entries that must be in a file"),
                Account("dead", counts.dead, "entries that must be in a dead letter"),
            ],
        ),
        (
            "Delivered",
            [
                Account("in files", counts.in_files, "entries found there, each once"),
                Account("in dead letters", counts.in_dead_letters, "entries found there, each once"),
                Account("rows", counts.rows, "of all references that were read, those of the padding too"),
                *_where_any("rows of retired objects", counts.rows_retired, "of these; read from the table"),
                Account("in the table", counts.in_table, "rows of the window"),
            ],
        ),
        (
            "Wrong",
            [Account(words.kind_name(kind), wrong.get(kind, 0), is_wrong=True) for kind in entry_kinds[:5]]
            + [Account(words.kind_name(kind), wrong[kind], is_wrong=True) for kind in shown[5:] if kind in wrong]
            + [Account("other findings", others, "references, objects, flush records, table", is_wrong=True)],
        ),
        (
            "Announced",
            [
                Account("references", counts.references),
                Account("objects", counts.objects, words.size(counts.object_bytes)),
                *_where_any("objects retired", counts.objects_retired, "of these; the table has their entries"),
                Account("flush records", counts.flushes),
                Account("objects listed", counts.objects_listed, "under the prefix"),
            ],
        ),
    ]
    if result.ids is not None:
        ids = result.ids
        parts.append(
            (
                "Unique ids",
                [
                    Account("in the source", ids.in_source),
                    Account("in files", ids.in_files),
                    Account("missing ids", ids.missing, is_wrong=True),
                    Account("surplus ids", ids.surplus, is_wrong=True),
                    Account("repeated in the source", ids.repeated_in_source, "by the producer"),
                ],
            )
        )
    if result.archive is not None:
        parts.insert(1, ("Archive", _archive(result.archive)))
    return parts


def _where_any(name: str, number: int, text: str) -> list[Account]:
    return [Account(name, number, text)] if number else []


def _archive(archive: Archive) -> list[Account]:
    counts = msgspec.structs.asdict(archive)
    del counts["bytes"]
    sizes = {"files": words.size(archive.bytes)}
    return [Account(name.replace("_", " "), count, sizes.get(name, "")) for name, count in counts.items()]


def _flow(result: Result) -> list[Plot]:
    """Plot the flow of entries in and out."""
    entries, lag = series.entries_per_hour(result), series.lag_per_hour(result)
    files, sizes = series.files_per_hour(result), series.sizes_per_hour(result)
    drawn = [] if entries is None else [plots.entries(entries)]
    drawn += [] if lag is None else [plots.lag(lag)]
    if files is not None:
        # results of before the sizes were known have files only
        drawn.append(plots.files(files, sizes if sizes is not None and sizes.edges_ms == files.edges_ms else None))
    return drawn


def _found(result: Result) -> Plot | None:
    found = series.findings_per_hour(result)
    return None if found is None else plots.findings(found)


def _shown(hours: Sequence[Hour]) -> list[Hour]:
    """Choose hours for a table: those with findings before others, the newest of each."""
    ordered = sorted(hours, key=lambda one: (not one.findings, [-ord(char) for char in one.date], -one.hour))
    return sorted(ordered[:HOURS_SHOWN], key=lambda one: (one.date, one.hour))


def _logged(log: Log | None) -> list[tuple[str, int]]:
    """Count the events that were read."""
    if log is None:
        return []
    told = [event.told for event in log.events]
    counted = [("rebalances", sum(isinstance(one, REBALANCES) for one in told))]
    return counted + [
        (words.kind_name(name), sum(isinstance(one, kind) for one in told))
        for name, kind in EVENTS.items()
        if kind in _EVENTS_COUNTED
    ]


@cache
def _templates() -> Environment:
    environment = Environment(
        loader=PackageLoader("log_partitioner_pipeline.report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalized,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": words.number,
        "plural": words.plural,
        "size": words.size,
        "moment": words.moment,
        "precise": words.precise,
        "seconds": words.seconds,
        "kind": words.kind_name,
        "moments": moments_of,
        "facts": facts_of,
    }
    environment.globals |= {"meanings": words.MEANINGS, "window_words": words.window_words, "place": _place}
    return environment


def _finalized(value: object) -> object:
    """Show characters of the data by their numbers if they are invisible."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _place(one: Range) -> str:
    if one.tp is None:
        return "of no offsets"
    if one.first_offset == one.last_offset:
        return f"{one.tp} offset {one.first_offset}"
    return f"{one.tp} offsets {one.first_offset} to {one.last_offset}"
