"""docs/PERFORMANCE.md as text, from the figures alone."""

import statistics
from collections.abc import Iterator

from bench import real
from bench.figures import Book, F, Steady
from bench.page_plots import NAMES, PLOTS
from bench.stages import STAGE_RECORDS
from bench.worker import CPU, RATE, RSS, START, cell, number

_WORKLOADS = {
    "A": "200 users, few with most, 24 hours: 4,800 user/date/hour",
    "B": "10,000 users, 2 hours: 20,000 user/date/hour",
    "C": "100,000 users, 2 hours: about 199,000 user/date/hour",
    "D": "500,000 users, 2 hours",
    "M": "as A, five entries in an array to a record",
    "N": "hostile, as no real set is: 1,000 users, 2 hours; nested, 300 optional fields of forty kinds of events, "
    "types that disagree for every user, ever new shapes, long floats",
}
_FIGURES = {
    "entries/s": RATE,
    "start, CPU s": START,
    "peak RSS, MiB": RSS,
    "objects": "objects",
    "PUTs": "PUTs",
    "flush p50, s": "flush s, p50",
    "flush p99, s": "flush s, p99",
    "share of time not reading": "share of time not reading",
}
_HEAD = """# Performance

Made by `make bench` from `docs/performance/figures.json`, which has more than is shown here; do not edit. `python -m
bench.page --from docs/performance/figures.json` writes it again without measuring.

"""
_HOW = """
## How it was measured

- Kafka, the S3 server, which keeps objects as files, and the measured process run on one machine. CPU is the kernel's
  accounting of the measured process and its children, without Kafka and S3.
- F is a process that reads the same topic and throws its records away, measured in the same round. Compare multiples of
  F between machines, not wall times and entries/s: the servers take part of the same cores.
- Each round goes through all workloads and systems. Cells are the median, and the CPU of an entry also (least - most).
- The worker runs with its default settings and the paths to users and times. CPU counts from the first assignment to
  the exit after the last commit; its start is apart. It is told to stop once it has taken every record, so that its
  last flush does not wait for the interval.
- The start of the others is left out until their job is about to be submitted. They get the fields of A as a fixed
  schema, and have to find those of real logs; the worker finds out all schemas. They are ended after 300 s.
- *The obvious program*: lists of dicts, fastavro's writer at each flush, `upload_file`, one Kafka transaction. On real
  logs the schema is what the entries of a file have in common, with JSON for values whose types differ.
- *Spark*: Structured Streaming, `availableNow`, two cores, repartitioned by key (without it: eight times the files),
  Avro to S3 by S3A. Readers have to use its `_spark_metadata`. On real logs it infers one schema from the topic first.
  A job pays most of its cost there once: cloudtrail took it 54 CPU s for 4,000 entries and 57 for 30,000, so that its
  µs of an entry fall with more entries.
- *Flink*: SQL with parallelism 2 and checkpoints of 30 s to a **local disk**: to S3 it did not finish (of 4,800
  multipart uploads 2 were complete when others were done). Its last files wait for a checkpoint, which its rate shows
  and its CPU does not.
- Entries in the files of all of them are counted after each run; a run with a wrong number has no figures.
"""


def render(book: Book) -> str:
    """Return the page."""
    parts = (
        _HEAD + _rest(book.unrest()),
        _real(book),
        _generated(book),
        *_plots(book),
        _stages(book),
        _more(book),
        _HOW,
    )
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def _is_real(name: str) -> bool:
    return name in (*real.SETS, real.MIX)


def _plots(book: Book) -> Iterator[str]:
    if "A" in book.workloads:
        yield "\n".join(f"![{label}](performance/{name})" for name, label in PLOTS.items())


def _real(book: Book) -> str:
    """Return the table of real logs: a line for each set."""
    names = [name for name in book.workloads if _is_real(name)]
    if not names:
        return ""
    titles = (
        *("entries", "bytes", "F, µs", "µs", "µs per KB", "multiples of F", "Python alone, multiples of F"),
        *(
            "the obvious program, µs (times ours)",
            "Spark, µs (times ours)",
            "objects",
            "PUTs",
            "start, s",
            "peak RSS, MiB",
        ),
    )
    lines = ["## Real logs", "", _REAL, "", "| | " + " | ".join(titles) + " |", "| --- |" + " ---: |" * len(titles)]
    lines += [f"| {name} | " + " | ".join(_real_cells(book, name)) + " |" for name in names]
    absent = [(name, *one) for name in names for one in sorted(book.absent.get(name, {}).items())]
    lines += ["", *(f"- {name}, {NAMES[system]}: {why}" for name, system, why in absent)]
    several = dict.fromkeys(_measured_of(book, name) for name in names)
    lines += [f"- {of}" for of in several]
    return "\n".join(lines)


def _real_cells(book: Book, name: str) -> Iterator[str]:
    amount, ours = book.workloads[name], book.values(name, "fast", CPU)
    yield f"{amount.entries:,}"
    yield number(amount.bytes // amount.entries)
    yield cell(book.values(name, F, CPU))
    yield cell(ours)
    yield cell([us * amount.entries / amount.bytes * 1000 for us in ours])
    yield from (cell(book.times_f(name, system)) for system in ("fast", "python"))
    for system in ("obvious", "spark"):
        theirs = book.values(name, system, CPU)
        times = f" ({number(statistics.median(theirs) / statistics.median(ours))})" if theirs and ours else ""
        yield cell(theirs) + times
    yield from (cell(book.values(name, "fast", figure)) for figure in ("objects", "PUTs", START, RSS))


def _measured_of(book: Book, name: str) -> str:
    rounds = len({one.round for one in book.measured if one.workload == name})
    return f"{rounds} round{'s' * (rounds != 1)}, {book.workloads[name].of}."


def _rest(unrest: list[str]) -> str:
    if not unrest:
        return "The machine was quiet: its load average before the run was below 0.5, and F varied by less than 15 %."
    return f"**The machine was not quiet: {'; '.join(unrest)}.** Read multiples of F, and those within one column."


def _generated(book: Book) -> str:
    """Return the table of generated records: a line for each system that was measured on each workload."""
    names = [name for name in book.workloads if not _is_real(name)]
    if not names:
        return ""
    lines = ["## Generated records", "", *(_about(book, name) for name in names)]
    lines += [f"- {of}" for of in dict.fromkeys(_measured_of(book, name) for name in names)]
    titles = ("CPU µs per entry", "multiples of F", *_FIGURES)
    lines += ["", "| | | " + " | ".join(titles) + " |", "| --- | --- |" + " ---: |" * len(titles)]
    for name in names:
        systems = [system for system in NAMES if book.values(name, system, CPU)]
        lines += [f"| {name} | {NAMES[system]} | {' | '.join(_cells(book, name, system))} |" for system in systems]
    absent = [(name, *one) for name in names for one in sorted(book.absent.get(name, {}).items())]
    return "\n".join([*lines, "", *(f"- {name}, {NAMES[system]}: not measured: {why}" for name, system, why in absent)])


def _about(book: Book, name: str) -> str:
    amount = book.workloads[name]
    size = f"{amount.entries:,} entries, {amount.bytes / amount.records:,.0f} bytes a record"
    return f"- **{name}**: {_WORKLOADS[name]}; {size}; F {cell(book.values(name, F, CPU))} µs"


def _cells(book: Book, name: str, system: str) -> Iterator[str]:
    yield cell(book.values(name, system, CPU))
    yield cell(book.times_f(name, system))
    for figure in _FIGURES.values():
        found = book.values(name, system, figure)
        yield cell([statistics.median(found)] if found else [])


def _stages(book: Book) -> str:
    if not book.stages:
        return ""
    lines = ["## Parts of the worker's path", "", _STAGES, "", "| " + " | ".join(_STAGES_COLUMNS) + " |"]
    lines += ["| --- | --- |" + " ---: |" * (len(_STAGES_COLUMNS) - 2)]
    lines += [
        f"| {workload} | {NAMES[lane].removeprefix('worker, ')} | {_flush_cells([*flushes.values()])} |"
        for workload, lanes in sorted(book.stages.items(), key=lambda one: not _is_real(one[0]))
        for lane, flushes in lanes.items()
    ]
    lines += ["", *(f"- {of}" for of in dict.fromkeys(book.stages_of.values()))]
    return "\n".join(lines)


def _flush_cells(flushes: list[dict[str, float]]) -> str:
    """Return what the flushes have in each column, once if it is the same."""
    columns = zip(*map(_stage_cells, flushes), strict=True)
    return " | ".join("; ".join(dict.fromkeys(column)) for column in columns)


def _stage_cells(figures: dict[str, float]) -> list[str]:
    us = [figures[name] for name in ("record", "plan", "seal")]
    cells = [number(figures["entries"]), *(f"{one:.2f}" for one in us), f"{sum(us) / figures['bytes'] * 1000:.1f}"]
    return [*cells, f"{figures['given back']:.2%}", f"{figures['headers']:.1%}"]


def _more(book: Book) -> str:
    lines: list[str] = []
    if book.revoke:
        lines += ["", "## A rebalance at full load", "", _REVOKE, ""]
        lines += [
            f"- {NAMES[system]}: {found['seconds']:.2f} s for {found['entries']:,.0f} entries"
            for system, found in book.revoke.items()
        ]
    if book.steady:
        lines += ["", "## A steady rate", "", _STEADY, ""]
        lines += ["| " + " | ".join(_STEADY_COLUMNS) + " |", "|" + " --- |" * len(_STEADY_COLUMNS)]
        lines += [_steady(one) for one in book.steady]
    return "\n".join([*lines, ""]) if lines else ""


_REAL = f"""Public logs: Windows events as four collectors write them (nxlog, timecreated, winlogbeat, sentinel), AWS
CloudTrail, Suricata's EVE, Wikipedia's edits, nginx's status. Each is a topic, with its own paths to users and times;
{real.MIX} is entries of all of them as one topic. Short sets are repeated. µs are CPU of an entry, with the fast lane
if no other is named; the start is apart."""
_STAGES = f"""CPU µs per entry in one process, without Kafka and S3: from the columns of a poll to rows (record),
which rows go into which object (plan), from rows to finished objects on a local disk (seal). Two flushes, cold; warm,
as one figure if both have the same: first each entry once, then at most {STAGE_RECORDS:,} records, repeated if a set
has fewer. Given back: records that compiled code leaves to Python. Headers: their share of the bytes of objects."""
_STAGES_COLUMNS = ("", "lane", "entries", "record", "plan", "seal", "sum per KB", "given back", "headers")
_REVOKE = """A second worker joins while the first works through a backlog of A: how long the first one's revoke blocks,
which is the flush of everything that it holds. The longest of three: a batch may just have begun."""
_STEADY = """`python -m bench.steady`: one worker on one core; Kafka, S3 and the producer on the others. Lag is records
between the end of the topic and what is committed, each second; its bound is two flush intervals' worth of records."""
_STEADY_COLUMNS = (
    *("entries/s", "minutes", "settings", "lag p50", "lag p99", "most", "bound", "share of a core", "flush p50, s"),
    *("flush p99, s", "RSS, MiB", "the bound"),
)


def _steady(one: Steady) -> str:
    found = one.figures
    lags = " | ".join(f"{found[name]:,.0f}" for name in ("lag p50", "lag p99", "lag max", "lag bound"))
    settings = ", ".join(f"{name}={value}" for name, value in one.settings.items()) or "default"
    return (
        f"| {one.rate:,} | {one.minutes:g} | {settings} | {lags} | {found['share of a core']:.2f} "
        f"| {found['flush s, p50']:.2f} | {found['flush s, p99']:.2f} | {found[RSS]:,.0f} | {one.broken or 'holds'} |"
    )
