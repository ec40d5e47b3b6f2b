"""A result and those before it -> values to plot, per step of time, without gaps.

Many hours become fewer, wider steps. Hours so far from the rest that they would push everything else into a corner
(entries from 1970 are real) are left out of plots, which say so; tables have them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import accumulate
from typing import NamedTuple

from log_partitioner_pipeline.audit.result import Hour, RecordHour, Result, Verdict

HOUR_MS = 3_600_000
STEPS_MAX = 400
_WIDTHS_H = (1, 2, 3, 4, 6, 12, 24, 48, 168, 720)
_SPARSE = 10
_NEAR_MS = 31 * 24 * HOUR_MS
_PLOTTED_MS = tuple(round(datetime(year, 1, 1, tzinfo=UTC).timestamp()) * 1000 for year in (1900, 2200))
_KINDS_MAX = 6
OTHERS = "others"

Values = Mapping[str, float | None]
Combine = Callable[[Iterable[float]], float]


class Steps(NamedTuple):
    """Values on steps of `width_ms` from `begin_ms` on; a step without any value of a name has None there."""

    begin_ms: int
    width_ms: int
    values: dict[str, list[float | None]]
    left_out: int = 0

    @property
    def edges_ms(self) -> list[int]:
        """One more than there are steps."""
        steps = max(map(len, self.values.values()), default=0)
        return [self.begin_ms + nth * self.width_ms for nth in range(steps + 1)]

    def has(self, *names: str) -> bool:
        """Return whether any step has a value other than 0 of one of these names."""
        return any(value for name in names for value in self.values.get(name, ()))


class Audited(NamedTuple):
    """One audit among others."""

    started_at_ms: int
    verdict: Verdict
    findings: dict[str, int]


def entries_per_hour(result: Result) -> Steps | None:
    """Return `source`, `files`, `dead letters`, `missing` and `duplicated` per hour of record timestamps."""
    hours = _timed(result.record_hours)
    values = [
        (
            at_ms,
            {
                "source": hour.entries,
                "files": hour.in_files,
                "dead letters": hour.in_dead_letters,
                "missing": hour.missing,
                "duplicated": hour.duplicated,
            },
        )
        for at_ms, hour in hours
    ]
    return steps_of(values, weigh="source", combine=sum)


def lag_per_hour(result: Result) -> Steps | None:
    """Return `p50`, `p99` and `max` in seconds per hour of record timestamps; a wider step has its worst hour's."""
    values = [
        (
            at_ms,
            {
                "p50": _seconds(hour.lag_p50_ms),
                "p99": _seconds(hour.lag_p99_ms),
                "max": _seconds(hour.lag_max_ms),
                "records": hour.records,
            },
        )
        for at_ms, hour in _timed(result.record_hours)
        if hour.lag_max_ms is not None
    ]
    return steps_of(values, weigh="records", combine=max)


def files_per_hour(result: Result) -> Steps | None:
    """Return `files` and `bytes` per hour of event time."""
    hours = [(at_ms, {"files": hour.files, "bytes": hour.bytes}) for at_ms, hour in _dated(result.hours) if hour.files]
    return steps_of(hours, weigh="files", combine=sum)


def sizes_per_hour(result: Result) -> Steps | None:
    """Return `p50`, `p99` and `max` of the bytes of a file per hour of event time; a wider step has its largest."""
    values = [
        (
            at_ms,
            {
                "p50": hour.file_bytes_p50,
                "p99": hour.file_bytes_p99,
                "max": hour.file_bytes_max,
                "files": hour.files,
            },
        )
        for at_ms, hour in _dated(result.hours)
        if hour.file_bytes_max is not None
    ]
    return steps_of(values, weigh="files", combine=max)


def findings_per_hour(result: Result) -> Steps | None:
    """Return findings by kind per hour of event time, the most frequent kinds by name; None: no hour has any."""
    hours = _dated(result.hours)
    names = frequent([hour.findings for _, hour in hours])
    values = [(at_ms, _by_name(hour.findings, names)) for at_ms, hour in hours]
    total = "total"
    found = steps_of([(at_ms, by_name | {total: sum(by_name.values())}) for at_ms, by_name in values], weigh=total)
    if found is None or not names:
        return None
    return found._replace(values={name: found.values[name] for name in names if name in found.values})


def audits(results: Iterable[Result]) -> list[Audited]:
    """Return each audit once, the oldest first, with its findings by kind, the most frequent kinds by name."""
    once = {result.run_id: result for result in results}
    ordered = sorted(once.values(), key=lambda one: (one.started_at_ms, one.run_id))
    counts = [{str(one.kind): one.count for one in result.findings} for result in ordered]
    names = frequent(counts)
    return [
        Audited(result.started_at_ms, result.verdict, _by_name(found, names))
        for result, found in zip(ordered, counts, strict=True)
    ]


def frequent(counts: Iterable[Mapping[str, int]]) -> list[str]:
    """Return the names with the highest counts, and one for all others, if there are more."""
    total: Counter[str] = Counter()
    for one in counts:
        total.update(one)
    names = [name for name, _ in sorted(total.items(), key=lambda pair: (-pair[1], pair[0]))]
    return names if len(names) <= _KINDS_MAX else [*names[: _KINDS_MAX - 1], OTHERS]


def _by_name(found: Mapping[str, int], names: Sequence[str]) -> dict[str, int]:
    by_name: Counter[str] = Counter()
    for kind, count in found.items():
        by_name[kind if kind in names else OTHERS] += count
    return dict(by_name)


def steps_of(hours: Sequence[tuple[int, Values]], *, weigh: str, combine: Combine = sum) -> Steps | None:
    """Bring hours into steps; `weigh` names the value that tells where most data is. None: there are no hours."""
    if not hours:
        return None
    kept = _near(hours, weigh)
    first, last = min(at_ms for at_ms, _ in kept), max(at_ms for at_ms, _ in kept)
    hours_wide = (last - first) // HOUR_MS + 1
    width_h = next((one for one in _WIDTHS_H if hours_wide / one <= STEPS_MAX), _WIDTHS_H[-1])
    width_ms = width_h * HOUR_MS
    begin_ms = first // width_ms * width_ms
    steps = (last - begin_ms) // width_ms + 1
    names = dict.fromkeys(name for _, values in kept for name in values)
    gathered: dict[str, list[list[float]]] = {name: [[] for _ in range(steps)] for name in names}
    for at_ms, values in kept:
        for name, value in values.items():
            if value is not None:
                gathered[name][(at_ms - begin_ms) // width_ms].append(value)
    filled = {name: [combine(some) if some else None for some in of_it] for name, of_it in gathered.items()}
    return Steps(begin_ms, width_ms, filled, left_out=len(hours) - len(kept))


def _near(hours: Sequence[tuple[int, Values]], weigh: str) -> list[tuple[int, Values]]:
    """Leave out hours far from the middle of the data, if the hours are spread thinly."""
    ordered = sorted(hours, key=lambda one: one[0])
    wide = (ordered[-1][0] - ordered[0][0]) // HOUR_MS + 1
    if wide <= _SPARSE * len(ordered) or wide <= STEPS_MAX:
        return ordered
    reached = list(accumulate(values.get(weigh) or 0 for _, values in ordered))
    middle_ms = ordered[bisect_left(reached, reached[-1] / 2)][0]
    return [(at_ms, values) for at_ms, values in ordered if abs(at_ms - middle_ms) <= _NEAR_MS]


def has_date(at_ms: int) -> bool:
    """Return whether an instant is one that a plot can show: wrong clocks and wrong references say anything."""
    return _PLOTTED_MS[0] <= at_ms < _PLOTTED_MS[1]


def _timed(hours: Iterable[RecordHour]) -> list[tuple[int, RecordHour]]:
    return [(hour.begins_ms, hour) for hour in hours if hour.begins_ms is not None and has_date(hour.begins_ms)]


def _dated(hours: Iterable[Hour]) -> list[tuple[int, Hour]]:
    begins = ((_begin_ms(hour), hour) for hour in hours)
    return [(at_ms, hour) for at_ms, hour in begins if at_ms is not None and has_date(at_ms)]


def _begin_ms(hour: Hour) -> int | None:
    """Return the begin of a date and hour, as if of UTC, because only differences matter; None if it is no date."""
    try:
        return round(datetime.fromisoformat(hour.date).replace(hour=hour.hour, tzinfo=UTC).timestamp()) * 1000
    except ValueError:
        return None


def _seconds(value_ms: int | None) -> float | None:
    return None if value_ms is None else value_ms / 1000
