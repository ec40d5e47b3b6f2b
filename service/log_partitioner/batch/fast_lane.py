"""The fast lane: plain records become rows in compiled code, many at once; all others are left to the recorder.

Plain is a record whose entries are all of shapes whose types are known, with users and times of the frequent forms.
Types are never inferred there: the first entry of a shape goes through the recorder, which teaches its type. Both lanes
fill the same columns in the order of the records, so that nothing tells afterwards which one a row came from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from log_partitioner import native
from log_partitioner.avro.entry_types import SHAPES_BYTES_MAX
from log_partitioner.avro.schema_types import ArrayType, MapType, RecordType, Scalar, Type
from log_partitioner.config.section import parse_path
from log_partitioner.config.settings import Settings
from log_partitioner.formats.model import CHAIN_HEADER, PartitionKey
from log_partitioner.partitioning.event_time import EARLIEST_US, LATEST_US
from log_partitioner.partitioning.locate import is_plain

if TYPE_CHECKING:
    import log_partitioner_native

    from log_partitioner.boundary import Poll
    from log_partitioner.formats.model import TopicPartition
    from log_partitioner.input.decode import Decoded

PATHS_MAX = 32  # of users, times, ids and an envelope together
LARGE_BYTES = 64 * 1024  # a record of more is looked at by itself: it may need a batch of its own
_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
_HOURS = 24
_TYPE_BYTES = 600


class TakenSpan(NamedTuple):
    """Records of one TopicPartition that were taken; `last` is the place of the last one in its poll."""

    tp: TopicPartition
    records: int
    entries: int
    first_offset: int
    last_offset: int
    timestamp_max_ms: int | None
    last: int


class TakenRun(NamedTuple):
    """Records that either lane has taken at once, and the offsets that they cover; `gaps` are [from, to).

    `rest` is the next record, decoded, if it was decoded and is not plain: it is recorded next.
    """

    records: int
    entries: int
    weight: int
    source_bytes: int
    fallbacks: int
    covered: list[TakenSpan]
    gaps: list[tuple[TopicPartition, int, int]]
    rest: Decoded | None = None


class Taken(NamedTuple):
    """Records that the fast lane has taken, and their rows, which `Rows.extend` adds."""

    run: TakenRun
    columns: log_partitioner_native.Taken
    tps: list[TopicPartition]
    keys: list[PartitionKey]
    types: list[RecordType]


class Known(NamedTuple):
    """State of the open batch: TopicPartitions by number, numbers of PartitionKeys and types, texts."""

    tps: Mapping[TopicPartition, int]
    keys: int
    types: int
    texts: log_partitioner_native.Texts


def is_fast(settings: Settings) -> bool:
    """Tell whether compiled code writes objects: also if there is no fast lane to take records into rows."""
    return native.IS_INSTALLED and settings.fast_lane == "auto"


def why_no_lane(settings: Settings) -> str | None:
    """Say why there is no fast lane; None if there is one."""
    if not is_fast(settings):
        return "fast_lane is off" if settings.fast_lane == "off" else "not installed"
    paths = {"user": settings.user.paths, "time": settings.time.paths, "id": settings.id.paths}
    for name, given in paths.items():
        if not all(map(is_plain, given)):
            return f"{name}.paths lead to a header, or into the key"
    if str(settings.partition.zone) != "UTC":
        return "partition.zone is not UTC"
    if settings.input.record_bytes_max < LARGE_BYTES:
        return f"input.record_bytes_max is below {LARGE_BYTES}"
    return "too many paths" if sum(map(len, paths.values())) >= PATHS_MAX else None


def _rules(settings: Settings, bytes_max: int) -> dict[str, Any]:
    """Return the rules as the compiled lane takes them; hours are UTC's."""
    source, user, times = settings.input, settings.user, settings.time
    return {
        "user_paths": tuple(map(parse_path, user.paths)),
        "time_paths": tuple(map(parse_path, times.paths)),
        "id_paths": tuple(map(parse_path, settings.id.paths)),
        "entries_field": source.entries_field,
        "entries_max": source.entries_per_record_max,
        "is_ndjson": source.format == "ndjson",
        "has_fallback": times.missing == "record-timestamp",
        "no_users": user.no_values,
        "missing_user": user.missing_name,
        "epoch_unit": times.epoch_unit,
        "is_naive_utc": str(times.zone) == "UTC",
        "earliest_us": max(times.earliest_us, EARLIEST_US),
        "latest_us": LATEST_US,
        "future_max_us": times.future_max_us,
        "chain_header": CHAIN_HEADER,
        "bytes_max": bytes_max,
    }


class FastLane:
    """Used by one recorder, one batch after the other; numbers the PartitionKeys and types of the open one."""

    def __init__(self, settings: Settings, *, bytes_max: int = SHAPES_BYTES_MAX) -> None:
        assert native.module is not None, "the fast lane is not installed"
        self._native = native.module
        self._lane: log_partitioner_native.Lane = native.module.Lane(_rules(settings, bytes_max))
        self._has_keys = "key" in (*settings.user.paths, *settings.time.paths, *settings.id.paths)
        self._bytes_max = bytes_max
        self._type_bytes = 0
        self._types: list[RecordType] = []
        self._numbers: dict[int, int] = {}  # by identity, which the list keeps
        self._poll: Poll | None = None
        self._columns: log_partitioner_native.Poll | None = None

    def begin(self) -> None:
        """Begin a batch; too many types are forgotten, and learnt again."""
        is_full = self._type_bytes > self._bytes_max
        if self._lane.begin(is_full):
            self._types.clear()
            self._numbers.clear()
            self._type_bytes = 0

    def learn(self, text: bytes, entry_type: RecordType) -> None:
        """Remember the type of an entry's shape."""
        self._lane.learn(text, self._number_of(entry_type))

    def type_number(self, entry_type: RecordType, following: int) -> int:
        """Return the number of a type in the open batch: `following` if it is new."""
        return self._lane.type_number(self._number_of(entry_type), following)

    def key_number(self, key: PartitionKey, following: int) -> int:
        """Return the number of a PartitionKey in the open batch: `following` if it is new."""
        return self._lane.key_number(key.user, _hours_of(key.date) + key.hour, following)

    def _number_of(self, entry_type: RecordType) -> int:
        number = self._numbers.get(id(entry_type))
        if number is None:
            number = self._numbers[id(entry_type)] = len(self._types)
            self._types.append(entry_type)
            self._type_bytes += _TYPE_BYTES + 3 * entry_type.size  # as `EntryTypes` weighs them
        return number

    def take(
        self,
        poll: Poll,
        first: int,
        stop: int,
        *,
        known: Known,
        next_offsets: Mapping[TopicPartition, int],
        weight_max: int,
        bytes_max: int,
    ) -> Taken:
        """Make rows of records [first, stop) of a poll, up to the first that is not plain, or a bound.

        `next_offsets` are those of owned TopicPartitions. A record weighs one, and its KiB.
        """
        if poll is not self._poll:
            self._poll, self._columns = poll, self._columns_of(poll)
        assert self._columns is not None, "they are made with the poll"
        tps = poll.tps
        taken = self._lane.take(
            self._columns,
            first,
            stop,
            weight_max,
            bytes_max,
            [known.tps.get(tp, -1) for tp in tps],
            [next_offsets.get(tp, -1) for tp in tps],
            len(known.tps),
            known.keys,
            known.types,
            known.texts,
        )
        run = TakenRun(
            taken.records,
            taken.entries,
            taken.weight,
            taken.source_bytes,
            taken.fallbacks,
            [
                TakenSpan(tps[tp], records, entries, low, high, None if newest < 0 else newest, last)
                for tp, records, entries, low, high, newest, last in taken.covered
            ],
            [(tps[tp], expected, found) for tp, expected, found in taken.gaps],
        )
        return Taken(
            run,
            taken,
            [tps[number] for number in taken.new_tps],
            [PartitionKey(user, *_date_and_hour(hour)) for user, hour in taken.new_keys],
            [self._types[number] for number in taken.new_types],
        )

    def _columns_of(self, poll: Poll) -> log_partitioner_native.Poll:
        """Hand a poll over; a record whose headers say something is not plain."""
        values = poll.values
        if poll.with_headers:
            values = values.copy()
            for place, names in poll.with_headers.items():
                if names is None or CHAIN_HEADER in names:
                    values[place] = None
        columns: log_partitioner_native.Poll = self._native.Poll(
            values,
            poll.keys() if self._has_keys else [],
            poll.tp_of,
            poll.offsets,
            poll.timestamps_ms,
        )
        return columns


def described(entry_type: RecordType) -> Sequence[Any]:
    """Return a type as the compiled code reads it."""
    return [(name, _described(child)) for name, child in entry_type.by_name.items()]


def _described(child: Type) -> Any:
    if isinstance(child, Scalar):
        return child.value
    if isinstance(child, ArrayType):
        return "array", _described(child.item)
    if isinstance(child, MapType):
        return "map", _described(child.value)
    return "record", described(child)


@lru_cache(maxsize=10_000)
def _date_and_hour(hours: int) -> tuple[str, int]:
    moment = datetime.fromtimestamp(hours * 3600, tz=UTC)
    return moment.date().isoformat(), moment.hour


@lru_cache(maxsize=10_000)
def _hours_of(day: str) -> int:
    return (date.fromisoformat(day).toordinal() - _EPOCH_ORDINAL) * _HOURS
