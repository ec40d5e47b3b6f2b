"""Values that runtime and adapters hand to each other, and the callbacks of a rebalance.

They lie in core so that neither has to import the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol, overload

from log_partitioner.formats.model import SourceRecord, TopicPartition

FIRST_OFFSET, END_OFFSET = -2, -1
"""Stand for a time, as in Kafka's protocol: the first offset of a log, and its end."""


class Clock(Protocol):
    """Two clocks: monotonic for durations, wall time for recorded instants."""

    def now_s(self) -> float:
        """Monotonic seconds."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since the epoch."""
        ...


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


class Poll(Sequence[SourceRecord]):
    """The records of one poll, in order: as columns, and each whole if it is asked for.

    `tp_of` are places in `tps`, which may have more TopicPartitions than the records. `timestamps_ms` has -1 if a
    record has none. `with_headers` are the header names of records that have some, by place; None if part of a record
    is unreadable. `keys` gives the records' keys.
    """

    def __init__(
        self,
        tps: list[TopicPartition],
        tp_of: list[int],
        offsets: list[int],
        timestamps_ms: list[int],
        values: list[bytes | None],
        with_headers: Mapping[int, frozenset[str] | None],
        keys: Callable[[], list[bytes | None]],
        whole: Callable[[int], SourceRecord],
    ) -> None:
        self.tps = tps
        self.tp_of = tp_of
        self.offsets = offsets
        self.timestamps_ms = timestamps_ms
        self.values = values
        self.with_headers = with_headers
        self.keys = keys
        self._whole = whole

    @classmethod
    def of(cls, records: Sequence[SourceRecord]) -> Poll:
        """Return records that are whole already."""
        tps = list(dict.fromkeys(record.tp for record in records))
        return cls(
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

    def __len__(self) -> int:
        return len(self.offsets)

    @overload
    def __getitem__(self, place: int) -> SourceRecord: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[SourceRecord]: ...
    def __getitem__(self, place: int | slice) -> SourceRecord | Sequence[SourceRecord]:
        if isinstance(place, slice):
            return [self._whole(one) for one in range(*place.indices(len(self)))]
        if not 0 <= place < len(self):
            raise IndexError(place)
        return self._whole(place)


class FetchFailure(NamedTuple):
    """The client library could not read an offset: the offset that it names, the error's name, and its text."""

    offset: int
    code: str
    message: str


class Message(NamedTuple):
    """A message to produce inside a transaction; without a partition its key decides."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    partition: int | None = None


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
        ...

    def write(self, data: bytes) -> None:
        """Append; raises SpoolError if the disk refuses."""
        ...

    def finish(self) -> SealedFile:
        """Close it; raises SpoolError if the disk refuses."""
        ...


class BatchSpool(Protocol):
    """The directory of one batch: one file of pieces, and its objects until they are committed or discarded.

    Every method raises SpoolError if the disk refuses, or if the bytes read are not those written.
    """

    def append(self, data: bytes) -> Piece:
        """Append a piece."""
        ...

    def read(self, piece: Piece) -> bytes:
        """Read a piece back."""
        ...

    def create(self, number: int) -> ObjectFile:
        """Begin the object of this number."""
        ...

    def load(self, sealed: SealedFile) -> bytes:
        """Read a finished object; any thread."""
        ...

    def delete(self) -> None:
        """Delete all files of the batch. Never raises: the next batch tries again to delete the ones that remain."""
        ...


class StoredObject(NamedTuple):
    """An object whose upload was acknowledged."""

    key: str
    etag: str | None
    version_id: str | None


class RebalanceListener(Protocol):
    """Called from inside `Consumer.consume` and `Consumer.close`; must not raise."""

    def on_assigned(self, tps: frozenset[TopicPartition]) -> None:
        """Take over TopicPartitions; no record of them comes before each is sought."""
        ...

    def on_revoked(self, tps: frozenset[TopicPartition]) -> None:
        """Release TopicPartitions; blocks the rebalance until everything of theirs is committed or discarded."""
        ...

    def on_lost(self, tps: frozenset[TopicPartition]) -> None:
        """Forget TopicPartitions that another member owns already."""
        ...
