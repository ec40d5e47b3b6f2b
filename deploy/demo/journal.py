"""What the workers' JSON log lines tell: followed as they are written, and added up.

Knows the workers' event names as far as it counts them; what it does not know it passes over.
"""

import json
import re
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

LogEvent = Mapping[str, object]

_COMMITTED = "flush_committed"
_DISCARDED = "batch_discarded"
_SPAN = re.compile(r"(\d+) to (\d+) of ")  # "records 10 to 19 of logs-0, 5 to 5 of logs-1 will be read again"
_ASSIGNMENT_CHANGES = ("partitions_assigned", "partitions_revoked", "partitions_lost")
_NOTABLE = (*_ASSIGNMENT_CHANGES, _COMMITTED, "paused", "resumed", "worker_started", "worker_stopped")
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
    records_again: int = 0
    news: deque[str] = field(default_factory=lambda: deque(maxlen=_NEWS_MAX))

    @property
    def flushes(self) -> int:
        """Flushes that were committed."""
        return self.events[_COMMITTED]

    @property
    def given_up(self) -> int:
        """Batches that were discarded; what they covered is read again."""
        return self.events[_DISCARDED]

    @property
    def assignment_changes(self) -> int:
        """Assigned, revoked and lost, over all workers."""
        return sum(self.events[name] for name in _ASSIGNMENT_CHANGES)

    def add(self, worker_name: str, event: LogEvent) -> None:
        """Count one event of a worker."""
        name = str(event.get("event", ""))
        worker = self.workers.setdefault(worker_name, WorkerTally())
        self.events[name] += 1
        self._take_ownership(worker, name, event)
        if name == _COMMITTED:
            worker.flushes += 1
            worker.entries += _number(event, "entries")
            self.records += _number(event, "records")
            self.entries += _number(event, "entries")
            self.dead_letters += _number(event, "dead_letters")
        if name == _DISCARDED:
            spans = _SPAN.findall(str(event.get("cost", "")))
            self.records_again += sum(int(last) - int(first) + 1 for first, last in spans)
        if name in _NOTABLE or event.get("level") in ("warning", "error", "critical"):
            worker.last = describe(event)
            self.news.append(f"{worker_name}: {worker.last}")

    def _take_ownership(self, worker: WorkerTally, name: str, event: LogEvent) -> None:
        """Follow what the worker owns: assigned tells the sum, revoked and lost what is gone."""
        match name, event.get("owned"), event.get("topic_partitions"):
            case "partitions_assigned", int(owned), _:
                worker.owned = owned
            case "partitions_revoked" | "partitions_lost", _, list(gone):
                worker.owned = max(0, (worker.owned or 0) - len(gone))


def describe(event: LogEvent) -> str:
    """Return an event as one short line."""
    details = [f"{name}={_short(event[name])}" for name in _DETAILS if event.get(name) not in (None, [], {})]
    return " ".join([str(event.get("event", "?")), *details])


def _number(event: LogEvent, name: str) -> int:
    value = event.get(name)
    return value if isinstance(value, int) else 0


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
