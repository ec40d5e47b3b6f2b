"""Findings of an audit, and its report: one table for people, one JSON document for programs.

Holds no more examples than asked for, however many findings there are.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from log_partitioner.formats.findings import Kind, to_be_shown
from log_partitioner.privacy import printable
from log_partitioner.proof.accounting import ExitCode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from log_partitioner.formats.model import PartitionKey, TopicPartition
    from log_partitioner.formats.reference import Reference
    from log_partitioner.proof.accounting import Wrong

    Place = str | tuple[TopicPartition, *tuple[int, ...]]
    """The place of a finding: an object's key, or a TopicPartition, then offset and index as far as they are known."""


class PlacedFinding(NamedTuple):
    """Findings at one place, `number` of them, with the reference and the PartitionKey if they are known."""

    kind: Kind
    text: str
    place: Place | None
    number: int
    reference: Reference | None
    key: PartitionKey | None


class Findings:
    """Counts findings, and keeps the first examples of each kind: their texts, and the places that they have."""

    def __init__(self, *, examples_max: int) -> None:
        self.counts: Counter[Kind] = Counter()
        self.examples: dict[Kind, list[str]] = {}
        self.places: list[tuple[Kind, Place]] = []
        self.doubts: list[str] = []
        self.notes: list[str] = []
        self.batch: str | None = None
        """The name of the batch that is being judged."""
        self._examples_max = examples_max

    def wants_example(self, kind: Kind) -> bool:
        """Return whether the next finding of this kind would be shown."""
        return len(self.examples.get(kind, ())) < self._examples_max

    def add(
        self,
        kind: Kind,
        text: str,
        place: Place | None = None,
        *,
        count: int = 1,
        reference: Reference | None = None,
        key: PartitionKey | None = None,
    ) -> None:
        """Count a finding; `reference` has its row or object, `key` is its entry's, if they are known."""
        self.take(PlacedFinding(kind, text, place, count, reference, key))

    def take(self, finding: PlacedFinding) -> None:
        """Count a finding, and keep it if it is among the first of its kind."""
        kind = finding.kind
        self.counts[kind] += finding.number
        if finding.number and self.wants_example(kind):
            self.examples.setdefault(kind, []).append(finding.text)
            self.places += [] if finding.place is None else [(kind, finding.place)]

    def tell(self, wrong: Wrong, where: str) -> None:
        """Count a contradiction; `where` names its place."""
        tp = f" {wrong.tp}" if wrong.tp else ""
        self.add(wrong.kind, f"{where}{tp}: {wrong.text}", wrong.place, count=wrong.number)

    def doubt(self, reason: str) -> None:
        """State a reason why the audit cannot tell."""
        if reason not in self.doubts:
            self.doubts.append(reason)

    def note(self, text: str) -> None:
        """State a note for the reader of the report."""
        if text not in self.notes:
            self.notes.append(text)


class Report(NamedTuple):
    """Counts and findings of one audit; `counts` are in the order in which they are shown."""

    group_id: str
    counts: dict[str, int]
    dead_letters: dict[str, int]
    findings: Findings
    seconds: float

    @property
    def exit_code(self) -> ExitCode:
        """The exit code of the command: findings come before what could not be told."""
        return ExitCode.of(self.findings.counts, self.findings.doubts)

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
        lines = [f"audit of group {self.group_id}", *table_of(self.counts.items())]
        lines += ["", "dead letters by reason", *table_of(sorted(self.dead_letters.items()) or [("none", 0)])]
        lines += ["", "findings", *table_of(to_be_shown(self.findings.counts))]
        for title, texts in [("could not tell", self.findings.doubts), ("notes", self.findings.notes)]:
            lines += ["", title, *(f"  {text}" for text in texts)] if texts else []
        for kind, texts in self.findings.examples.items():
            lines += ["", f"{kind.value}, {len(texts)} of {self.findings.counts[kind]}"]
            lines += [f"  {printable(text)}" for text in texts]
        verdict = self.exit_code.name.lower().replace("_", " ")
        lines += ["", f"{verdict} ({int(self.exit_code)}) after {self.seconds:.1f} s"]
        return "\n".join(lines) + "\n"


def table_of(rows: Iterable[tuple[str, int]]) -> list[str]:
    """Return names and numbers as lines of two columns."""
    pairs = [(name.replace("_", " "), f"{number:,}") for name, number in rows]
    names, numbers = max(len(name) for name, _ in pairs), max(len(number) for _, number in pairs)
    return [f"  {name:<{max(names, 22)}}  {number:>{max(numbers, 12)}}" for name, number in pairs]
