"""The worker's log events, declared once: the worker encodes them here, and readers of its log decode them here.

A line is one JSON object: the fields of every line (`Head`), and those of its event. Other programs read names and
fields (docs/LOG_EVENTS.md is made from this file). A field that is added after the first release gets a default, so
that older lines can still be read; a field with its default value is not written. Events of `plain_events` are written
by their names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, NamedTuple, TypedDict

import msgspec


class Head(msgspec.Struct, frozen=True):
    """Every line has `event` (its name), `level`, `ts` (UTC by the worker's clock), `worker`, `boot` and `seq`.

    There is one `boot` per process; `seq` counts its lines from 1, without a hole. Lines also have `mono` (monotonic
    seconds) and `pid`.
    """

    event: str
    level: str
    ts: datetime
    worker: str
    boot: str
    seq: int


class LogEvent(msgspec.Struct, frozen=True, tag_field="event", omit_defaults=True):
    """One event, without the fields of every line."""


class Start(NamedTuple):
    """The offset at which a TopicPartition goes on, and its source: a committed offset, or the policy `kafka.start_at`.

    `first_offset` is the offset at which its next batch had begun; null if it is new here.
    """

    offset: int
    source: str
    first_offset: int | None = None


class Covered(TypedDict):
    """Offsets of a TopicPartition in one commit: [first_offset, next_offset); min and max are those of its records."""

    first_offset: int
    min_offset: int | None
    max_offset: int | None
    next_offset: int


FIELDS: Mapping[str, str] = {
    "topic_partitions": "TopicPartitions, each written `topic-partition`",
    "topic": "the source topic",
    "partition": "its partition",
    "generation": "the worker's own counter of assignments",
    "member": "the group coordinator's id of the worker",
    "member_generation": "the group coordinator's generation",
    "batch_id": "the batch, as in its flush record",
    "reason": "why the batch was flushed, as in its flush record; null: it was not",
    "cause": "the class of the error, or what it says",
    "code": "the error's name at the broker or in the client library; null: it has none",
    "message": "what the error says, at most 600 characters",
    "times": "how often in a row, this time included",
    "objects": "how many",
    "differences": "how many of each kind",
}
"""Fields that several events share, with their meanings."""


# The process.


class WorkerStarted(LogEvent, frozen=True, tag="worker_started"):
    """The worker begins to work.

    `group`, `protocol`: of the consumer group; `topics`: the source topics; `bucket`: for the objects; `http_port`: for
    probes and metrics; `version`: of the product; `fast_lane`: "on", or which records take none, and why.
    """

    group: str
    protocol: str
    topics: list[str]
    bucket: str
    http_port: int
    version: str
    fast_lane: str = "unknown"


class WorkerStopped(LogEvent, frozen=True, tag="worker_stopped"):
    """The worker was asked to stop, has committed or discarded all, and has left the group. `phase`: its last one."""

    phase: str = ""


class WorkerLeft(LogEvent, frozen=True, tag="worker_left"):
    """The worker was asked to stop while it waited for an answer that did not come; it has discarded the open batch."""

    message: str


class WorkerFailed(LogEvent, frozen=True, tag="worker_failed"):
    """The worker cannot go on.

    `story`: its last state changes, oldest first; `exception`: traceback of an unexpected error.
    """

    cause: str
    message: str
    story: list[str]
    exception: str | None = None


class EndedWithRecordsInHand(LogEvent, frozen=True, tag="ended_with_records_in_hand"):
    """Earlier processes ended while they had the same `records` in hand: [first, next) offsets by TopicPartition."""

    times: int
    records: dict[str, list[int]]


# Who owns what.


class PartitionsAssigned(LogEvent, frozen=True, tag="partitions_assigned"):
    """The worker owns these TopicPartitions from here on, in the generation that begins.

    `owned`: number of all TopicPartitions owned now. The worker reads none of them before it is positioned.
    """

    generation: int
    member: str
    member_generation: int
    owned: int
    topic_partitions: list[str]


class PartitionsRevoked(LogEvent, frozen=True, tag="partitions_revoked"):
    """The worker has released TopicPartitions; none is pending. `generation`: the one that begins, or the last."""

    topic_partitions: list[str]
    generation: int


class PartitionsLost(LogEvent, frozen=True, tag="partitions_lost"):
    """Other members own these TopicPartitions already; the batch is discarded. `generation`: the one that ends."""

    topic_partitions: list[str]
    generation: int


class RevokedUnknown(LogEvent, frozen=True, tag="revoked_unknown"):
    """The client library revokes TopicPartitions that the worker does not own."""

    topic_partitions: list[str]


class Positioned(LogEvent, frozen=True, tag="positioned"):
    """Committed offsets agree with topics and flush records, or the policy sets the start: the worker reads on there.

    `starts`: by TopicPartition [offset, source of the offset, first offset of the next batch before], the last null for
    a TopicPartition that is new here.
    """

    member_generation: int
    starts: dict[str, Start]


# Batches.


class FlushStarted(LogEvent, frozen=True, tag="flush_started"):
    """A batch is closed and about to be flushed; flush_committed or batch_discarded follows, or the process was killed.

    `generation`: the one in which the batch was opened; `offsets`: those that the batch covers, by TopicPartition
    [first_offset, next_offset). If no later line tells the outcome, the batch may have been committed with these
    offsets.
    """

    batch_id: str
    reason: str
    generation: int
    offsets: dict[str, tuple[int, int]]


class ObjectsUploaded(LogEvent, frozen=True, tag="objects_uploaded"):
    """The store has acknowledged all objects of a batch, and nothing of it is committed yet."""

    batch_id: str
    objects: int


class BatchCommitted(LogEvent, frozen=True, tag="flush_committed"):
    """A batch is committed.

    `flush_seq`: number of its flush record in the boot; `references`, `records`, `entries`: their numbers;
    `dead_letters`: entries that are in no file; `record_timestamps`: entries in files that go by Kafka's time;
    `discarded_replays`: records that were recorded before; `object_bytes`: bytes of all objects; `step_seconds`: by
    step; `offsets`: those that the commit covers, by TopicPartition. The broker fenced the commit by member and its
    generation.
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
    member: str
    member_generation: int
    record_timestamps: int = 0
    discarded_replays: int = 0


class ReplaysDiscarded(LogEvent, frozen=True, tag="replays_discarded"):
    """The worker has discarded a record that was recorded before, the first one of this way (DESIGN 3.8).

    `topic_partition`, `offset`: of the record; `way`: the hash of its way; `place`: its place along it; `recorded`: the
    highest place recorded.
    """

    topic_partition: str
    offset: int
    way: str
    place: list[int]
    recorded: list[int]


class BatchDiscarded(LogEvent, frozen=True, kw_only=True, tag="batch_discarded"):
    """The worker did not commit a batch and reads its records again.

    `outcome`: aborted, or unknown until the committed offsets tell; `cost`: the offsets to read again, in words.
    Without a flush, `cause` says what happened to the worker.
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
    """The worker repeats a transaction with fresh group metadata."""

    batch_id: str
    member_generation: int
    cause: str


# Records.


class RecordsNotRecorded(LogEvent, frozen=True, tag="records_refused"):
    """The client library handed over records that the worker did not record.

    `cause`: covered, not_owned, rewound; `records`: how many.
    """

    cause: str
    records: int


class OffsetGaps(LogEvent, frozen=True, tag="offset_gaps"):
    """The consumer jumped over offsets, told before the flush that covers them; legal if a hole holds no data record.

    `gaps`: number of holes; `first`: the first of them, [begin, end).
    """

    topic: str
    partition: int
    gaps: int
    first: list[tuple[int, int]]


class Unreadable(LogEvent, frozen=True, tag="unreadable"):
    """The worker cannot read the record at `offset`, or lacks its schema (code SCHEMA_...)."""

    topic: str
    partition: int
    offset: int
    times: int
    code: str
    message: str


class OffsetsSkipped(LogEvent, frozen=True, tag="offsets_skipped"):
    """An operator has skipped [`offset`, `end_offset`) of `group` by `log-partitioner offsets skip`."""

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
    """The worker reads nothing for `seconds`, because a batch was discarded, or none could be opened."""

    seconds: float


class Resumed(LogEvent, frozen=True, tag="resumed"):
    """The worker reads on after a pause."""


# Verification mode.


class FlushVerified(LogEvent, frozen=True, tag="flush_verified"):
    """A committed flush was compared with the source, as the audit does.

    `entries`: its own, if it was judged to its end, else they are `unverified`; `seconds`: it took.
    """

    batch_id: str
    entries: int
    unverified: int
    objects: int
    seconds: float
    differences: dict[str, int] = {}


class FlushDiffers(LogEvent, frozen=True, tag="flush_differs"):
    """A committed flush differs from the source.

    `first`: kinds and topic-partition/offset/index, or objects, of some.
    """

    batch_id: str
    differences: dict[str, int]
    first: list[str]


EVENTS: Mapping[str, type[LogEvent]] = {str(kind.__struct_config__.tag): kind for kind in LogEvent.__subclasses__()}


class LogLine(NamedTuple):
    """One line: its head, its event, and all its fields as written.

    `event` is None if this version knows no event of that name, or declares it with other fields.
    """

    head: Head
    event: LogEvent | None
    fields: Mapping[str, Any]


def tell(say: Callable[..., object], event: LogEvent, **beside: object) -> None:
    """Write an event by `say`, the method of a logger for its level; `beside` are fields for the logger itself."""
    say(**msgspec.to_builtins(event, enc_hook=repr), **beside)


def read_line(raw: bytes) -> LogLine | None:
    """Parse a line of a worker's log, ignoring anything before its JSON; None if it is not such a line."""
    try:
        fields = msgspec.json.decode(raw[raw.index(b"{") :])
        head = msgspec.convert(fields, Head)
    except (msgspec.DecodeError, ValueError):
        return None
    try:
        return LogLine(head, msgspec.convert(fields, EVENTS[head.event]), fields)
    except (msgspec.ValidationError, KeyError):
        return LogLine(head, None, fields)
