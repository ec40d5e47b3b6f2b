"""Source records for tests: small, told apart, with a user and a time."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

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
