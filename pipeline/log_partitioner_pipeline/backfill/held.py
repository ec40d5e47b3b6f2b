"""The entries that are held already: those of committed references and dead letters within the ranges, as Spark frames.

The end offsets of the topics are asked for only once the ranges are known to be committed; so everything that the group
has published of the ranges is read. References alone do not tell which entries they hold: the rows of their objects do,
and rows of the table if the objects are retired.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial, reduce
from itertools import groupby
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from log_partitioner.adapters.kafka.topics import KafkaTopics
from log_partitioner.avro.schema import META
from log_partitioner.formats.dead_letter import HEADER_REASON, Reason, parse_headers
from log_partitioner.formats.flush_record import FlushedTopicPartition, FlushRecord, decode_flushes
from log_partitioner.formats.model import SourceRecord, TopicPartition
from log_partitioner.formats.replay import is_replay_mark
from log_partitioner.proof.accounting import tp_of
from log_partitioner.proof.audit.put_away import Claim, find_put_away
from log_partitioner.proof.oracle.chain import WaysPassed
from log_partitioner.proof.oracle.judge import Judge
from log_partitioner_pipeline.backfill.ranges import Ranges
from log_partitioner_pipeline.backfill.retired import intersecting, places_of_retired
from log_partitioner_pipeline.errors import BrokerError, PipelineError, RangeError
from log_partitioner_pipeline.frames import ENTRY, struct
from log_partitioner_pipeline.kafka import read_messages
from log_partitioner_pipeline.objects import Objects
from log_partitioner_pipeline.pieces import pieces_of
from log_partitioner_pipeline.reference_rows import REFERENCE, reference_of, references
from log_partitioner_pipeline.references import unknown_message
from log_partitioner_pipeline.rows import Container
from log_partitioner_pipeline.topic_log import acknowledging
from log_partitioner_pipeline.whose import of_history

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from log_partitioner.config.s3_settings import S3Settings
    from log_partitioner.formats.flush_record import Lineage
    from log_partitioner.formats.reference import Reference
    from log_partitioner_pipeline.acknowledged import Acknowledged
    from log_partitioner_pipeline.backfill.outbox import Run
    from log_partitioner_pipeline.config import JobSettings
    from log_partitioner_pipeline.retired import RetiredSnapshot

WHOLE = -1
"""The index that stands for a record that could not be split, and is dead as a whole."""

_PLACE = struct(**ENTRY)
_ARROW_PLACE = to_arrow_schema(_PLACE)
_OBJECT = ("location.bucket", "location.object")

Place = tuple[str, int, int, int]


def settled_ends(topics: KafkaTopics, topic: str, *, may_lack_beginning: bool) -> dict[int, int]:
    """Ask for the end offsets that include everything committed before now; blocks for open transactions.

    Raises:
        RangeError: its beginning was deleted, so that the messages that held entries there are unknown.
        BrokerError, CouldNotTellError: a transaction stays open, or no broker answers.
    """
    ends, open_ones = topics.settled(topics.topic_partitions(topic))
    if open_ones:
        raise BrokerError("; ".join(open_ones))
    for tp, (first, _) in ends.items():
        if first > 0 and not may_lack_beginning:
            raise RangeError(
                f"{tp} begins at offset {first}: what its deleted messages held cannot be told. "
                "PIPELINE_BACKFILL__ASSUME_FORGOTTEN_UNHELD=true takes it as held by none."
            )
    return {tp.partition: end.next for tp, end in ends.items()}


class HeldEntries:
    """Finds what committed messages hold of the ranges of a run, as frames, up to the ends where it has looked."""

    def __init__(
        self, spark: SparkSession, settings: JobSettings, run: Run, lineage: Lineage, acknowledged: Acknowledged
    ) -> None:
        self._spark = spark
        self._settings = settings
        self._kafka = settings.worker.kafka
        self._run = run
        self._lineage = lineage
        self._acknowledged = acknowledged

    def by_record(self, retired: RetiredSnapshot) -> DataFrame:
        """Return topic, partition and offset of records, and in `held` the indexes of their entries that are held."""
        places = self.in_references(retired).unionByName(self._in_dead_letters()).unionByName(self._discarded_replays())
        return places.groupBy("topic", "partition", "offset").agg(F.collect_set("index").alias("held"))

    def in_references(self, retired: RetiredSnapshot) -> DataFrame:
        """Return the entries that committed references hold: columns of a place.

        The entries are read from objects, or from the table if an object is `retired`. An object that retires later is
        either still readable or missing, which is an error; so no entry is overlooked. The entries of
        an object whose loss is acknowledged are not held.

        Raises:
            RangeError: the table lacks entries of a retired object.
            PipelineError: a message of references cannot be read, and is not acknowledged.
        """
        spark, topic, ranges = self._spark, self._kafka.references_topic, self._run.ranges
        messages = self._read_to(topic, self._run.reference_ends)
        found = references(messages, keep=lambda frame: frame.persist(StorageLevel.DISK_ONLY))
        for partition, offset in found.unreadable.select("message_partition", "message_offset").collect():
            tp = TopicPartition(topic, partition)
            if not self._acknowledged.has_message(tp, offset):
                raise unknown_message(tp, offset, "it cannot be decoded")
        ours = of_history(self._acknowledged.without(found.every), self._lineage, "sources")
        wanted = retired.mark(intersecting(spark, ours, ranges))
        in_objects = (
            wanted.where(~F.col("retired"))
            .select(*REFERENCE.names)
            .repartition(spark.sparkContext.defaultParallelism, *_OBJECT)
            .sortWithinPartitions(*_OBJECT, "start")
        )
        read = partial(_places_in_objects, ranges=ranges, s3=self._settings.worker.s3)
        held = in_objects.mapInArrow(read, _PLACE)
        without = wanted.where("retired")
        if without.isEmpty():
            return held
        return held.unionByName(places_of_retired(spark, self._settings, without, ranges))

    def _in_dead_letters(self) -> DataFrame:
        """Return the entries that committed dead letters name: columns of a place."""
        topic = self._kafka.dead_letters_topic
        messages = self._read_to(topic, self._run.dead_letter_ends).select("partition", "offset", "headers")
        places = partial(
            _places_in_headers,
            topic=topic,
            ranges=self._run.ranges,
            lineage=self._lineage,
            acknowledged=self._acknowledged,
        )
        return messages.mapInArrow(places, _PLACE)

    def _discarded_replays(self) -> DataFrame:
        """Return the records that flushes have discarded as replays (DESIGN 3.8): whole, as if held.

        The driver decides each again, as audits do; it reads all flush records, and the source where one had replays.

        Raises:
            RangeError: a flush record cannot be read, and is not acknowledged.
        """
        ranges, judge = self._run.ranges, Judge(self._settings.worker)
        found: list[Place] = []
        with KafkaTopics.of(self._kafka) as topics:
            ends, _ = topics.settled(topics.topic_partitions(self._kafka.flushes_topic))
            lines = [
                line
                for message in topics.read(ends)
                for line in _lines_with_replays(message, self._lineage, self._acknowledged)
            ]
            for line in lines:
                tp, span, passed = tp_of(line), (line.first_offset, line.next_offset), WaysPassed(line.first_ways or {})
                wanted = ranges.get(tp, range(0))
                if span[0] >= wanted.stop or wanted.start >= span[1]:
                    continue
                for record in topics.read({tp: span}):
                    place = judge.place_of(record)
                    if place is not None and passed.is_replay(place) and record.offset in wanted:
                        found.append((*tp, record.offset, WHOLE))
        return self._spark.createDataFrame(found, _PLACE)

    def source(self) -> DataFrame:
        """Read the source records of the ranges, around those that a person has skipped."""
        spans = {tp: (span.start, span.stop) for tp, span in self._run.ranges.items()}
        letters = self._read_to(self._kafka.dead_letters_topic, self._run.dead_letter_ends)
        reason = F.expr(f"try_element_at(filter(headers, one -> one.key = '{HEADER_REASON}'), -1).value")
        rows = letters.where(reason == F.lit(Reason.SKIPPED.encode())).select("headers").collect()
        says = [parse_headers([(header["key"], header["value"]) for header in row["headers"]]) for row in rows]
        put_away = find_put_away(
            Claim(one.tp, one.offset, one.end_offset, one.reason)
            for one in says
            if self._lineage.has(one.group_id, *one.tp, one.next_offset)
        )
        pieces = [read_messages(self._spark, self._kafka, some) for _, some in put_away.around(spans)]
        return reduce(DataFrame.unionByName, pieces)

    def _read_to(self, topic: str, ends: dict[int, int]) -> DataFrame:
        """Read a topic up to these ends from offset 0, or from its first message if deleted ones are assumed empty.

        Fails if something of that is deleted before it is read.
        """
        tps = [TopicPartition(topic, number) for number in ends]
        firsts = dict.fromkeys(tps, 0)
        if self._settings.pipeline.backfill.assume_forgotten_unheld:
            with KafkaTopics.of(self._kafka) as topics:
                firsts = {tp: topics.ends(tp).first for tp in tps}
        return read_messages(self._spark, self._kafka, {tp: (firsts[tp], ends[tp.partition]) for tp in tps})


def _lines_with_replays(
    message: SourceRecord, lineage: Lineage, acknowledged: Acknowledged
) -> Iterator[FlushedTopicPartition]:
    try:
        record = decode_flushes(message.value or b"")
    except msgspec.DecodeError as error:
        if acknowledged.has_message(message.tp, message.offset):
            return
        raise RangeError(
            f"message {message.offset} of {message.tp} is no flush record that this code knows: "
            f"{acknowledging(message.tp.topic, {message.tp.partition: (message.offset, message.offset + 1)})}"
        ) from error
    if isinstance(record, FlushRecord):
        for line in record.topic_partitions:
            if line.discarded_replays and lineage.has(record.group_id, *tp_of(line), line.next_offset):
                yield line


def intersects(reference: Reference, ranges: Ranges) -> bool:
    """Return whether a reference may hold entries of these ranges."""
    for source in reference.sources:
        span = ranges.get(tp_of(source))
        if span is not None and source.min_offset < span.stop and source.max_offset >= span.start:
            return True
    return False


def _places_in_objects(
    batches: Iterable[pa.RecordBatch], *, ranges: Ranges, s3: S3Settings
) -> Iterator[pa.RecordBatch]:
    """References, those of one object together -> the places of their rows; each object is fetched once."""
    rows = (row for batch in batches for row in batch.to_pylist())
    groups = groupby(rows, key=lambda row: (row["location"]["bucket"], row["location"]["object"]))
    pieces = (piece for _, group in groups for piece in pieces_of(map(reference_of, group)))
    for piece, content in Objects(s3).read_ahead(pieces):
        container = Container(content, piece.where)
        for part in piece.parts:
            places = (_place_of_row(row) for block in container.blocks_of(part) for row in block.rows)
            yield _batch_of(places, ranges)


def _place_of_row(row: dict[str, Any]) -> Place:
    meta = row[META]
    return meta["topic"], meta["partition"], meta["offset"], meta["index"]


def _places_in_headers(
    batches: Iterable[pa.RecordBatch], *, topic: str, ranges: Ranges, lineage: Lineage, acknowledged: Acknowledged
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        letters = (
            row
            for row in batch.to_pylist()
            if not acknowledged.has_message(TopicPartition(topic, row["partition"]), row["offset"])
        )
        places = (place for row in letters for place in _places_of_letter(row, lineage))
        yield _batch_of(places, ranges)


def _places_of_letter(row: dict[str, Any], lineage: Lineage) -> Iterator[Place]:
    pairs = [(header["key"], header["value"]) for header in row["headers"] or ()]
    if is_replay_mark(pairs):
        return
    try:
        says = parse_headers(pairs)
    except ValueError as error:
        at = f"{row['partition']}/{row['offset']}"
        raise PipelineError(
            f"message {at} of the dead-letters topic has headers that are not ours: {error!r}"
        ) from error
    if not lineage.has(says.group_id, *says.tp, says.next_offset):
        return
    for index in (WHOLE,) if says.indexes is None else says.indexes:
        yield says.topic, says.partition, says.offset, index


def _batch_of(places: Iterable[Place], ranges: Ranges) -> pa.RecordBatch:
    nowhere = range(0)
    inside = [place for place in places if place[2] in ranges.get(TopicPartition(place[0], place[1]), nowhere)]
    columns = list(zip(*inside, strict=True)) or [(), (), (), ()]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _ARROW_PLACE, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW_PLACE)
