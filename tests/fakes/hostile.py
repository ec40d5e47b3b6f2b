"""A worker's recorder and flusher by real settings, over fakes, and the most hostile batch that they can be given.

Used to see that every message of a flush fits, and by a test that hands these messages to a real broker.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, NamedTuple

from log_partitioner.batch.batch import Opening
from log_partitioner.batch.messages import Sender
from log_partitioner.boundary import Membership
from log_partitioner.config.s3_settings import S3Settings
from log_partitioner.config.settings import KafkaSettings, Settings, SpoolSettings
from log_partitioner.control.deadline import Deadline
from log_partitioner.control.flush_policy import FlushReason
from log_partitioner.formats.model import CommittedOffset, Headers, SourceRecord, TopicPartition
from log_partitioner.formats.offset_metadata import SourceTopics
from log_partitioner.partitioning.partitioner import USER_CHARS_MAX
from log_partitioner.runtime.flusher import Flusher
from tests.fakes.clock import START_MS
from tests.fakes.rig import Rig
from tests.fakes.worker import Rules

REFERENCES, FLUSHES, DEAD_LETTERS = "references", "flushes", "dead-letters"
MEMBER = Membership(1, "member", None)
TOPIC_CHARS_MAX = 249


class Sizes(NamedTuple):
    """How much there is of everything that a message may hold; `name` is a letter that makes it long, or short."""

    message_bytes_max: int
    name: str
    topic_partitions: int
    topics: int
    users: int
    user: str
    fields: int
    bad_entries: int
    key_bytes: int
    header_bytes: int
    headers: int
    value_bytes: int


MOST = Sizes(
    message_bytes_max=100_000,
    name="\x01",
    topic_partitions=5_000,
    topics=5_000,
    users=3,
    user="\x01" * USER_CHARS_MAX,
    fields=900,
    bad_entries=100_000,
    key_bytes=300_000,
    header_bytes=440_000,
    headers=5_000,
    value_bytes=900_000,
)
FEW = Sizes(100_000, "a", 3, 1, 12, "ann", 3, 2, 10, 10, 2, 10)


class Inline(KafkaSettings):
    """Every schema that has room stands in messages."""

    inline_bytes_max = 2**40


class Deployment:
    """A worker's recorder and flusher by settings of these sizes."""

    def __init__(self, size: Sizes) -> None:
        self.size = size
        self.settings = Settings(
            worker=size.name * 255,
            kafka=Inline(
                bootstrap_servers="nowhere:1",
                group_id=size.name * 255,
                source_topics=("app",),
                message_bytes_max=size.message_bytes_max,
            ),
            s3=S3Settings(bucket="b" * 63, prefix="\x01".join(["p" * 60] * 8)),
            spool=SpoolSettings(memory_bytes_max=2**40),
            fast_lane="off",
        )
        settings, rig = self.settings, Rig()
        worker = rig.worker(rules=Rules(settings), start=False).worker
        self.clock, self.broker, self.bucket, self.recorder = rig.clock, rig.broker, rig.bucket, worker.recorder
        self.broker.group = None
        topics = [f"{number:05}".ljust(TOPIC_CHARS_MAX, "t") for number in range(size.topics)]
        self.tps = [TopicPartition(topics[number % size.topics], number) for number in range(size.topic_partitions)]
        for tp in self.tps:
            self.recorder.start(tp, CommittedOffset(2**62))
        self.recorder.open(Opening("20260304T050607Z-1f2e3d4c-17", 1, MEMBER, 0.0, START_MS))
        self.flusher = Flusher(
            worker.ports,
            settings,
            Sender(settings.worker, "boot", settings.kafka, settings.s3.bucket),
            SourceTopics(dict.fromkeys(topics, "i" * 22)),
            require_fit=lambda _batch: None,
        )
        self.flusher._membership = lambda: MEMBER
        self._offsets = Counter[TopicPartition]()

    def take(self, tp: TopicPartition, value: bytes, **fields: Any) -> SourceRecord:
        """Record one record."""
        offset = 2**62 + self._offsets[tp]
        self._offsets[tp] += 1
        record = SourceRecord(tp, offset, START_MS, fields.get("key"), value, fields.get("headers", ()))
        self.recorder.record(record)
        return record

    def flush(self) -> None:
        """Flush the batch."""
        self.flusher.flush(self.recorder.close(), FlushReason.BYTES, deadline=Deadline.after(10.0**6, self.clock.now_s))


def fill(deployment: Deployment) -> list[SourceRecord]:
    """Record entries of every TopicPartition and user, with fields, then dead ones; gives the latter."""
    size = deployment.size
    wide = {f"field_{number:04}": number for number in range(size.fields)}
    for number, tp in enumerate(deployment.tps):
        for nth in range(2 if number < size.users else 1):
            user = size.user[: USER_CHARS_MAX - 5] + f"{number % size.users if nth else 0:05}"
            entry = {"user": user, "time": START_MS} | (wide if number < size.users else {"a": number % 2})
            deployment.take(tp, json.dumps(entry).encode())
    if not size.bad_entries:
        return []
    own: Headers = tuple((size.name * 3, b"v") for _ in range(size.headers))
    if size.header_bytes:
        own += (("h", b"x" * size.header_bytes),)
    key = b"k" * size.key_bytes
    one_by_one = b"[" + b",".join([b"1"] * size.bad_entries) + b" " * size.value_bytes + b"]"
    some = (
        deployment.take(deployment.tps[0], one_by_one, key=key, headers=own),
        deployment.take(deployment.tps[0], b"[" + b"x" * size.value_bytes, key=key, headers=own),
        deployment.take(deployment.tps[-1], one_by_one),
    )
    return list(some)
