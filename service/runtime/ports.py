"""What the runtime needs of the outside world, as Protocols; adapters and fakes fulfil them.

Everything here is called by the loop thread only, except `ObjectStore.put`, which upload threads call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from service.core.deadline import Deadline
from service.core.exchange import Membership, Message, RebalanceListener, SealedFile, StoredObject
from service.core.model import SourceRecord, TopicPartition


class Consumer(Protocol):
    """A member of the consumer group."""

    def subscribe(self, listener: RebalanceListener) -> None:
        """Join the group."""
        ...

    def consume(self, *, records_max: int, timeout_s: float) -> list[SourceRecord]:
        """Take records; runs rebalance callbacks. Whatever is returned has moved the position.

        Raises:
            StopError: the source, the group or a permission does not allow to go on.
        """
        ...

    def committed(self, tps: Iterable[TopicPartition], *, timeout_s: float) -> dict[TopicPartition, int | None]:
        """Ask for the stable committed offsets; None where there is none.

        Raises:
            StopError: the broker did not answer in time.
        """
        ...

    def watermarks(self, tp: TopicPartition, *, timeout_s: float) -> tuple[int, int]:
        """Ask for the first offset and the end."""
        ...

    def commit_start(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit where a TopicPartition without a committed offset begins, outside any transaction."""
        ...

    def seek(self, tp: TopicPartition, offset: int) -> None:
        """Go to an offset; records of before are never returned afterwards."""
        ...

    def partitions_of(self, topic: str, *, timeout_s: float) -> list[TopicPartition]:
        """Ask for all TopicPartitions of a topic."""
        ...

    def pause(self) -> None:
        """Take no records, of what is assigned meanwhile neither; `consume` goes on to be called."""
        ...

    def resume(self) -> None:
        """Take records again."""
        ...

    def membership(self) -> Membership:
        """Give the current group metadata."""
        ...

    def ends(self, next_offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Give the ends of TopicPartitions as last seen, without asking; those never seen are left out.

        Where nothing but transaction markers and aborted records is left, that is the next offset.
        """
        ...

    def close(self) -> None:
        """Leave the group; runs the callbacks."""
        ...


class Committer(Protocol):
    """Makes messages and offsets visible together, or neither."""

    @property
    def is_ready(self) -> bool:
        """Whether a producer is ready that no transaction was begun on."""
        ...

    def prepare(self) -> None:
        """Make the next flush's producer ready, outside any callback; ends what an earlier one left open.

        Raises:
            StopError: it did not become ready in its budget.
        """
        ...

    def commit(
        self,
        messages: Sequence[Message],
        offsets: Mapping[TopicPartition, int],
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
        """Bytes of all its files."""
        ...

    def append(self, number: int, data: bytes) -> None:
        """Append rows that leave memory.

        Raises:
            SpoolError: the disk refused.
        """
        ...

    def reader(self, number: int) -> Callable[[int, int], bytes]:
        """Give a function that reads (start, length) of what was appended."""
        ...

    def seal(self, number: int, pieces: Iterator[bytes]) -> SealedFile:
        """Write a finished file.

        Raises:
            SpoolError: the disk refused.
        """
        ...

    def load(self, sealed: SealedFile) -> bytes:
        """Read a sealed file back; any thread.

        Raises:
            SpoolError: the disk refused, or the length is not the one written.
        """
        ...

    def clear(self) -> None:
        """Delete everything; what cannot be deleted is tried again next time."""
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
        """Give the object that has this key, if it is provably the one meant; any thread."""
        ...


class Metrics(Protocol):
    """What is counted; called once per poll or flush, never per entry."""

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
