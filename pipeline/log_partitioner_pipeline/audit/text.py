"""A result for a person at a terminal."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from log_partitioner.formats.findings import to_be_shown
from log_partitioner.privacy import printable
from log_partitioner.proof.audit.report import table_of
from log_partitioner_pipeline.audit.result import Example, Finding, Result, Window, Witness

_SUBJECTS = {Witness.OUTPUTS: "", Witness.CSV: "against archived CSV "}


def to_text(result: Result) -> str:
    """Write findings, doubts and counts."""
    counts = {name: count for name, count in msgspec.to_builtins(result.counts).items() if count is not None}
    lines = [
        f"audit {_SUBJECTS[result.against]}of {window_text(result.window, result.against)}",
        *table_of(counts.items()),
    ]
    if result.archive is not None:
        lines += ["", "archive", *table_of(msgspec.to_builtins(result.archive).items())]
    lines += ["", "dead letters by reason", *table_of(result.dead_letters.items() or [("none", 0)])]
    lines += ["", "findings", *table_of(to_be_shown({one.kind: one.count for one in result.findings}))]
    for title, texts in (("could not tell", result.could_not_tell), ("notes", result.notes)):
        lines += ["", title, *(f"  {printable(text)}" for text in texts)] if texts else []
    for finding in result.findings:
        lines += ["", f"{finding.kind.value}, {len(finding.examples)} of {finding.count}", *_examples(finding)]
    width = max(map(len, result.places), default=0)
    lines += ["", "where it lies", *(f"  {name:<{width}}  {printable(at)}" for name, at in result.places.items())]
    lines += ["", f"{result.verdict.value.replace('_', ' ')} ({int(result.exit_code)}) after {result.seconds:.1f} s"]
    return "\n".join(lines) + "\n"


def _examples(finding: Finding) -> list[str]:
    return [f"  {printable(_place(one) + one.text)}" for one in finding.examples]


def _place(example: Example) -> str:
    parts = []
    if example.topic is not None:
        at = f"{example.topic}-{example.partition} offset {example.offset}"
        parts.append(at if example.index is None else f"{at} index {example.index}")
    names = {"id": example.id, "reference": example.reference_id, "object": example.object, "batch": example.batch_id}
    parts += [f"{name} {value}" for name, value in names.items() if value is not None]
    return f"{', '.join(parts)}: " if parts else ""


def window_text(window: Window, witness: Witness = Witness.OUTPUTS) -> str:
    """Return what a window is in words, in UTC."""
    if window.is_everything:
        return "everything"
    times = f"from {_moment(window.from_ms)} until {_moment(window.until_ms)}"
    return f"records {times}" if witness is Witness.CSV else f"flushes that ended {times}"


def _moment(moment_ms: int | None) -> str:
    return "-" if moment_ms is None else datetime.fromtimestamp(moment_ms / 1000, UTC).isoformat()
