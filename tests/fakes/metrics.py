"""Metrics that remember, and accept only what `adapters.metrics` declares."""

from __future__ import annotations

from collections import Counter

from service.adapters.metrics import _COUNTERS, _GAUGES, _HISTOGRAMS

Series = tuple[str, tuple[tuple[str, str], ...]]


class RecordingMetrics:
    """Fulfils `runtime.ports.Metrics`; an undeclared name or label is an error, as with the real one."""

    def __init__(self) -> None:
        self.counted: Counter[Series] = Counter()
        self.gauges: dict[Series, float] = {}
        self.observed: dict[Series, list[float]] = {}

    def add(self, name: str, amount: float = 1, **labels: str) -> None:
        """Add to a counter."""
        assert amount >= 0, f"{name}: counters only grow"
        self.counted[_series(name, labels, _COUNTERS[name][1])] += amount  # type: ignore[assignment]

    def set(self, name: str, value: float, **labels: str) -> None:
        """Set a gauge."""
        self.gauges[_series(name, labels, _GAUGES[name][1])] = value

    def forget(self, name: str, **labels: str) -> None:
        """Remove one series of a gauge."""
        self.gauges.pop(_series(name, labels, _GAUGES[name][1]), None)

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Put a value into a histogram."""
        self.observed.setdefault(_series(name, labels, _HISTOGRAMS[name][1]), []).append(value)

    def total(self, name: str, **labels: str) -> float:
        """Sum a counter over all series that carry these labels."""
        wanted = set(labels.items())
        return sum(count for (found, series), count in self.counted.items() if found == name and wanted <= set(series))


def _series(name: str, labels: dict[str, str], declared: tuple[str, ...]) -> Series:
    assert set(labels) == set(declared), f"{name} has the labels {declared}, not {tuple(labels)}"
    return name, tuple(sorted(labels.items()))
