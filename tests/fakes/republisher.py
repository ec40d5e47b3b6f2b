"""Republishers: each takes the records of one log, and publishes outputs of them; it may die and begin again.

A message has one to three outputs, the same each time, and each goes to the log that its key says. An output is told
apart by `id`: the first link and the indexes of all.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, NamedTuple
from zlib import crc32

from log_partitioner.chain import link
from log_partitioner.formats.model import CHAIN_HEADER, Headers, SourceRecord
from tests.fakes.clock import START_MS
from tests.fakes.log import FakeLog
from tests.fakes.records import entry, value_of


class Message:
    """A record as the client library gives it."""

    def __init__(self, record: SourceRecord) -> None:
        self._record = record

    def topic(self) -> str:
        """Its topic."""
        return self._record.tp.topic

    def partition(self) -> int:
        """Its partition."""
        return self._record.tp.partition

    def offset(self) -> int:
        """Its offset."""
        return self._record.offset

    def headers(self) -> Headers:
        """Its headers."""
        return self._record.headers


class _Output(NamedTuple):
    log: FakeLog
    value: bytes
    headers: Headers


class Republisher:
    """Publishes one output at a time, in order; `commits_every` so many messages. Wrong ones do as they are named."""

    def __init__(
        self,
        by: str,
        source: FakeLog,
        outputs: Sequence[FakeLog],
        random: Random,
        *,
        commits_every: int = 4,
        swaps: bool = False,
        names: bool = True,
        now_ms: Callable[[], int] = lambda: START_MS,
    ) -> None:
        self.by = by
        self._now_ms = now_ms
        self.outputs = list(outputs)
        self._source = source
        self._random = random
        self._commits_every = commits_every
        self._swaps = swaps
        self._names = names
        self._committed = self._next = 0
        self._waiting: list[_Output] = []

    def step(self) -> bool:
        """Publish the next output; False if there is none."""
        while not self._waiting:
            if self._next - self._committed >= self._commits_every:
                self._committed = self._next
            if self._next >= self._source.end:
                return False
            self._waiting = self._outputs_of(self._source.read(self._next, 1)[0])
            self._next += 1
        self._publish(self._waiting.pop(0))
        return True

    def die(self) -> None:
        """Be killed, perhaps amid the outputs of a message, and begin again at the committed offset."""
        self._next, self._waiting = self._committed, []

    def _publish(self, one: _Output) -> None:
        one.log.append(one.value, timestamp_ms=self._now_ms(), headers=one.headers)

    def _outputs_of(self, record: SourceRecord) -> list[_Output]:
        made, content = [], (record.value or b"") + self.by.encode()  # of which alone an output is a function
        for index in range(1 + crc32(content) % 3):
            name, value = link(Message(record), self.by, index)
            if not self._names:
                value = json.dumps([one[:3] for one in json.loads(value)]).encode()
            output = id_of_chain(json.loads(link(Message(record), self.by, index)[1]))
            key = crc32(content, index + 1)  # another one in each hop
            body = value_of(entry(output=output))
            made.append(_Output(self.outputs[key % len(self.outputs)], body, ((name, value),)))
        if self._swaps and len(made) > 1 and self._random.random() < 0.3:
            made[0], made[1] = made[1], made[0]
        return made


def id_of_chain(links: list[list[Any]]) -> str:
    """Tell an output apart: by the first link, by the republishers, and by all indexes."""
    topic, partition, offset, *_ = links[0]
    return f"{topic}-{partition}@{offset}" + "".join(f"/{by}.{index}" for *_, index, by in links)


def output_of(record: SourceRecord) -> str | None:
    """Return which output a record is, by its value, or None if it was not republished."""
    try:
        value = json.loads(record.value or b"")
    except ValueError:
        return None
    found = value.get("output") if isinstance(value, dict) else None
    return found if isinstance(found, str) else None


def has_chain(record: SourceRecord) -> bool:
    """Return whether it was republished."""
    return any(name == CHAIN_HEADER for name, _ in record.headers)
