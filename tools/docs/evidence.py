"""docs/EVIDENCE.md: the recorded runs as tables, set into the page's frame (docs/evidence/frame.md.in)."""

from __future__ import annotations

import inspect
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tools.acceptance import Acceptance
from tools.chaos.faults import KINDS
from tools.chaos.matrix import done_cells

Figures = dict[str, Any]

_SAID_MAX = 120  # characters of what a command said
_BROKER = re.compile(r"_(classic|consumer)_protocol\[([0-9.]+)\]$")
_OF_SEEDS = {
    "median_events": "median events",
    "median_rebalances": "median rebalances",
    "median_faults": "median faults",
    "cpu_s_per_seed": "CPU s a seed",
}
_PLACE = re.compile(r"^\{(\w+)\}$", re.MULTILINE)


def evidence_page(directory: Path) -> str:
    """Return the page made from the records in the directory.

    Raises:
        KeyError: the frame has a place for which there is no table.
    """
    pieces, seeds = _lines(directory / "endurance.jsonl"), _lines(directory / "simulation.jsonl")
    runs = _lines(directory / "chaos.jsonl") + pieces
    cells = done_cells(directory / "matrix.jsonl")
    python_cells = done_cells(directory / "matrix-python.jsonl")
    tables = {
        "answer": _answer([*runs, *cells.values(), *python_cells.values()], seeds),
        "unclean": _unclean([*runs, *cells.values(), *python_cells.values()]),
        "matrix": _matrix([cells, python_cells]),
        "faults": _faults([*runs, *cells.values(), *python_cells.values()]),
        "runs": _runs(runs),
        "course": _course(pieces),
        "brokers": _brokers(_lines(directory / "brokers.jsonl")),
        "seeds": _seeds(seeds),
        "fuzzing": _fuzzing(_lines(directory / "fuzzing.jsonl")),
        "failures": _failures(_lines(directory / "failures.jsonl")),
        "acceptance": _acceptance(_lines(directory / "acceptance.jsonl")),
    }
    frame = (directory / "frame.md.in").read_text(encoding="utf-8")
    return _PLACE.sub(lambda place: tables[place.group(1)], frame)


def _lines(file: Path) -> list[Figures]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(str, row))} |" for row in lines)


def _answer(real: Sequence[Figures], seeds: Sequence[Figures]) -> str:
    """Say what was lost and doubled, and under how much."""
    faults: Counter[str] = sum((Counter(run["faults"]) for run in real), Counter())
    kills = sum(number for kind, number in faults.items() if "kill" in kind)
    found: Counter[str] = sum((Counter(run["audit"]["findings"]) for run in real), Counter())
    others = sum(map(_findings, real)) - found["missing"] - found["duplicated"]
    hours, entries = sum(run["seconds"] for run in real) / 3600, sum(run["entries"] for run in real)
    simulated, failed = sum(run["seeds"] for run in seeds), sum(len(run["failed"]) for run in seeds)
    rows: list[tuple[object, object]] = [
        ("entries", f"{entries:,} in {sum(run['records'] for run in real):,} records"),
        ("faults", f"{sum(faults.values()):,}, of them {kills:,} kills, in {hours:.1f} hours of {len(real)} runs"),
        ("**entries lost**", f"**{found['missing']:,}**"),
        ("**entries duplicated**", f"**{found['duplicated']:,}**"),
        ("other findings of the audits at the end", f"{others:,}"),
        ("runs that are not clean for another reason", f"{sum(map(_is_unclean, real))}: below"),
        ("simulated seeds", f"{simulated:,}, of which {failed} failed: below"),
    ]
    if faults:
        bound = f"0 failures in n faults bound their share by 3/n: here {3 / faults.total():.2%} of faults, at 95 %"
        rows.append(("what that proves", bound))
    return _table(("what", "how much"), rows)


def _unclean(real: Sequence[Figures]) -> str:
    """Show each run that is not clean, with what its audit at the end found."""
    rows = [
        (run["date"], run.get("cell") or run["kind"], "; ".join(run["violations"]), f"{_findings(run):,}")
        for run in real
        if run["violations"]
    ]
    return _table(("date", "run", "why it is not clean", "findings of its audit at the end"), rows)


def _is_unclean(run: Figures) -> bool:
    return bool(run["violations"]) and not _findings(run)


def _findings(run: Figures) -> int:
    """Count the findings of the audit at the end of a run; one that could not tell counts as well."""
    audit = run["audit"]
    return sum(audit["findings"].values()) or int(audit["verdict"] != "clean")


def _matrix(lanes: Iterable[Mapping[str, Figures]]) -> str:
    """Rows are who is bounced, how and in which protocol, an old one too; each over all lanes and stores."""
    rows: dict[tuple[str, str], list[Figures]] = {}
    for cells in lanes:
        for name, figures in sorted(cells.items()):
            how, whom, _ = name.split("-", 2)
            rows.setdefault((f"{how} {whom}", figures["protocol"]), []).append(figures)
    lines = [(*row, len(cells), _not_clean(cells), *_recovery(cells)) for row, cells in rows.items()]
    return _table(("bounced", "protocol", "cells", "not clean", "median of the median cell, s", "longest, s"), lines)


def _recovery(cells: Sequence[Figures]) -> tuple[float, float]:
    found = [recovery for cell in cells for recovery in cell["recovery_s"].values()]
    return sorted(one["p50"] for one in found)[len(found) // 2], max(one["max"] for one in found)


def _not_clean(runs: Iterable[Figures]) -> str:
    return "; ".join(violation for run in runs for violation in run["violations"]) or "none"


def _faults(runs: Sequence[Figures]) -> str:
    """Each kind over all runs."""
    rows = []
    for kind, about in KINDS.items():
        times = sum(run["faults"].get(kind, 0) for run in runs)
        found = [run["recovery_s"][kind] for run in runs if kind in run["recovery_s"]]
        recovery: tuple[object, ...] = ("", "")
        if found:
            middle = sorted(one["p50"] for one in found)[len(found) // 2]
            recovery = (middle, max(one["max"] for one in found))
        rows.append((kind, f"{times:,}", about.goal_s, *recovery))
    return _table(("fault", "times", "goal, s", "recovery, median of the median run, s", "longest, s"), rows)


def _runs(runs: Sequence[Figures]) -> str:
    """Add up the runs of one kind, protocol and lane."""
    alike: dict[tuple[str, ...], list[Figures]] = {}
    for run in runs:
        alike.setdefault((run["kind"], run["protocol"], ", ".join(run["lane"])), []).append(run)
    rows = [
        (
            *what,
            len(own),
            round(sum(run["seconds"] for run in own) / 60),
            sum(sum(run["faults"].values()) for run in own),
            f"{sum(run['records'] for run in own):,}",
            f"{sum(run['flushes'] for run in own):,}",
            f"{sum(sum(run['batches_given_up'].values()) for run in own):,}",
            _not_clean(own),
        )
        for what, own in alike.items()
    ]
    head = ("kind", "protocol", "fast lane", "runs", "minutes", "faults", "records", "flushes", "discarded batches")
    return _table((*head, "not clean"), rows)


def _course(pieces: Sequence[Figures]) -> str:
    """Show what the worker that is never killed held: memory at the begin, each quarter and the end of each run."""
    rows = [
        (
            piece["date"],
            f"{piece['seconds'] / 3600:.1f}",
            f"{piece['audits_on_the_way']}"
            + (f" ({without} could not tell)" if (without := piece.get("audits_that_could_not_tell")) else ""),
            " → ".join(f"{kib / 1024:.0f}" for kib in course["rss_kib"]),
            *(f"{course[what][0]} → {course[what][-1]}" for what in ("threads", "files", "spool_files")),
        )
        for piece in pieces
        if (course := piece["spared_worker"])
    ]
    return _table(
        ("date", "hours", "audits on the way", "RSS, MiB", "threads", "open files", "files of the spool"), rows
    )


def _brokers(runs: Sequence[Figures]) -> str:
    """Show the newest run of each version and protocol; one that failed has no counts."""
    newest = {found.group(2, 1): run for run in runs if (found := _BROKER.search(run["test"]))}
    versions = sorted({version for version, _ in newest}, key=lambda version: [*map(int, version.split("."))])
    rows = [
        (version, *(_played(newest.get((version, name))) for name in ("classic", "consumer"))) for version in versions
    ]
    return _table(("broker", "classic", "consumer"), rows)


def _played(run: Figures | None) -> str:
    if run is None:
        return "not played"
    entries = f", {run['audit']['source_entries']:,} entries" if "audit" in run else ""
    return ("clean" if run["passed"] else "**failed**") + entries


def _seeds(runs: Sequence[Figures]) -> str:
    spreads = [f"{min(found)}-{max(found)}" for name in _OF_SEEDS if (found := [run[name] for run in runs])]
    rows = [(f"{sum(run['seeds'] for run in runs):,}", sum(len(run["failed"]) for run in runs), *spreads)]
    return _table(("seeds", "failed", *(f"{meaning}, of runs" for meaning in _OF_SEEDS.values())), rows)


def _fuzzing(runs: Sequence[Figures]) -> str:
    """Add up the runs of each format."""
    rows = []
    for name in sorted({run["format"] for run in runs}):
        own = [run for run in runs if run["format"] == name]
        minutes, inputs, failed = (sum(run[what] for run in own) for what in ("cpu_minutes", "inputs", "failed"))
        rows.append((name, f"{minutes:.1f}", f"{inputs:,}", failed))
    return _table(("format", "minutes of CPU", "inputs", "runs that ended with an input that failed"), rows)


def _failures(runs: Sequence[Figures]) -> str:
    """Show the newest run of each failure."""
    rows = [
        (
            run["row"],
            ", ".join(f"{alert} {seconds} s" for alert, seconds in run["fired_s"].items()),
            f"{_code(run['command'])}: {_code(run['cause_named']) if run['cause_named'] else '**not named**'}",
            f"{run['resolved_s']} s",
            f"{run['audit']['verdict']}, {run['audit']['counts']['source_entries']:,} entries",
        )
        for run in {run["failure"]: run for run in runs}.values()
    ]
    return _table(("failure", "alerts fire after", "the command says", "none fires after", "audit"), rows)


def _code(words: str) -> str:
    """Return the begin of some words as code within a table."""
    return f"`{words[:_SAID_MAX].strip()}`".replace("|", "\\|")


def _acceptance(steps: Sequence[Figures]) -> str:
    """Show the seconds of each step and what it saw, a column a run; the record has the sentences of the product."""
    runs = list(dict.fromkeys(step["run"] for step in steps))
    cells = {(step["step"], step["run"]): _seen(step) for step in steps}
    rows = [
        (_about(name), *(cells.get((name, run), "") for run in runs))
        for name in vars(Acceptance)
        if any((name, run) in cells for run in runs)
    ]
    return _table(("step", *runs), rows)


def _about(step: str) -> str:
    return (inspect.getdoc(getattr(Acceptance, step)) or step).splitlines()[0].removesuffix(".")


def _seen(step: Figures) -> str:
    seen = {name: value for name, value in step.items() if name not in {"run", "step", "s", "said"}}
    counts = seen.pop("counts", {})
    seen |= {job: f"{ended['s']} s" for job, ended in seen.pop("jobs", {}).items()}
    seen |= {name: counts[name] for name in ("entries_in_files", "entries_in_dead_letters") if name in counts}
    texts = (f"{name} {value:,}" if isinstance(value, int) else f"{name} {value}" for name, value in seen.items())
    return ": ".join(filter(None, (f"{step['s']} s", ", ".join(texts).replace("_", " "))))
