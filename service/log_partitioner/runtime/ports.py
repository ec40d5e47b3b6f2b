"""The runtime's needs of the outside world, as Protocols; adapters and fakes fulfil them.

The loop thread alone calls everything here, except `ObjectStore`, whose methods upload threads call, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import NamedTuple, Protocol

from log_partitioner.boundary import (
    BatchSpool,
    FetchFailure,
    FlushFindings,
    Membership,
    Message,
    Poll,
    RebalanceListener,
    SentFlush,
    StoredObject,
)
from log_partitioner.control.deadline import Deadline
from log_partitioner.control.flush_history import Flushed
from log_partitioner.formats.model import CommittedOffset, TopicPartition
from log_partitioner.formats.offset_metadata import SourceTopics


class Consumer(Protocol):
    """A member of the consumer group. A question to the broker ends by its deadline, or 0.1 s later if that is near.

    Raises:
        StopError: the broker has refused, or not answered in time.
    """

    def subscribe(self, listener: RebalanceListener) -> None:
        """Join the group."""
        ...

    def consume(self, *, records_max: int, timeout_s: float) -> Poll:
        """Take records; runs rebalance callbacks. Each returned record has moved the position.

        Raises:
            StopError: consuming cannot continue: the topic, the group or a permission.
        """
        ...

    def failures(self) -> Mapping[TopicPartition, FetchFailure]:
        """Return unreadable offsets of TopicPartitions since they were assigned or sought last.

        Nothing behind it is handed over: such a TopicPartition is paused until it is fetched again, or sought.
        """
        ...

    def fetch_again(self, tp: TopicPartition, start: CommittedOffset) -> None:
        """Fetch a failed TopicPartition from this offset on."""
        ...

    def committed(
        self, tps: Iterable[TopicPartition], *, deadline: Deadline
    ) -> dict[TopicPartition, CommittedOffset | None]:
        """Ask for the stable committed offsets; None if there is none."""
        ...

    def offsets_at(self, tps: Iterable[TopicPartition], at_ms: int, *, deadline: Deadline) -> dict[TopicPartition, int]:
        """Ask for the offset of the first record of this time or later, by Kafka's timestamps; the end if none is.

        `at_ms`: milliseconds since the epoch, or `FIRST_OFFSET`, or `END_OFFSET`.
        """
        ...

    def seek(self, tp: TopicPartition, start: CommittedOffset, *, deadline: Deadline) -> None:
        """Go to an offset; never returns records taken before. A failed TopicPartition is fetched again.

        The first seek after an assignment begins the fetching. `consume` raises StopError if the log does not have the
        offset of this leader epoch.
        """
        ...

    def partitions_of(self, topic: str, *, deadline: Deadline) -> list[TopicPartition]:
        """Ask for all TopicPartitions of a topic."""
        ...

    def topic_ids(self, topics: Iterable[str], *, deadline: Deadline) -> dict[str, str]:
        """Ask for Kafka's ids of topics, outside callbacks; unknown ones are left out. Never raises."""
        ...

    def pause(self) -> None:
        """Stop fetching, also TopicPartitions assigned meanwhile. `consume` is still called: it runs the callbacks."""
        ...

    def resume(self) -> None:
        """Take records again."""
        ...

    def membership(self) -> Membership:
        """Return the current group metadata."""
        ...

    def ends(self, next_offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the ends of TopicPartitions as last seen, without asking; those never seen are left out.

        If only transaction markers and aborted records are left, that is the next offset.
        """
        ...

    def held_up(self, next_offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return TopicPartitions that stand still although more is there, each with the offset of the open transaction.

        As last seen, without asking; a producer may be about to end it.
        """
        ...

    def close(self) -> None:
        """Leave the group; runs the callbacks."""
        ...


class FlushRecords(Protocol):
    """The flush records of this group, and of others, in the flushes topic."""

    def read(
        self,
        tps: Iterable[TopicPartition],
        topics: SourceTopics,
        *,
        newest_of: Iterable[TopicPartition] = (),
        deadline: Deadline,
    ) -> Flushed:
        """Return the next offset of each that a flush record of this group names; outside callbacks.

        Flush records of a topic with another id than in `topics` do not count, nor those from before a person set the
        offset. `newest_of` are looked up among the newest flush records only.

        Raises:
            HistoryUnknownError: it cannot be read, or not by the deadline.
            LeavingError: the worker is asked to leave.
        """
        ...


class Committer(Protocol):
    """Makes messages and offsets visible together, or neither."""

    @property
    def is_ready(self) -> bool:
        """Whether a producer is ready that no transaction was begun on."""
        ...

    def prepare(self, *, deadline: Deadline | None = None) -> None:
        """Make the next flush's producer ready; ends the transaction that an earlier one left open.

        Raises:
            CommitAbortedError: it did not become ready by the deadline; nothing was asked for.
            StopError: it was refused, or without a deadline did not become ready in the committer's own budget.
        """
        ...

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
        ...

    def close(self) -> None:
        """Let the producer go."""
        ...


class Spool(Protocol):
    """The local disk of one worker; disposable."""

    @property
    def bytes_on_disk(self) -> int:
        """Bytes of all its files, including those that could not be deleted."""
        ...

    def open(self, batch_id: str) -> BatchSpool:
        """Make the directory of a batch.

        Raises:
            SpoolError: the disk refused, or the spool is full of files that cannot be deleted.
        """
        ...


class Upload(NamedTuple):
    """One object to make: `key_of(attempt)` names it, its body of `size` bytes is read when its turn comes."""

    key_of: Callable[[int], str]
    body: Callable[[], bytes]
    size: int
    sha256: bytes
    crc32: int
    metadata: Mapping[str, str]
    shared: bool = False
    """Whether the key follows from the content, so that a taken key is as good as ours."""


class Uploads(Protocol):
    """Uploads many objects at once, under one deadline."""

    def submit(self, upload: Upload, deadline: Deadline) -> Future[StoredObject]:
        """Begin one upload."""
        ...

    def await_all(
        self, futures: Iterable[Future[StoredObject]], deadline: Deadline, abandoned: Callable[[], bool]
    ) -> list[StoredObject]:
        """Wait for all; the first failure ends the others.

        Raises:
            UploadError, StoreRefusedError, SpoolError: that of the first upload that failed.
        """
        ...


class ObjectStore(Protocol):
    """Creates objects; never overwrites one."""

    def put(
        self,
        key: str,
        body: bytes,
        *,
        sha256: bytes,
        crc32: int,
        metadata: Mapping[str, str],
        deadline: Deadline,
    ) -> StoredObject:
        """Create an object; blocks until it is acknowledged; any thread.

        Raises:
            KeyTakenError: an object has this key; `find` tells whether it is ours.
            UploadError: not acknowledged before the deadline.
            StoreRefusedError: no such bucket, no permission.
        """
        ...

    def find(self, key: str, *, sha256: bytes, size: int) -> StoredObject | None:
        """Return the object that has this key, if it is provably the one meant; any thread."""
        ...


class FlushJudge(Protocol):
    """Judges the output of a committed flush, by other code than the worker's."""

    def judge(self, flush: SentFlush, *, until: Callable[[], Deadline]) -> FlushFindings:
        """Compare a flush with the source and the store; blocks `until` then, which is asked again and again.

        Raises:
            StoreRefusedError: no permission.
        """
        ...


class Journal(Protocol):
    """One line that outlives the process."""

    def read(self) -> bytes:
        """Return the line of the process before; raises SpoolError."""
        ...

    def write(self, line: bytes) -> None:
        """Replace the line; raises SpoolError."""
        ...


class Metrics(Protocol):
    """Counters and gauges; called once per poll or flush, never per entry."""

    def add(self, name: str, amount: float = 1, **labels: str) -> None:
        """Add to a counter."""
        ...

    def set(self, name: str, value: float, **labels: str) -> None:
        """Set a gauge."""
        ...

    def forget(self, name: str, **labels: str) -> None:
        """Stop reporting one series of a gauge."""
        ...

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Put a value into a histogram."""
        ...
