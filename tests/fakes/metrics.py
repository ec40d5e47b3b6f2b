"""Metrics that remember, and accept only what `adapters.metrics` declares."""

from __future__ import annotations

from collections import Counter

from log_partitioner.adapters.metrics import METRICS

Series = tuple[str, tuple[tuple[str, str], ...]]


class RecordingMetrics:
    """Fulfils `boundary.Metrics`; an undeclared name, label or value of a label is an error."""

    def __init__(self) -> None:
        self.counted: Counter[Series] = Counter()
        self.gauges: dict[Series, float] = {}
        self.observed: dict[Series, list[float]] = {}

    def add(self, name: str, amount: float = 1, **labels: str) -> None:
        """Add to a counter."""
        assert amount >= 0, f"{name}: counters only grow"
        self.counted[_series("counter", name, labels)] += amount  # type: ignore[assignment]

    def set(self, name: str, value: float, **labels: str) -> None:
        """Set a gauge."""
        self.gauges[_series("gauge", name, labels)] = value

    def forget(self, name: str, **labels: str) -> None:
        """Remove one series of a gauge."""
        self.gauges.pop(_series("gauge", name, labels), None)

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Put a value into a histogram."""
        self.observed.setdefault(_series("histogram", name, labels), []).append(value)

    def total(self, name: str, **labels: str) -> float:
        """Sum a counter over all series that carry these labels."""
        wanted = set(labels.items())
        return sum(count for (found, series), count in self.counted.items() if found == name and wanted <= set(series))


def _series(kind: str, name: str, labels: dict[str, str]) -> Series:
    declared = METRICS[name]
    assert declared.kind == kind, f"{name} is a {declared.kind}"
    assert set(labels) == set(declared.labels), f"{name} has the labels {tuple(declared.labels)}, not {tuple(labels)}"
    for label, value in labels.items():
        assert value in (declared.labels[label] or (value,)), f"{name} has no {label} {value!r}"
    return name, tuple(sorted(labels.items()))
