"""The page of recorded runs: a run that found something says so there, and is in the sum."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tools.chaos.figures import quantiles
from tools.docs.evidence import evidence_page

RUN: dict[str, Any] = {
    "kind": "chaos", "date": "2026-01-02", "protocol": "consumer", "lane": ["on"], "seconds": 3600, "records": 1_000,
    "entries": 1_100, "faults": {"worker-kill": 7}, "assignment_changes": 9, "flushes": 80,
    "batches_given_up": {"Lost": 2}, "recovery_s": {"worker-kill": quantiles([2.0, 3.0])}, "verified_entries": 1_090,
    "unverified_entries": 10, "violations": [], "audit": {"verdict": "clean", "findings": {}},
}  # fmt: skip
FRAME = "\n".join(
    f"{{{name}}}"
    for name in ("answer", "unclean", "matrix", "faults", "runs", "course", "seeds", "fuzzing", "failures")
)


def _page(directory: Path, **recorded: dict[str, Any]) -> str:
    (directory / "frame.md.in").write_text(FRAME)
    for name, figures in recorded.items():
        (directory / f"{name}.jsonl").write_text(json.dumps(figures) + "\n")
    return evidence_page(directory)


def test_page_shows_what_was_found(tmp_path: Path) -> None:
    """In the sum and beside its run; an audit that could not tell is no zero."""
    audit = {"verdict": "findings", "findings": {"missing": 3}}
    page = _page(tmp_path, chaos=RUN | {"violations": ["audit: findings: {'missing': 3}"], "audit": audit})
    assert page.count("audit: findings") == 2  # in the table of what is not clean, and beside its run
    assert "**entries lost** | **3** |" in page
    assert "other findings of the audits at the end | 0 |" in page
    assert "another reason | 0: below |" in page
    unsure = RUN | {"audit": {"verdict": "could_not_tell", "findings": {}}}
    assert "other findings of the audits at the end | 1 |" in _page(tmp_path, chaos=unsure)


def test_run_whose_logs_broke_a_rule_lost_nothing(tmp_path: Path) -> None:
    """The audit's findings and the reason why the run is not clean are two rows."""
    page = _page(tmp_path, chaos=RUN | {"violations": ["verify-logs: exit code 1"]})
    assert "**entries lost** | **0** |" in page
    assert "another reason | 1: below |" in page
    assert "| 2026-01-02 | chaos | verify-logs: exit code 1 | 0 |" in page


def test_runs_of_a_fuzzer_add_up_by_format(tmp_path: Path) -> None:
    """One that ended with an input that failed stays in the sum."""
    run = {"format": "avro", "cpu_minutes": 1.5, "inputs": 1_000, "failed": 1}
    (tmp_path / "fuzzing.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in (run, run | {"failed": 0})))
    assert "| avro | 3.0 | 2,000 | 1 |" in _page(tmp_path)


def test_failure_whose_command_names_no_cause_stands_there_until_it_does(tmp_path: Path) -> None:
    """The newest run of a failure counts."""
    run = {
        "failure": "away", "row": "the store is away", "fired_s": {"StoreFails": 9}, "command": "check",
        "cause_named": None, "resolved_s": 3, "audit": {"verdict": "clean", "counts": {"source_entries": 7}},
    }  # fmt: skip
    assert "| the store is away | StoreFails 9 s | `check`: **not named** | 3 s |" in _page(tmp_path, failures=run)
    both = (run, run | {"cause_named": "refused"})
    (tmp_path / "failures.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in both))
    page = evidence_page(tmp_path)
    assert ("not named" in page, "`check`: `refused` |" in page) == (False, True)
