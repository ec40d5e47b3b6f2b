"""The worker's needs of the outside world, as Protocols, and the values that cross it; adapters and fakes fulfil them.

The loop thread alone calls everything here, except `BatchSpool.load` and `Metrics`, which upload threads call, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from log_partitioner.control.deadline import Deadline
from log_partitioner.control.flush_history import FlushedOffsets
from log_partitioner.formats.model import CommittedOffset, SourceRecord, TopicPartition
from log_partitioner.formats.offset_metadata import SourceTopics
from log_partitioner.formats.schema import Schema, SchemaRef

FIRST_OFFSET, END_OFFSET = -2, -1
"""Stand for a time, as in Kafka's protocol: the first offset of a log, and its end."""


class Clock(Protocol):
    """Two clocks: monotonic for durations, wall time for recorded instants."""

    def now_s(self) -> float:
        """Monotonic seconds."""

    def wall_ms(self) -> int:
        """Milliseconds since the epoch."""

    def sleep(self, seconds: float) -> None:
        """Block for so long."""


class Membership(NamedTuple):
    """The identity by which the broker fences a member; `raw` is passed back to the client library unchanged.

    `outlives_fencing`: a fenced member comes back under the same id (KIP-848), so that the id proves nothing.
    """

    generation: int
    member_id: str
    raw: object
    outlives_fencing: bool = False

    @property
    def is_proof(self) -> bool:
        """Whether a broker would check it, which it does only with a generation and a member id (KAFKA_FACTS F3).

        Members count from 1; a fenced KIP-848 member has epoch 0 until it has joined again.
        """
        return self.generation > 0 and self.member_id != ""


@dataclass(frozen=True, slots=True, eq=False)
class Poll:
    """The records of one poll, in order: as columns, and each whole if it is asked for.

    `tp_of` are places in `tps`, which may have more TopicPartitions than the records. `timestamps_ms` has -1 if a
    record has none. `with_headers` are the header names of records that have some, by place; None if part of a record
    is unreadable. `keys` gives the records' keys, `whole` the record of a place.
    """

    tps: list[TopicPartition]
    tp_of: list[int]
    offsets: list[int]
    timestamps_ms: list[int]
    values: list[bytes | None]
    with_headers: Mapping[int, frozenset[str] | None]
    keys: Callable[[], list[bytes | None]]
    whole: Callable[[int], SourceRecord]

    def __len__(self) -> int:
        return len(self.offsets)

    def __iter__(self) -> Iterator[SourceRecord]:
        return map(self.whole, range(len(self)))

    def __getitem__(self, place: int) -> SourceRecord:
        return self.whole(place)


class FetchFailure(NamedTuple):
    """A record could not be read: its offset as the client library names it, the error's name, and its text."""

    offset: int
    code: str
    message: str


class Message(NamedTuple):
    """A message to produce inside a transaction; without a partition its key decides, without a timestamp it is now."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    partition: int | None = None
    timestamp_ms: int | None = None


class SentFlush(NamedTuple):
    """A committed flush as it was sent: `messages` makes the messages of its transaction once more."""

    batch_id: str
    entries: int
    next_offsets: Mapping[TopicPartition, int]
    messages: Callable[[], Iterable[Message]]


class FlushFindings(NamedTuple):
    """The findings of one flush by kind, the places of some; `problem` says why it was not judged to its end."""

    differences: Counter[str]
    places: list[str]
    objects: int
    problem: str | None


FlushJudge = Callable[[SentFlush, Callable[[], Deadline]], FlushFindings]
"""Compares a committed flush with the source and the store, by other code than the worker's.

It blocks until a deadline, for which it asks again and again, and raises StoreRefusedError if the store refuses us.
"""


class SealedFile(NamedTuple):
    """A finished object in the spool."""

    path: str
    size: int
    sha256: bytes
    crc32: int


class Piece(NamedTuple):
    """Bytes in the spool file of a batch, and the checksum that is compared when they are read back."""

    start: int
    length: int
    crc32: int


class ObjectFile(Protocol):
    """An object of a batch while it is written."""

    @property
    def size(self) -> int:
        """Bytes written so far."""

    def write(self, data: bytes) -> None:
        """Append; raises SpoolError if the disk refuses."""

    def finish(self) -> SealedFile:
        """Close it; raises SpoolError if the disk refuses."""


class BatchSpool(Protocol):
    """The directory of one batch: one file of pieces, and its objects until they are committed or discarded.

    Every method raises SpoolError if the disk refuses, or if the bytes read are not those written.
    """

    def append(self, data: bytes) -> Piece:
        """Append a piece."""

    def read(self, piece: Piece) -> bytes:
        """Read a piece back."""

    def create(self, number: int) -> ObjectFile:
        """Begin the object of this number."""

    def load(self, sealed: SealedFile) -> bytes:
        """Read a finished object; any thread."""

    def delete(self) -> None:
        """Delete all files of the batch. Never raises: the next batch tries again to delete the ones that remain."""


class StoredObject(NamedTuple):
    """An object whose upload was acknowledged."""

    key: str
    etag: str | None
    version_id: str | None


class RebalanceListener(Protocol):
    """Called from inside `Consumer.consume` and `Consumer.close`; must not raise."""

    def on_assigned(self, tps: frozenset[TopicPartition]) -> None:
        """Take over TopicPartitions; no record of them comes before each is sought."""

    def on_revoked(self, tps: frozenset[TopicPartition]) -> None:
        """Release TopicPartitions; blocks the rebalance until everything of theirs is committed or discarded."""

    def on_lost(self, tps: frozenset[TopicPartition]) -> None:
        """Forget TopicPartitions that another member owns already."""


class Consumer(Protocol):
    """A member of the consumer group. A question to the broker ends by its deadline, or 0.1 s later if that is near.

    Raises:
        StopError: the broker has refused, or not answered in time.
    """

    def subscribe(self, listener: RebalanceListener) -> None:
        """Join the group."""

    def consume(self, *, records_max: int, timeout_s: float) -> Poll:
        """Take records; runs rebalance callbacks. Each returned record has moved the position.

        Raises:
            StopError: consuming cannot continue: the topic, the group or a permission.
        """

    def hold(self, tp: TopicPartition, failure: FetchFailure) -> None:
        """Treat a record that was handed over as one that could not be read."""

    def failures(self) -> Mapping[TopicPartition, FetchFailure]:
        """Return unreadable offsets of TopicPartitions since they were assigned or sought last.

        Nothing behind it is handed over: such a TopicPartition is paused until it is sought.
        """

    def committed(
        self, tps: Iterable[TopicPartition], *, deadline: Deadline
    ) -> dict[TopicPartition, CommittedOffset | None]:
        """Ask for the stable committed offsets; None if there is none."""

    def offsets_at(self, tps: Iterable[TopicPartition], at_ms: int, *, deadline: Deadline) -> dict[TopicPartition, int]:
        """Ask for the offset of the first record of this time or later, by Kafka's timestamps; the end if none is.

        `at_ms`: milliseconds since the epoch, or `FIRST_OFFSET`, or `END_OFFSET`.
        """

    def seek(self, tp: TopicPartition, start: CommittedOffset, *, deadline: Deadline) -> None:
        """Go to an offset; never returns records taken before. A failed TopicPartition is fetched again.

        The first seek after an assignment begins the fetching. `consume` raises StopError if the log does not have the
        offset of this leader epoch.
        """

    def partitions_of(self, topic: str, *, deadline: Deadline) -> list[TopicPartition]:
        """Ask for all TopicPartitions of a topic."""

    def topic_ids(self, topics: Iterable[str], *, deadline: Deadline) -> dict[str, str]:
        """Ask for Kafka's ids of topics, named or matched by a pattern, outside callbacks; unknown ones are left out.

        Raises:
            LeavingError: the process was asked to leave while no broker answered.
        """

    def pause(self) -> None:
        """Stop fetching, also TopicPartitions assigned meanwhile. `consume` is still called: it runs the callbacks."""

    def resume(self) -> None:
        """Take records again."""

    def membership(self) -> Membership:
        """Return the current group metadata."""

    def ends(self, next_offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the ends of TopicPartitions as last seen, without asking; those never seen are left out.

        If only transaction markers and aborted records are left, that is the next offset.
        """

    def blocked_by_transaction(self, next_offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return TopicPartitions that stand still although more is there, each with the offset of the open transaction.

        As last seen, without asking; a producer may be about to end it.
        """

    def close(self) -> None:
        """Leave the group; runs the callbacks."""


class FlushRecords(Protocol):
    """The flush records of this group, and of others, in the flushes topic."""

    def read(
        self,
        tps: Iterable[TopicPartition],
        topics: SourceTopics,
        *,
        newest_of: Iterable[TopicPartition] = (),
        deadline: Deadline,
    ) -> FlushedOffsets:
        """Return the next offset of each that a flush record of this group names; outside callbacks.

        Flush records of a topic with another id than in `topics` do not count, nor those from before a person set the
        offset. `newest_of` are looked up among the newest flush records only.

        Raises:
            HistoryUnknownError: it cannot be read, or not by the deadline.
            LeavingError: the worker is asked to leave.
        """


class Committer(Protocol):
    """Makes messages and offsets visible together, or neither."""

    @property
    def is_ready(self) -> bool:
        """Whether a producer is ready that no transaction was begun on."""

    def prepare(self, *, deadline: Deadline | None = None) -> None:
        """Make the next flush's producer ready; ends the transaction that an earlier one left open.

        Raises:
            CommitAbortedError: it did not become ready by the deadline; nothing was asked for.
            StopError: it was refused, or without a deadline did not become ready in the committer's own budget.
        """

    def commit(
        self,
        messages: Iterable[Message],
        offsets: Mapping[TopicPartition, CommittedOffset],
        membership: Membership,
        *,
        deadline: Deadline,
    ) -> None:
        """Run one transaction; a transaction is open only inside this call (W7).

        Raises:
            MembershipError: the membership proves nothing; nothing was sent.
            CommitAbortedError, FencedError: nothing of it is visible.
            CommitUnknownError: the committed offsets tell, after `prepare`.
        """

    def close(self) -> None:
        """Let the producer go."""


class Spool(Protocol):
    """The local disk of one worker; disposable."""

    @property
    def bytes_on_disk(self) -> int:
        """Bytes of all its files, including those that could not be deleted."""

    def open(self, batch_id: str) -> BatchSpool:
        """Make the directory of a batch.

        Raises:
            SpoolError: the disk refused, or the spool is full of files that cannot be deleted.
        """


class Journal(Protocol):
    """One line that outlives the process."""

    def read(self) -> bytes:
        """Return the line of the process before; raises SpoolError."""

    def write(self, line: bytes) -> None:
        """Replace the line; raises SpoolError."""


class Schemas(Protocol):
    """The schemas of a registry."""

    def find(self, ref: SchemaRef, *, deadline: Deadline) -> Schema | None:
        """Return a schema; None if the registry has not known it for long enough to be sure. Blocks for seconds.

        Raises:
            RegistryError: that cannot be told now: ask again.
        """


class Metrics(Protocol):
    """Counters and gauges; called once per poll, flush or request, never per entry; any thread."""

    def add(self, name: str, amount: float = 1, **labels: str) -> None:
        """Add to a counter."""

    def set(self, name: str, value: float, **labels: str) -> None:
        """Set a gauge."""

    def forget(self, name: str, **labels: str) -> None:
        """Stop reporting one series of a gauge."""

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Put a value into a histogram."""
