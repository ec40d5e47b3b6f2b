"""References, flush records and dead letters as tables beside the one of entries.

materialize keeps them, a row for each line of a message, with the offsets of their topics in their snapshots. They
answer by predicate what a topic answers only by being read as a whole, and keep what its retention takes. A message
of another kind is a row that has its place alone. Values of dead letters, which hold the logs of users, stay where
they are: a row has the digest of the record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from functools import reduce
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from log_partitioner.formats.dead_letter import own_headers, parse_headers
from log_partitioner.formats.flush_record import Adoption, decode_flushes
from log_partitioner.formats.model import SourceRecord, TopicPartition
from log_partitioner.formats.replay import is_replay_mark
from log_partitioner.proof.oracle.judge import record_digest, value_digest
from log_partitioner_pipeline.acknowledged import Acknowledged
from log_partitioner_pipeline.columns import Kind, ListOf, Struct, longs, strings, struct_of
from log_partitioner_pipeline.kafka import partition_ends
from log_partitioner_pipeline.parquet import read_columns, write_rows
from log_partitioner_pipeline.reference_rows import LINE, lines_of, reference_of
from log_partitioner_pipeline.references import block_bytes, time_spans, unknown_message
from log_partitioner_pipeline.rows import arrow_schema
from log_partitioner_pipeline.table import Form, Table
from log_partitioner_pipeline.topic_log import Bounds, Items, cut, lost_ranges, read_slices, require_unbroken

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from log_partitioner.adapters.kafka.topics import Ends
    from log_partitioner.config.settings import KafkaSettings
    from log_partitioner.formats.reference import Reference
    from log_partitioner_pipeline.config import JobSettings
    from log_partitioner_pipeline.topic_log import Offsets, Slice

Row = dict[str, Any]

ANNOUNCED_AT = "announced_at"
_PLACE = "message_partition", "message_offset"
_EVENT_TIMES = "event_time_min", "event_time_max"
_BOUNDS = Bounds(items_max=50_000, bytes_max=64 * 1024 * 1024)
NOTHING = Acknowledged()
_TIME_US_MAX = 253_402_300_799_999_999  # the year 9999, beyond which Spark shows nothing


class Announcement(NamedTuple):
    """A kind of message, and the rows that stand for one; `name` is its table's, settings tell its `topic`."""

    name: str
    topic: Callable[[KafkaSettings], str]
    columns: Struct
    rows_of: Callable[[SourceRecord], Iterable[Row]]


_TP: dict[str, Kind] = {"topic": "string", "partition": "int"}
_AT: dict[str, Kind] = {_PLACE[0]: "int", _PLACE[1]: "long", ANNOUNCED_AT: "timestamptz"}


_FLUSHED = struct_of(
    **_TP,
    **longs("first_offset", "next_offset", "min_offset", "max_offset", "timestamp_max_ms", "idle_since_ms"),
    **longs("records", "entries", "dead_letters"),
)
_TOTALS = struct_of(
    **longs("records", "entries", "entries_in_files", "dead_letters", "dead_letter_records", "references", "bytes")
)


def _reference_rows(message: SourceRecord) -> Iterator[Row]:
    for line in lines_of(message.key, message.value):
        yield {name.removesuffix("_us"): value for name, value in line.items()}


def _flush_rows(message: SourceRecord) -> Iterator[Row]:
    try:
        record = decode_flushes(message.value or b"")
    except msgspec.DecodeError:
        yield {}
        return
    row = msgspec.to_builtins(record)
    if not isinstance(record, Adoption):
        row |= {"started_at": 1000 * record.started_at_ms, "ended_at": 1000 * record.ended_at_ms}
        if record.part > 1:
            del row["totals"]  # each part has those of the whole, and a sum over rows would have them several times
    yield row


def _letter_rows(message: SourceRecord) -> Iterator[Row]:
    if is_replay_mark(message.headers):
        return
    try:
        says = parse_headers(message.headers)
    except ValueError:
        yield {}
        return
    own = own_headers(message.headers)
    digest = record_digest(value=value_digest(message.value), key=message.key, headers=own)
    yield msgspec.structs.asdict(says) | {
        "indexes": says.indexes,
        "recorded_at": None if says.timestamp_ms is None else 1000 * says.timestamp_ms,
        "record_digest": digest if says.object_key is None else None,
    }


REFERENCES = Announcement(
    "references",
    attrgetter("references_topic"),
    struct_of(
        **_AT,
        **{name.removesuffix("_us"): "timestamptz" if name.endswith("_us") else kind for name, kind in LINE.items()},
    ),
    _reference_rows,
)
FLUSHES = Announcement(
    "flushes",
    attrgetter("flushes_topic"),
    struct_of(
        **_AT,
        batch_id="string",
        part="int",
        parts="int",
        **strings("group_id", "from_group", "worker", "boot"),
        **longs("seq", "generation"),
        reason="string",
        started_at="timestamptz",
        ended_at="timestamptz",
        topic_partitions=ListOf(_FLUSHED),
        totals=_TOTALS,
    ),
    _flush_rows,
)
DEAD_LETTERS = Announcement(
    "dead_letters",
    attrgetter("dead_letters_topic"),
    struct_of(
        **_AT,
        **strings("reason", "message"),
        **_TP,
        **longs("offset", "end_offset"),
        indexes=ListOf("int"),
        **strings("batch_id", "group_id"),
        recorded_at="timestamptz",
        object_key="string",
        record_digest="binary",
    ),
    _letter_rows,
)


def table_names(settings: JobSettings) -> list[str]:
    """Return the names of all these tables: they stand in the namespace of the table of entries."""
    return [_name_of(settings, kind) for kind in (REFERENCES, FLUSHES, DEAD_LETTERS)]


def _name_of(settings: JobSettings, kind: Announcement) -> str:
    return settings.pipeline.table.beside(kind.name)


class AnnouncedTable(Table):
    """The table of one kind of announcement, kept up by one driver at a time."""

    def __init__(self, spark: SparkSession, settings: JobSettings, kind: Announcement) -> None:
        self._kafka, self._s3 = settings.worker.kafka, settings.worker.s3
        form = Form(kind.columns, ANNOUNCED_AT, "days", _PLACE)
        super().__init__(spark, _name_of(settings, kind), topic=kind.topic(self._kafka), form=form)
        self._rows_of = kind.rows_of

    def catch_up(self, ends: dict[int, Ends] | None = None, *, acknowledged: Acknowledged = NOTHING) -> int:
        """Bring the table to these ends of its topic, or to its present ends; returns how many rows are new.

        Blocks until they are there.

        Raises:
            PipelineError: messages are gone that were not read, it is another topic, or another driver has gone on.
            CouldNotTellError: no broker answers.
        """
        topic, kafka = self.topic, self._kafka
        self.ensure()
        self.require_same_topic(kafka)
        ends = partition_ends(kafka, topic) if ends is None else ends
        reached = self.position().offsets
        begin = acknowledged.beyond_lost(topic, reached, ends)
        require_unbroken(begin, ends, topic)
        target = self.target()
        schema, count = arrow_schema(target.fields), 0
        for rows, offsets in read_slices(kafka, topic, begin, ends, take=self._rows, bounds=_BOUNDS):
            files = write_rows(pa.Table.from_pylist(rows, schema).to_batches(), target, s3=self._s3)
            self.append(files, base=reached, offsets=offsets, rows=len(rows))
            reached, count = offsets, count + len(rows)
        return count

    def _rows(self, message: SourceRecord) -> Items[Row]:
        time_us = min(1000 * max(0, message.timestamp_ms or 0), _TIME_US_MAX)
        at = dict(zip((*_PLACE, ANNOUNCED_AT), (message.tp.partition, message.offset, time_us), strict=True))
        return Items([at | row for row in self._rows_of(message)], message.size)

    def known(self, offsets: Offsets, ends: dict[int, Ends]) -> dict[int, Ends]:
        """Return these ends with the first offsets that topic and table have together; the table has reached the ends.

        The table is asked only if the topic has lost messages behind these offsets.
        """
        if not lost_ranges(offsets, ends):
            return ends
        of_table = f"SELECT {_PLACE[0]}, min({_PLACE[1]}) FROM {self.name} GROUP BY {_PLACE[0]}"
        first = dict(map(tuple, self.spark.sql(of_table).collect()))
        return {n: end._replace(first=min(end.first, first.get(n, end.first))) for n, end in ends.items()}

    def lost_slices(
        self, offsets: Offsets, ends: dict[int, Ends], *, acknowledged: Acknowledged, bounds: Bounds
    ) -> Iterator[Slice[Reference]]:
        """Read the references that the topic has lost behind these offsets, as `read_slices` does; this is their table.

        Raises:
            PipelineError: a message was none of references in a known version, and is not acknowledged.
        """
        lost = lost_ranges(offsets, ends)
        if not lost:
            return
        starts, stops = {n: first for n, (first, _) in lost.items()}, {n: after for n, (_, after) in lost.items()}
        ranges = [f"{_PLACE[0]} = {n} AND {_PLACE[1]} >= {starts[n]} AND {_PLACE[1]} < {stops[n]}" for n in lost]
        times = ", ".join(f"unix_micros({name}) AS {name}_us" for name in _EVENT_TIMES)
        rows = self.spark.sql(
            f"SELECT *, {times} FROM {self.name} WHERE {' OR '.join(ranges)} ORDER BY {', '.join(_PLACE)}, line"
        )
        lines = (row.asDict(recursive=True) for row in rows.toLocalIterator())
        known = (list(some) for _, some in groupby(lines, itemgetter(*_PLACE)))
        messages = (_message_of(self.topic, some, acknowledged) for some in known)
        yield from cut(messages, offsets | starts, stops, take=_items_of, bounds=bounds)

    def announced_before(self, references: list[Reference], offsets: Offsets) -> set[str]:
        """Return the ids of references that messages before these offsets announced, too; this is their table.

        Reads the files that may have rows of the times of the references' entries.
        """
        ids = pa.array([one.reference_id for one in references])
        files = self.files_with(_within(time_spans(references))) if references and any(offsets.values()) else []
        found: set[str] = set()
        for rows in read_columns(files, ["reference_id", *_PLACE], s3=self._s3):
            theirs = rows.filter(pc.is_in(rows["reference_id"], ids)).to_pylist()
            found |= {row["reference_id"] for row in theirs if row[_PLACE[1]] < offsets.get(row[_PLACE[0]], 0)}
        return found


class _Announced(NamedTuple):
    tp: TopicPartition
    offset: int
    references: list[Reference]


def _message_of(topic: str, lines: list[Row], acknowledged: Acknowledged) -> _Announced:
    partition, offset = (lines[0][name] for name in _PLACE)
    tp = TopicPartition(topic, partition)
    if lines[0]["is_keyed"] is None and not acknowledged.has_message(tp, offset):
        raise unknown_message(tp, offset, "it is a row of its place alone")
    return _Announced(tp, offset, [reference_of(line) for line in lines if line["reference_id"] is not None])


def _items_of(message: _Announced) -> Items[Reference]:
    return Items(message.references, block_bytes(message.references))


def _within(spans: Iterable[tuple[int, int]]) -> dict[str, Any]:
    """Make Iceberg's expression for rows whose first entry's time, in microseconds, is within one of these spans."""
    bounds = [
        {
            "type": "and",
            "left": {"type": "gt-eq", "term": "event_time_min", "value": _moment(first)},
            "right": {"type": "lt-eq", "term": "event_time_min", "value": _moment(last)},
        }
        for first, last in spans
    ]
    return reduce(lambda left, right: {"type": "or", "left": left, "right": right}, bounds)


def _moment(time_us: int) -> str:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time_us)).isoformat()
