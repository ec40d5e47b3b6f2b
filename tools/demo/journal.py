"""Follows the workers' JSON log lines as they are written, and adds them up.

Counts the events that it knows; passes over others, except warnings.
"""

import re
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from log_partitioner.formats import log_events
from log_partitioner.formats.log_events import LogLine, read_line

_SPAN = re.compile(r"(\d+) to (\d+) of ")  # "records 10 to 19 of logs-0, 5 to 5 of logs-1 will be read again"
_NOTABLE = (
    log_events.PartitionsAssigned,
    log_events.PartitionsRevoked,
    log_events.PartitionsLost,
    log_events.BatchCommitted,
    log_events.Paused,
    log_events.Resumed,
    log_events.WorkerStarted,
    log_events.WorkerStopped,
    log_events.WorkerLeft,
)
_DETAILS = (
    "reason",
    "topic_partitions",
    "owned",
    "records",
    "entries",
    "dead_letters",
    "references",
    "step_seconds",
    "seconds",
    "cause",
    "code",
    "message",
)
_DETAIL_LENGTH_MAX = 60
_NEWS_MAX = 200


class LogTail:
    """Follows one log file from an offset on; a line counts once it is complete."""

    def __init__(self, path: Path, *, offset: int = 0) -> None:
        self._path = path
        self._offset = offset

    def read(self) -> Iterator[LogLine]:
        """Yield the lines written since the last call; lines that are none of a worker are passed over."""
        try:
            with self._path.open("rb") as lines:
                lines.seek(self._offset)
                written = lines.read()
        except FileNotFoundError:
            return
        complete = written[: written.rfind(b"\n") + 1]
        self._offset += len(complete)
        yield from filter(None, map(read_line, complete.splitlines()))


@dataclass(slots=True)
class WorkerTally:
    """Sums over the log lines of one worker."""

    owned: int | None = None
    flushes: int = 0
    entries: int = 0
    last: str = ""


@dataclass(slots=True)
class Tally:
    """Sums over the log lines of all workers; `news` holds the notable events as lines for a person."""

    workers: dict[str, WorkerTally] = field(default_factory=dict)
    lines: int = 0
    started: int = 0
    assignment_changes: int = 0
    flushes: int = 0
    records: int = 0
    entries: int = 0
    dead_letters: int = 0
    record_timestamps: int = 0  # entries in files that go by Kafka's time
    fields: list[str] = field(default_factory=list)  # of entries that the settings do not seem to fit
    given_up: int = 0
    records_again: int = 0
    causes: Counter[str] = field(default_factory=Counter)  # of what was given up
    verified: int = 0  # entries, by verification mode
    unverified: int = 0
    differences: Counter[str] = field(default_factory=Counter)
    lanes: set[str] = field(default_factory=set)
    news: deque[str] = field(default_factory=lambda: deque(maxlen=_NEWS_MAX))

    def add(self, worker_name: str, line: LogLine) -> None:
        """Count one line of a worker."""
        worker = self.workers.setdefault(worker_name, WorkerTally())
        self.lines += 1
        match line.event:
            case log_events.WorkerStarted(fast_lane=lane):
                self.started += 1
                self.lanes.add(lane)
            case log_events.PartitionsAssigned(owned=owned):
                self.assignment_changes += 1
                worker.owned = owned
            case log_events.PartitionsRevoked(topic_partitions=gone) | log_events.PartitionsLost(topic_partitions=gone):
                self.assignment_changes += 1
                worker.owned = max(0, (worker.owned or 0) - len(gone))
            case log_events.BatchCommitted() as flush:
                self.flushes += 1
                self.records += flush.records
                self.entries += flush.entries
                self.dead_letters += flush.dead_letters
                self.record_timestamps += flush.record_timestamps
                worker.flushes += 1
                worker.entries += flush.entries
            case log_events.FlushVerified() as verified:
                self.verified += verified.entries
                self.unverified += verified.unverified
                self.differences.update(verified.differences)
            case log_events.BatchDiscarded(cost=cost, cause=cause):  # what it covered is read again
                self.given_up += 1
                self.causes[cause] += 1
                self.records_again += sum(int(last) - int(first) + 1 for first, last in _SPAN.findall(cost))
        if line.head.event == "paths_doubted":
            self.fields = [str(name) for name in line.fields.get("fields", [])]
        if isinstance(line.event, _NOTABLE) or line.head.level in ("warning", "error", "critical"):
            worker.last = describe(line)
            self.news.append(f"{worker_name}: {worker.last}")


def describe(line: LogLine) -> str:
    """Return a line's event as one short line."""
    fields = line.fields
    details = [f"{name}={_short(fields[name])}" for name in _DETAILS if fields.get(name) not in (None, [], {})]
    return " ".join([line.head.event, *details])


def _short(value: object) -> str:
    match value:
        case float():
            text = f"{value:.2f}"
        case list():
            text = str(len(value))
        case dict():  # seconds by step
            text = f"{sum(part for part in value.values() if isinstance(part, int | float)):.2f}"
        case _:
            text = str(value)
    text = "".join(char if char.isprintable() else " " for char in text)  # must not move the cursor
    return text if len(text) <= _DETAIL_LENGTH_MAX else text[: _DETAIL_LENGTH_MAX - 3] + "..."
