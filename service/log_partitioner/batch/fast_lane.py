"""The fast lane: plain records become rows in compiled code, many at once; all others are left to the recorder.

Plain is a record whose entries have a type, and users and times of the frequent forms. Both lanes fill the same columns
in the order of the records, so that nothing tells afterwards which one a row came from.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from log_partitioner import native
from log_partitioner.batch.rows import PythonTexts, Rows
from log_partitioner.batch.types import CompiledTypes
from log_partitioner.config.section import parse_entries_path, parse_path
from log_partitioner.config.settings import Settings
from log_partitioner.formats.model import CHAIN_HEADER, PartitionKey
from log_partitioner.input.decode import ENVELOPE, WEIGHT_PER_BYTE_MAX
from log_partitioner.input.formats import format_of
from log_partitioner.input.framing import PLAIN_PREFIXES, SCHEMA_HEADER
from log_partitioner.partitioning.event_time import EARLIEST_US, LATEST_US
from log_partitioner.partitioning.locate import is_plain
from log_partitioner.partitioning.partitioner import date_and_hour_in

if TYPE_CHECKING:
    import log_partitioner_native

    from log_partitioner.boundary import Poll
    from log_partitioner.formats.model import TopicPartition

PATHS_MAX = 32  # of users, times, ids and an envelope together
LARGE_BYTES = 64 * 1024  # a larger record is taken by itself: it may need a batch of its own
_, _date_and_hour = date_and_hour_in(UTC)
_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
_HOURS = 24
TYPES_BYTES_MAX = 64 * 1024 * 1024  # of all types that are known


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
    """Records that were taken at once, and the offsets that they cover; `gaps` are [from, to)."""

    records: int
    entries: int
    weight: int
    source_bytes: int
    fallbacks: int
    covered: list[TakenSpan]
    gaps: list[tuple[TopicPartition, int, int]]


def is_fast(settings: Settings) -> bool:
    """Tell whether compiled code writes objects; it does so even if no record takes the fast lane."""
    return native.IS_INSTALLED and settings.fast_lane == "auto"


def why_no_lane(settings: Settings) -> str | None:
    """Say which records take no fast lane, and why; None if the records of all topics take it."""
    if not is_fast(settings):
        return "fast_lane is off" if settings.fast_lane == "off" else "not installed"
    reasons = [f"{begin}{reason}" for begin, one in settings.each_reading() if (reason := _why_slow(one))]
    return "; ".join(reasons) or None


def has_lane(settings: Settings) -> bool:
    """Tell whether records of any topic take the fast lane."""
    return is_fast(settings) and any(_why_slow(one) is None for _, one in settings.each_reading())


def _why_slow(settings: Settings) -> str | None:
    if format_of(settings.input).compiled is None:
        return f"input.format is {settings.input.format}"
    is_kept = settings.input.entries_path is not None and settings.input.envelope == "keep"
    paths = {"user": settings.user.paths, "time": settings.time.paths, "id": settings.id.paths}
    for name, given in paths.items():
        if not all(map(is_plain, given)):
            return f"{name}.paths lead to a header, or into the key or a text"
        if is_kept and any(map(_leads_into_kept, given)):
            return f"{name}.paths lead into {ENVELOPE}, as envelope: does"
    if settings.time.format is not None:
        return "time.format is set"
    if str(settings.partition.zone) != "UTC":
        return "partition.zone is not UTC"
    if settings.input.record_bytes_max < LARGE_BYTES:
        return f"input.record_bytes_max is below {LARGE_BYTES}"
    return "too many paths" if sum(map(len, paths.values())) >= PATHS_MAX else None


def _leads_into_kept(path: str) -> bool:
    begin, keys = parse_path(path)
    return begin == "entry" and keys[0] == ENVELOPE


def _rules(settings: Settings) -> dict[str, Any]:
    """Return the rules as the compiled lane takes them; hours are UTC's."""
    source, user, times = settings.input, settings.user, settings.time
    return {
        "user_paths": tuple(map(parse_path, user.paths)),
        "time_paths": tuple(map(parse_path, times.paths)),
        "id_paths": tuple(map(parse_path, settings.id.paths)),
        "prefix": PLAIN_PREFIXES[source.framing],
        "entries_steps": parse_entries_path(source.entries_path) if source.entries_path else (),
        "entries_max": source.entries_per_record_max,
        "envelope_kept_as": ENVELOPE if source.envelope == "keep" else None,
        "copied_max": source.record_bytes_max // WEIGHT_PER_BYTE_MAX,
        "is_ndjson": format_of(source).compiled == "lines",
        "has_fallback": times.missing == "record-timestamp",
        "no_users": user.no_values,
        "missing_user": user.missing_name,
        "epoch_unit": times.epoch_unit,
        "is_naive_utc": str(times.zone) == "UTC",
        "earliest_us": max(times.earliest_us, EARLIEST_US),
        "latest_us": LATEST_US,
        "future_max_us": times.future_max_us,
    }


class FastLane:
    """Used by one recorder, one batch after the other; numbers the PartitionKeys of the open one."""

    def __init__(self, settings: Settings, *, bytes_max: int = TYPES_BYTES_MAX) -> None:
        assert native.module is not None, "the fast lane is not installed"
        self._native = native.module
        bounds = settings.schema_bounds._asdict()
        each = [one for _, one in settings.each_reading()]
        self._rules = [None if _why_slow(one) else _rules(one) for one in each]
        self._lane: log_partitioner_native.Lane = native.module.Lane(self._rules, bounds, bytes_max)
        self._rules_of = {topic: number for number, topic in enumerate(settings.topics, 1)}
        framings = {one.input.framing for one in each}
        self._telling = {CHAIN_HEADER, SCHEMA_HEADER} if "confluent" in framings else {CHAIN_HEADER}
        self._has_keys = any("key" in (*one.user.paths, *one.time.paths, *one.id.paths) for one in each)
        self._poll: Poll | None = None
        self._columns: log_partitioner_native.Poll | None = None
        self._types = CompiledTypes(self._lane.types)
        self._bytes_max = bytes_max

    def reads(self, topic: str) -> bool:
        """Return whether any record of a source topic is plain."""
        return self._rules[self._rules_of.get(topic, 0)] is not None

    def begin(self) -> Rows:
        """Begin the rows of a batch. Before that, types are forgotten if they are too many."""
        is_full = self._types.memory_bytes > self._bytes_max
        self._lane.begin(is_full)
        if is_full:
            self._types = CompiledTypes(self._lane.types)
        return Rows(self._types, self._key_number)

    def _key_number(self, key: PartitionKey, following: int) -> int:
        return self._lane.key_number(key.user, _hours_of(key.date) + key.hour, following)

    def take(
        self,
        poll: Poll,
        first: int,
        stop: int,
        rows: Rows,
        *,
        next_offsets: Mapping[TopicPartition, int],
        weight_max: int,
        bytes_max: int,
    ) -> TakenRun:
        """Add rows of records [first, stop) of a poll, up to the first that is not plain, or a bound.

        `rows` are the open batch's; `next_offsets` has the owned TopicPartitions. A record weighs one, and its KiB.
        """
        assert not isinstance(rows.texts, PythonTexts), "they began here"
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
            [rows.tp_numbers.get(tp, -1) for tp in tps],
            [next_offsets.get(tp, -1) for tp in tps],
            len(rows.tps),
            len(rows.keys),
            rows.texts,
        )
        new_keys = [PartitionKey(user, *_date_and_hour(hour)) for user, hour in taken.new_keys]
        rows.extend(taken, [tps[number] for number in taken.new_tps], new_keys)
        return TakenRun(
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

    def _columns_of(self, poll: Poll) -> log_partitioner_native.Poll:
        """Hand a poll over; a record whose headers say something is not plain."""
        values = poll.values
        if poll.with_headers:
            values = values.copy()
            for place, names in poll.with_headers.items():
                if names is None or not names.isdisjoint(self._telling):
                    values[place] = None
        columns: log_partitioner_native.Poll = self._native.Poll(
            values,
            poll.keys() if self._has_keys else [],
            poll.tp_of,
            poll.offsets,
            poll.timestamps_ms,
            [self._rules_of.get(tp.topic, 0) for tp in poll.tps],
        )
        return columns


@lru_cache(maxsize=10_000)
def _hours_of(day: str) -> int:
    return (date.fromisoformat(day).toordinal() - _EPOCH_ORDINAL) * _HOURS
