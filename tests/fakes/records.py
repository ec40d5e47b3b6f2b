"""Source records for tests: small, told apart, with a user and a time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from log_partitioner.boundary import Poll
from log_partitioner.formats.model import SourceRecord, TopicPartition
from tests import canaries
from tests.fakes.clock import START_MS

NOW = datetime.fromtimestamp(START_MS / 1000, tz=UTC)
P0, P1, P2, P3 = (TopicPartition("source", number) for number in range(4))


def entry(user: str | None = canaries.USER, *, hours_ago: int = 0, **fields: Any) -> dict[str, Any]:
    """Make one entry."""
    made: dict[str, Any] = {"time": (NOW - timedelta(hours=hours_ago)).isoformat(), **fields}
    if user is not None:
        made["user"] = user
    return made


def value_of(*entries: Any) -> bytes:
    """Make the value of a record: one entry, or a list of several."""
    return json.dumps(entries[0] if len(entries) == 1 else list(entries)).encode()


def record(tp: TopicPartition, offset: int, *entries: Any, value: bytes | None = None) -> SourceRecord:
    """Make a record as it leaves the client library."""
    return SourceRecord(tp, offset, START_MS, None, value if value is not None else value_of(*entries), (), 0)


def poll_of(records: Sequence[SourceRecord]) -> Poll:
    """Make a poll of records that are whole already."""
    tps = list(dict.fromkeys(record.tp for record in records))
    return Poll(
        tps,
        [tps.index(record.tp) for record in records],
        [record.offset for record in records],
        [-1 if record.timestamp_ms is None else record.timestamp_ms for record in records],
        [record.value for record in records],
        {
            place: None if record.unreadable is not None else frozenset(name for name, _ in record.headers)
            for place, record in enumerate(records)
            if record.headers or record.unreadable is not None
        },
        lambda: [record.key for record in records],
        records.__getitem__,
    )
