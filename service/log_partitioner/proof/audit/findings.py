"""Findings of the audit: kinds, counts, the first examples of each kind, and doubts.

Holds no more examples than asked for, however many findings there are.
"""

from __future__ import annotations

from collections import Counter

from log_partitioner.formats.findings import Kind
from log_partitioner.proof.accounting import Wrong


class Findings:
    """Counts findings and keeps the first examples of each kind."""

    def __init__(self, *, examples_max: int) -> None:
        self.counts: Counter[Kind] = Counter()
        self.examples: dict[Kind, list[str]] = {}
        self.doubts: list[str] = []
        self.notes: list[str] = []
        self.examples_max = examples_max

    @property
    def are_none(self) -> bool:
        """Whether nothing was found."""
        return not self.counts

    def wants_example(self, kind: Kind) -> bool:
        """Return whether the next finding of this kind would be shown."""
        return len(self.examples.get(kind, ())) < self.examples_max

    def add(self, kind: Kind, example: str, *, count: int = 1) -> None:
        """Count a finding."""
        self.counts[kind] += count
        if self.wants_example(kind):
            self.examples.setdefault(kind, []).append(example)

    def tell(self, wrong: Wrong, where: str) -> None:
        """Count a contradiction; `where` names its place."""
        tp = f" {wrong.tp}" if wrong.tp else ""
        self.add(wrong.kind, f"{where}{tp}: {wrong.text}", count=wrong.number)

    def doubt(self, reason: str) -> None:
        """State a reason why the audit cannot tell."""
        if reason not in self.doubts:
            self.doubts.append(reason)

    def note(self, text: str) -> None:
        """State a note for the reader of the report."""
        if text not in self.notes:
            self.notes.append(text)
