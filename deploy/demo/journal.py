"""What the workers' JSON log lines tell: followed as they are written, and added up.

Knows the workers' event names as far as it counts them; what it does not know it passes over.
"""

import json
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

LogEvent = Mapping[str, object]

_COMMITTED = "flush_committed"
_ASSIGNMENT_CHANGES = ("partitions_assigned", "partitions_revoked", "partitions_lost")
_OWNED_FIELDS = ("owned", "owned_total", "assigned_total")
_NOTABLE = (*_ASSIGNMENT_CHANGES, _COMMITTED, "batch_discarded", "worker_started", "worker_stopped")
_DETAILS = (
    "partitions",
    "count",
    "owned",
    "generation",
    "reason",
    "records",
    "entries",
    "dead_letters",
    "references",
    "seconds",
    "error",
)
_DETAIL_LENGTH_MAX = 60
_NEWS_MAX = 200


class LogTail:
    """Follows one log file; a line counts once it is complete."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def read(self) -> Iterator[LogEvent]:
        """Yield what was written since the last call; lines that are no JSON objects are passed over."""
        try:
            with self._path.open("rb") as lines:
                lines.seek(self._offset)
                written = lines.read()
        except FileNotFoundError:
            return
        complete = written[: written.rfind(b"\n") + 1]
        self._offset += len(complete)
        for line in complete.splitlines():
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if isinstance(event, dict):
                yield event


@dataclass(slots=True)
class WorkerTally:
    """What one worker has told."""

    owned: int | None = None
    flushes: int = 0
    entries: int = 0
    last: str = ""


@dataclass(slots=True)
class Tally:
    """What all workers have told; `news` holds the notable events as lines for a person."""

    workers: dict[str, WorkerTally] = field(default_factory=dict)
    events: Counter[str] = field(default_factory=Counter)
    records: int = 0
    entries: int = 0
    dead_letters: int = 0
    news: deque[str] = field(default_factory=lambda: deque(maxlen=_NEWS_MAX))

    @property
    def flushes(self) -> int:
        """Flushes that were committed."""
        return self.events[_COMMITTED]

    @property
    def assignment_changes(self) -> int:
        """Assigned, revoked and lost, over all workers."""
        return sum(self.events[name] for name in _ASSIGNMENT_CHANGES)

    def add(self, worker_name: str, event: LogEvent) -> None:
        """Count one event of a worker."""
        name = str(event.get("event", ""))
        worker = self.workers.setdefault(worker_name, WorkerTally())
        self.events[name] += 1
        for owned_field in _OWNED_FIELDS:
            if (owned := _size(event.get(owned_field))) is not None:
                worker.owned = owned
                break
        if name == _COMMITTED:
            worker.flushes += 1
            worker.entries += _number(event, "entries")
            self.records += _number(event, "records")
            self.entries += _number(event, "entries")
            self.dead_letters += _number(event, "dead_letters")
        if name in _NOTABLE or event.get("level") in ("warning", "error", "critical"):
            worker.last = describe(event)
            self.news.append(f"{worker_name}: {worker.last}")


def describe(event: LogEvent) -> str:
    """Return an event as one short line."""
    details = [f"{name}={_short(event[name])}" for name in _DETAILS if event.get(name) not in (None, [], {})]
    return " ".join([str(event.get("event", "?")), *details])


def _number(event: LogEvent, name: str) -> int:
    value = event.get(name)
    return value if isinstance(value, int) else 0


def _size(value: object) -> int | None:
    match value:
        case bool():
            return None
        case int():
            return value
        case list() | dict():
            return len(value)
        case _:
            return None


def _short(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.2f}"
    size = _size(value) if isinstance(value, list | dict) else None
    text = str(value) if size is None else str(size)
    return text if len(text) <= _DETAIL_LENGTH_MAX else text[: _DETAIL_LENGTH_MAX - 3] + "..."
