"""The report: one table for people, one JSON document for programs.

Owns the layout of both and the exit code.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from log_partitioner.formats.findings import Kind
from log_partitioner.privacy import printable
from log_partitioner.proof.accounting import ExitCode
from log_partitioner.proof.audit.findings import Findings

if TYPE_CHECKING:
    from collections.abc import Iterable


class Report(NamedTuple):
    """Counts and findings of one audit; `counts` are in the order in which they are shown."""

    group_id: str
    counts: dict[str, int]
    dead_letters: dict[str, int]
    findings: Findings
    seconds: float

    @property
    def exit_code(self) -> ExitCode:
        """Return the exit code: findings outweigh doubts, because a fault that was found stays one."""
        if not self.findings.are_none:
            return ExitCode.FINDINGS
        return ExitCode.COULD_NOT_TELL if self.findings.doubts else ExitCode.CLEAN

    def _found(self) -> list[tuple[str, int]]:
        return [(kind.value, count) for kind in Kind if (count := self.findings.counts[kind])]

    def to_json(self) -> str:
        """Write everything as JSON."""
        document = {
            "verdict": self.exit_code.name.lower(),
            "exit_code": int(self.exit_code),
            "group": self.group_id,
            "seconds": round(self.seconds, 3),
            "counts": self.counts,
            "dead_letters": self.dead_letters,
            "findings": dict(self._found()),
            "examples": {kind.value: texts for kind, texts in sorted(self.findings.examples.items())},
            "doubts": self.findings.doubts,
            "notes": self.findings.notes,
        }
        return json.dumps(document, indent=2, ensure_ascii=False) + "\n"

    def to_text(self) -> str:
        """Write everything for a terminal."""
        lines = [f"audit of group {self.group_id}", *_table(self.counts.items())]
        lines += ["", "dead letters by reason", *_table(sorted(self.dead_letters.items()) or [("none", 0)])]
        lines += ["", "findings", *_table(self._found() or [("none", 0)])]
        for title, texts in [("could not tell", self.findings.doubts), ("notes", self.findings.notes)]:
            lines += ["", title, *(f"  {text}" for text in texts)] if texts else []
        for kind, texts in self.findings.examples.items():
            lines += ["", f"{kind.value}, {len(texts)} of {self.findings.counts[kind]}"]
            lines += [f"  {printable(text)}" for text in texts]
        verdict = self.exit_code.name.lower().replace("_", " ")
        lines += ["", f"{verdict} ({int(self.exit_code)}) after {self.seconds:.1f} s"]
        return "\n".join(lines) + "\n"


def _table(rows: Iterable[tuple[str, int]]) -> list[str]:
    pairs = [(name.replace("_", " "), f"{number:,}") for name, number in rows]
    names, numbers = max(len(name) for name, _ in pairs), max(len(number) for _, number in pairs)
    return [f"  {name:<{max(names, 22)}}  {number:>{max(numbers, 12)}}" for name, number in pairs]
