"""The record of a run: one JSON object, a text for a person; and the judgement over it."""

import json
import math
import os
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from log_partitioner.formats.dead_letter import Reason
from log_partitioner.version import product_version
from tools.chaos.bed import Ground
from tools.chaos.faults import BROKERS, WORKERS
from tools.chaos.run import Happened, Tell
from tools.chaos.watch import Recovery
from tools.demo.audit import audit_small, verify_logs

Figures = dict[str, Any]

_PUT_AWAY = (Reason.FATAL, Reason.SKIPPED)


def judged(ground: Ground, happened: Happened, *, tell: Tell, **about: object) -> Figures:
    """Audit what was delivered, hold the logs against the rules, and return all figures; `violations` names what broke.

    Blocks for as long as the audit takes. `about` says what kind of run it was.
    """
    audit_code = audit_small(ground.environment, tell, is_told=False) if happened.is_drained else None
    audit = _audit(ground) if audit_code is not None else {}
    logs_code = verify_logs(ground.environment, tell, is_told=False)
    tally = happened.tally
    figures: Figures = {
        **about,
        "date": time.strftime("%Y-%m-%d"),
        "version": product_version(),
        "lane": sorted(set(tally.lanes)),
        "workers": WORKERS,
        "brokers": BROKERS,
        "seconds": round(happened.seconds),
        "load_after": round(os.getloadavg()[0], 1),
        "records": happened.produced.records,
        "entries": happened.produced.entries,
        "records_not_committed_by_the_source": happened.produced.aborted_records,
        "faults": dict(sorted(happened.faults.items())),
        "faults_left_out": happened.left_out,
        "assignment_changes": tally.assignment_changes,
        "flushes": tally.flushes,
        "batches_given_up": dict(tally.causes.most_common()),
        "records_again": tally.records_again,
        "worker_starts": tally.started,
        "ended_by_themselves": happened.restarts,
        "recovery_s": dict(_by_kind(happened.recoveries)),
        "longest_without_commit_s": round(happened.still_s_max, 1),
        "verified_entries": tally.verified,
        "unverified_entries": tally.unverified,
        "audit": audit,
        "verify_logs": logs_code,
    }
    figures["violations"] = list(_violations(happened, audit_code, audit, logs_code))
    return figures


def _audit(ground: Ground) -> Figures:
    document = json.loads(ground.environment.audit_report.with_suffix(".json").read_text(encoding="utf-8"))
    return {name: document[name] for name in ("verdict", "counts", "dead_letters", "findings", "doubts")}


def _violations(happened: Happened, audit_code: int | None, audit: Figures, logs_code: int) -> Iterator[str]:
    if audit_code is None:
        yield "not everything was committed: nothing was audited"
    elif audit_code:
        yield f"audit: {audit['verdict']}: {audit['findings'] or audit['doubts']}"
    put_away = {
        reason: audit["dead_letters"][reason] for reason in _PUT_AWAY if reason in audit.get("dead_letters", {})
    }
    if put_away:
        yield f"records put away: {put_away}"
    if logs_code:
        yield f"verify-logs: exit code {logs_code}"
    if happened.tally.differences:
        yield f"verification mode: {dict(happened.tally.differences)}"
    if late := [one for one in happened.recoveries if one.seconds is None]:
        yield f"no recovery from {', '.join(one.kind for one in late)}"
    yield from happened.notes


def _by_kind(recoveries: Sequence[Recovery]) -> Iterator[tuple[str, Mapping[str, float]]]:
    for kind in sorted({one.kind for one in recoveries}):
        seconds = sorted(one.seconds for one in recoveries if one.kind == kind and one.seconds is not None)
        if seconds:
            yield kind, quantiles(seconds)


def quantiles(seconds: Sequence[float]) -> dict[str, float]:
    """Return count, median, 99th percentile (nearest rank) and maximum."""
    return {
        "count": len(seconds),
        "p50": round(statistics.median(seconds), 1),
        "p99": round(seconds[math.ceil(0.99 * len(seconds)) - 1], 1),
        "max": round(seconds[-1], 1),
    }


def as_text(figures: Figures) -> str:
    """Write a run for a person."""
    given_up = ", ".join(f"{cause} {times}" for cause, times in figures["batches_given_up"].items())
    lines = [
        (
            f"{figures['records']:,} records ({figures['entries']:,} entries) in {figures['seconds']:,} s, "
            f"{sum(figures['faults'].values())} faults, {figures['assignment_changes']} changes of assignments"
        ),
        f"{figures['flushes']} flushes; batches given up: {given_up or 'none'}",
        (
            f"verification mode: {figures['verified_entries']:,} entries of flushes that were judged, "
            f"{figures['unverified_entries']:,} of flushes that could not be read in time"
        ),
        f"{'fault':<30}{'times':>6}{'recovery p50':>14}{'p99':>8}{'max':>8}   (seconds)",
    ]
    for kind, times in figures["faults"].items():
        found = figures["recovery_s"].get(kind)
        shown = f"{found['p50']:>14}{found['p99']:>8}{found['max']:>8}" if found else f"{'-':>14}"
        lines.append(f"  {kind:<28}{times:>6}{shown}")
    lines += ["", *(f"VIOLATION: {one}" for one in figures["violations"])]
    if not figures["violations"]:
        lines.append(
            "0 lost, 0 duplicated, 0 torn: the audit is clean, the logs pass, verification mode found nothing."
        )
    return "\n".join(lines)
