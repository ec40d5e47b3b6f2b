"""The lane of Python: plain records become rows many at once, by the steps that the recorder takes for one.

A record is plain if it is one entry that goes into a row. The lane leaves all others to the recorder.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from sys import maxsize
from typing import NamedTuple

from log_partitioner.avro.entry_types import EntryTypes
from log_partitioner.avro.infer import TooDeepError, TooManyFieldsError
from log_partitioner.batch.fast_lane import LARGE_BYTES, TakenRun, TakenSpan
from log_partitioner.batch.rows import Rows
from log_partitioner.boundary import Poll
from log_partitioner.formats.model import RootLink, SourceRecord, TopicPartition
from log_partitioner.input.decode import BRACE, Decoded, RecordDecoder, plain
from log_partitioner.input.json_text import FAST_REFUSALS
from log_partitioner.partitioning.partitioner import Partitioner, Rejection

KIB = 1024


class TakeBounds(NamedTuple):
    """Bounds of a run: records [first, stop) of a poll, their weight (one and its KiB each), and their bytes."""

    first: int
    stop: int
    weight_max: int
    bytes_max: int


class _Columns:
    """Columns of the rows of one run; a TopicPartition is the number of its place in the poll."""

    def __init__(self, next_offsets: list[int]) -> None:
        self.next_offsets = next_offsets
        self.newest_ms = [-1] * len(next_offsets)
        self.key_of: list[int] = []
        self.type_of: list[int] = []
        self.event_times_us: list[int] = []
        self.notes: list[tuple[int, str | None, RootLink | None]] = []
        self.gaps: list[tuple[TopicPartition, int, int]] = []
        self.weight = self.source_bytes = self.fallbacks = 0
        self.rest: Decoded | None = None


class PythonLane:
    """Used by one recorder, of whose parts it is made."""

    def __init__(
        self,
        decoder: RecordDecoder,
        partitioner: Partitioner,
        types: EntryTypes,
        root_of: Callable[[SourceRecord], RootLink | None],
    ) -> None:
        self._decode = decoder.decode_plain
        self._record_bytes_max = min(decoder.plain_bytes_max, LARGE_BYTES)
        self._place = partitioner.place
        self._type_of = types.of
        self._root_of = root_of

    @property
    def is_open(self) -> bool:
        """Whether there are records that can be plain."""
        return self._record_bytes_max > 0

    def take(self, poll: Poll, bounds: TakeBounds, rows: Rows, next_offsets: Mapping[TopicPartition, int]) -> TakenRun:
        """Make rows of records of a poll, up to the first that is not plain; `next_offsets` are those owned."""
        columns = _Columns([next_offsets.get(tp, maxsize) for tp in poll.tps])
        self._read(poll, bounds, rows, columns)
        first, end = bounds.first, bounds.first + len(columns.key_of)
        tp_of, offsets = poll.tp_of[first:end], poll.offsets[first:end]
        row = len(rows)
        rows.add_plain(
            poll.tps,
            tp_of,
            offsets,
            poll.timestamps_ms[first:end],
            poll.values[first:end],  # type: ignore[arg-type]  # a record without a value is not plain
            key_of=columns.key_of,
            type_of=columns.type_of,
            event_times_us=columns.event_times_us,
        )
        for number, unique_id, root in columns.notes:
            rows.note(row + number, unique_id=unique_id, root=root)
        lowest = dict(zip(reversed(tp_of), reversed(offsets), strict=True))
        last = dict(zip(tp_of, range(first, end), strict=True))
        covered = [
            TakenSpan(
                poll.tps[tp],
                records,
                records,
                lowest[tp],
                poll.offsets[last[tp]],
                None if columns.newest_ms[tp] < 0 else columns.newest_ms[tp],
                last[tp],
            )
            for tp, records in Counter(tp_of).items()
        ]
        return TakenRun(
            end - first,
            end - first,
            columns.weight,
            columns.source_bytes,
            columns.fallbacks,
            covered,
            columns.gaps,
            columns.rest,
        )

    def _read(self, poll: Poll, bounds: TakeBounds, rows: Rows, out: _Columns) -> None:
        """Find PartitionKey, time and type of one record after the other."""
        decode, place, type_of, record_bytes_max = self._decode, self._place, self._type_of, self._record_bytes_max
        tp_of, offsets, timestamps_ms, values = poll.tp_of, poll.offsets, poll.timestamps_ms, poll.values
        key_numbers, number_of, with_headers = rows.key_numbers, rows.types.number, poll.with_headers
        next_offsets, newest_ms = out.next_offsets, out.newest_ms
        add_key, add_type, add_time = out.key_of.append, out.type_of.append, out.event_times_us.append
        first, stop, weight_max, bytes_max = bounds
        weight = source_bytes = at = 0

        def whole() -> SourceRecord:
            return poll[at]

        for at in range(first, stop):
            value, tp, offset, timestamp_ms = values[at], tp_of[at], offsets[at], timestamps_ms[at]
            if not value or value[0] != BRACE or offset < next_offsets[tp] or weight >= weight_max:
                break
            size = len(value)
            if size > record_bytes_max or source_bytes + size > bytes_max:
                break
            has_headers = at in with_headers
            if has_headers and with_headers[at] is None:
                break
            try:
                entry = decode(value)
            except FAST_REFUSALS:
                break
            if offset > next_offsets[tp]:
                out.gaps.append((poll.tps[tp], next_offsets[tp], offset))
            next_offsets[tp] = offset + 1
            placed = place(entry, None, timestamp_ms if timestamp_ms >= 0 else None, whole)
            if isinstance(placed, Rejection):
                out.rest = plain(entry, value)
                break
            try:
                entry_type = type_of(entry)
            except (TooDeepError, TooManyFieldsError):
                out.rest = plain(entry, value)
                break
            key, event_time_us, unique_id, is_fallback = placed
            number = key_numbers.get(key)
            add_key(rows.key_number(key) if number is None else number)
            add_type(number_of(entry_type))
            add_time(event_time_us)
            if is_fallback:
                out.fallbacks += 1
            if timestamp_ms > newest_ms[tp]:  # noqa: PLR1730 - faster
                newest_ms[tp] = timestamp_ms
            root = self._root_of(poll[at]) if has_headers else None
            if unique_id is not None or root is not None:
                out.notes.append((len(out.key_of) - 1, unique_id, root))
            weight += 1 + size // KIB
            source_bytes += size
        out.weight, out.source_bytes = weight, source_bytes
