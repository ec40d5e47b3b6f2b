"""Lines of a worker's log, as the worker writes them."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any

from log_partitioner.formats import log_events
from log_partitioner.formats.log_events import LogEvent, LogLine, read_line, tell
from log_partitioner.proof.verify.command import LogFiles, judge
from log_partitioner.proof.verify.history import Judgement
from log_partitioner.proof.verify.values import TimeWindow


def line_of(
    event: LogEvent | str,
    *,
    at_ms: int = 0,
    worker: str = "w1",
    boot: str = "b00t",
    seq: int = 1,
    level: str = "info",
    **fields: object,
) -> bytes:
    """Write one line; `event` is one that is declared, or any name, with these fields."""
    said: dict[str, Any] = {"event": event, **fields}
    if isinstance(event, LogEvent):
        tell(lambda **told: said.update(told), event)
    moment = datetime.fromtimestamp(at_ms / 1000, UTC)
    head = {"level": level, "worker": worker, "pid": 7, "boot": boot, "mono": 1.5}
    return json.dumps(said | head | {"ts": f"{moment:%Y-%m-%dT%H:%M:%S.%f}Z", "seq": seq}).encode()


def read(event: LogEvent | str, **others: Any) -> LogLine:
    """Write one line, and read it."""
    line = read_line(line_of(event, **others))
    assert line is not None
    return line


def committed(
    *, records: int = 1, entries: int = 1, dead_letters: int = 0, batch_id: str = "b", offsets: Any = None
) -> LogEvent:
    """Make the event of a commit."""
    return log_events.BatchCommitted(
        batch_id=batch_id,
        flush_seq=1,
        reason="interval",
        generation=1,
        objects=1,
        references=1,
        records=records,
        entries=entries,
        dead_letters=dead_letters,
        object_bytes=100,
        step_seconds={"seal": 0.1, "upload": 0.25},
        offsets=offsets or {},
        member="m",
        member_generation=1,
    )


def assigned(*names: str) -> LogEvent:
    """Make the event of an assignment."""
    return log_events.PartitionsAssigned(
        generation=1, member="m", member_generation=1, owned=len(names), topic_partitions=list(names)
    )


def discarded(
    *, cause: str = "UploadError", message: str | None = None, cost: str = "", reason: str | None = None
) -> LogEvent:
    """Make the event of a batch that is not committed."""
    return log_events.BatchDiscarded(
        batch_id="b", reason=reason, generation=1, cause=cause, code=None, message=message, outcome="aborted", cost=cost
    )


def judged(lines: Iterable[bytes], *, window: TimeWindow | None = None) -> Judgement:
    """Judge lines of workers by verify-logs, in the order in which they come."""
    with ExitStack() as cleanup:
        return judge(LogFiles([], io.BytesIO(b"".join(lines)), cleanup), window or TimeWindow())
