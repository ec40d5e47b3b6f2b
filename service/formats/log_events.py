"""The worker's log events, declared once: the worker writes them through here, whoever reads its log decodes them here.

A line is one JSON object: what every line has (`Head`), and the fields of its event. Names and fields are read by
others (docs/LOG_EVENTS.md is made from this file). A field that is added later gets a default, so that lines of before
are still read; a field that has its default is not written. Those of `plain_events` are written by their names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple, TypedDict

import msgspec

from service.formats.model import TopicPartition


class Head(msgspec.Struct, frozen=True):
    """Every line has `event`, its name, `level`, `ts`, UTC by the worker's clock, and which worker writes.

    That is `worker`, `boot`, one per process, and `seq`, which counts the lines of a boot from 1, without a hole;
    beside them `mono`, monotonic seconds, and `pid`.
    """

    event: str
    level: str
    ts: datetime
    worker: str
    boot: str
    seq: int


class LogEvent(msgspec.Struct, frozen=True, tag_field="event", omit_defaults=True):
    """One event, without what every line has."""


class Start(NamedTuple):
    """Where a TopicPartition goes on, and who says so: a committed offset, or the policy of `kafka.start_at`.

    `first_offset` is where its next batch had begun; null if it is new here.
    """

    offset: int
    source: str
    first_offset: int | None = None


class Covered(TypedDict):
    """What a commit covers of a TopicPartition: [first_offset, next_offset); min and max are of records in it."""

    first_offset: int
    min_offset: int | None
    max_offset: int | None
    next_offset: int


FIELDS: Mapping[str, str] = {
    "topic_partitions": "TopicPartitions, each written `topic-partition`",
    "topic": "the source topic",
    "partition": "its partition",
    "generation": "the worker's own counter of assignments",
    "batch_id": "the batch, as in its flush record",
    "reason": "why the batch was flushed, as in its flush record; null: it was not",
    "cause": "the class of the error, or what it says",
    "code": "the error's name at the broker or in the client library; null: it has none",
    "message": "what the error says, at most 600 characters",
    "times": "how often in a row, this time included",
}
"""What fields mean that several events have."""


# The process.


class WorkerStarted(LogEvent, frozen=True, tag="worker_started"):
    """The process is put together and begins to work.

    `group`, `protocol`: the consumer group's; `topics`: the sources; `bucket`: of the objects; `http_port`:
    of probes and metrics; `version`: of the product; `fast_lane`: "on", or why there is none.
    """

    group: str
    protocol: str
    topics: list[str]
    bucket: str
    http_port: int
    version: str
    fast_lane: str = "unknown"


class WorkerStopped(LogEvent, frozen=True, tag="worker_stopped"):
    """It was asked to stop, all is committed or discarded, and the group is left. `phase`: its last one."""

    phase: str = ""


class WorkerLeft(LogEvent, frozen=True, tag="worker_left"):
    """It was asked to stop while it waited for an answer that did not come; what was open is discarded."""

    message: str


class WorkerFailed(LogEvent, frozen=True, tag="worker_failed"):
    """It cannot go on. `story`: its last state changes, oldest first; `exception`: where an unexpected error arose."""

    cause: str
    message: str
    story: list[str]
    exception: str | None = None


class EndedWithRecordsInHand(LogEvent, frozen=True, tag="ended_with_records_in_hand"):
    """The processes before ended while the same `records` were in hand: [first, next) offsets by TopicPartition."""

    times: int
    records: dict[str, list[int]]


# Who owns what.


class PartitionsAssigned(LogEvent, frozen=True, tag="partitions_assigned"):
    """TopicPartitions are owned from here on, in the generation that begins.

    `member`, `member_generation`: the group coordinator's; `owned`: how many are owned now, in all. Nothing of them is
    read before they are positioned.
    """

    generation: int
    member: str
    member_generation: int
    owned: int
    topic_partitions: list[str]


class PartitionsRevoked(LogEvent, frozen=True, tag="partitions_revoked"):
    """TopicPartitions are given back; nothing of them is pending. `generation`: the one that begins, or the last."""

    topic_partitions: list[str]
    generation: int


class PartitionsLost(LogEvent, frozen=True, tag="partitions_lost"):
    """TopicPartitions belong to others already; the batch is discarded. `generation`: the one that ends."""

    topic_partitions: list[str]
    generation: int


class RevokedUnknown(LogEvent, frozen=True, tag="revoked_unknown"):
    """The client library revokes what is not owned."""

    topic_partitions: list[str]


class Positioned(LogEvent, frozen=True, tag="positioned"):
    """Committed offsets agree with topics and flush records, or the policy says where to start: reading goes on there.

    `member_generation`: the group coordinator's in which that was asked; `starts`: by TopicPartition [offset, who says
    so, where its next batch had begun], null for one that is new here.
    """

    member_generation: int
    starts: dict[str, Start]


# Batches.


class FlushStarted(LogEvent, frozen=True, tag="flush_started"):
    """A batch is closed and about to be flushed; flush_committed or batch_discarded follows, or the process was killed.

    `generation`: the one in which it was opened; `offsets`: what it covers, by TopicPartition [first_offset,
    next_offset). Where nobody says what became of it, they are what it may have committed.
    """

    batch_id: str
    reason: str
    generation: int
    offsets: dict[str, tuple[int, int]] | None = None


class ObjectsUploaded(LogEvent, frozen=True, tag="objects_uploaded"):
    """The store has acknowledged every object of a batch, and nothing of it is committed yet. `objects`: how many."""

    batch_id: str
    objects: int


class BatchCommitted(LogEvent, frozen=True, tag="flush_committed"):
    """Everything of a batch is committed.

    `flush_seq`: number of its flush record in the boot; `objects`, `references`, `records`, `entries`: how many
    it has; `dead_letters`: those of its entries that are in no file; `record_timestamps`: those in files that go by
    Kafka's time; `object_bytes`: of its objects; `step_seconds`: by step; `offsets`: what it covers, by TopicPartition;
    `member`, `member_generation`: the group coordinator's, by which the broker fenced the commit.
    """

    batch_id: str
    flush_seq: int
    reason: str
    generation: int
    objects: int
    references: int
    records: int
    entries: int
    dead_letters: int
    object_bytes: int
    step_seconds: dict[str, float]
    offsets: dict[str, Covered]
    member: str | None = None
    member_generation: int | None = None
    record_timestamps: int = 0


class BatchDiscarded(LogEvent, frozen=True, kw_only=True, tag="batch_discarded"):
    """A batch is not committed, and its records are read again.

    `outcome`: aborted, or unknown, where the committed offsets tell; `cost`: the offsets that are read again. Without a
    flush, `cause` is what happened to the worker.
    """

    batch_id: str
    reason: str | None
    generation: int
    cause: str
    code: str | None
    message: str | None = None
    outcome: str
    cost: str


class CommitRepeated(LogEvent, frozen=True, tag="commit_repeated"):
    """A transaction is repeated with fresh group metadata. `member_generation`: the group coordinator's."""

    batch_id: str
    member_generation: int
    cause: str


# Records.


class RecordsNotRecorded(LogEvent, frozen=True, tag="records_refused"):
    """Records were handed over and not recorded. `cause`: covered, not_owned, rewound; `records`: how many."""

    cause: str
    records: int


class OffsetGaps(LogEvent, frozen=True, tag="offset_gaps"):
    """Offsets were jumped, told before the flush that covers them; legal where a hole holds no data record.

    `gaps`: holes; `first`: the first, [begin, end).
    """

    topic: str
    partition: int
    gaps: int
    first: list[tuple[int, int]]


class Unreadable(LogEvent, frozen=True, tag="unreadable"):
    """The client library cannot read what is at `offset`."""

    topic: str
    partition: int
    offset: int
    times: int
    code: str
    message: str


class OffsetsSkipped(LogEvent, frozen=True, tag="offsets_skipped"):
    """A person has skipped [`offset`, `end_offset`) of `group` by `log-partitioner offsets skip`."""

    group: str
    topic: str
    partition: int
    offset: int
    end_offset: int


class RecordPutAway(LogEvent, frozen=True, tag="record_put_away"):
    """The record at `offset` ended the process, and becomes a dead letter, undecoded."""

    topic: str
    partition: int
    offset: int


class Paused(LogEvent, frozen=True, tag="paused"):
    """Nothing is read for `seconds`: a batch was discarded, or none could be opened."""

    seconds: float


class Resumed(LogEvent, frozen=True, tag="resumed"):
    """It is read on, after a pause."""


# Verification mode.


class FlushVerified(LogEvent, frozen=True, tag="flush_verified"):
    """A committed flush was compared with what was consumed.

    `entries`: found again; `unverified`: remembered, and not all objects could be read in time; `objects`: read;
    `seconds`: the comparison took; `differences`: how many of each kind.
    """

    batch_id: str
    entries: int
    unverified: int
    objects: int
    seconds: float
    differences: dict[str, int] = {}


class FlushDiffers(LogEvent, frozen=True, tag="flush_differs"):
    """A committed flush is not what was consumed.

    `differences`: how many of each kind; `first`: kinds and topic-partition/offset/index, or objects, of some.
    """

    batch_id: str
    differences: dict[str, int]
    first: list[str]


EVENTS: Mapping[str, type[LogEvent]] = {str(kind.__struct_config__.tag): kind for kind in LogEvent.__subclasses__()}


class LogLine(NamedTuple):
    """One line: what every line has, the event, and all fields as they stand there.

    `event` is None where this version knows none of that name, or has declared it with other fields.
    """

    head: Head
    event: LogEvent | None
    fields: Mapping[str, Any]


def tell(say: Callable[..., object], event: LogEvent, **beside: object) -> None:
    """Write an event by `say`, the method of a logger for its level; `beside` is what the logger itself reads."""
    say(**msgspec.to_builtins(event, enc_hook=repr), **beside)


def read_line(raw: bytes) -> LogLine | None:
    """Return a line of a worker's log, None where it is none; what stands before its JSON is ignored."""
    try:
        fields = msgspec.json.decode(raw[raw.index(b"{") :])
        head = msgspec.convert(fields, Head)
    except (msgspec.DecodeError, ValueError):
        return None
    try:
        return LogLine(head, msgspec.convert(fields, EVENTS[head.event]), fields)
    except (msgspec.ValidationError, KeyError):
        return LogLine(head, None, fields)


def named(names: Mapping[str, object] | list[str]) -> Iterator[TopicPartition]:
    """Yield the TopicPartitions of an event by their names; what is no such name is left out."""
    for name in names:
        topic, _, number = name.rpartition("-")
        if number.isdecimal():
            yield TopicPartition(topic, int(number))
