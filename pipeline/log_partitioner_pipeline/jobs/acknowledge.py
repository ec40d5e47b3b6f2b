"""Records that raw objects or messages are lost for good, so that every job passes over them (docs/PIPELINE.md).

It refuses what can be read: an object with the bytes that references name, a message that is one of its kind.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import structlog
from pyspark.sql import functions as F

from log_partitioner.adapters.kafka.topics import KafkaTopics
from log_partitioner.formats.flush_record import decode_backfill_record
from log_partitioner.formats.model import SourceRecord, TopicPartition
from log_partitioner.formats.reference import Checksum
from log_partitioner.proof.audit.store import Address
from log_partitioner_pipeline.acknowledged import Acknowledged, Acknowledgements, LostObject, Messages
from log_partitioner_pipeline.announced import DEAD_LETTERS, FLUSHES, REFERENCES, Announcement
from log_partitioner_pipeline.backfill.ranges import parse_offsets
from log_partitioner_pipeline.errors import PipelineError, RangeError, TableError
from log_partitioner_pipeline.jobs import sentences
from log_partitioner_pipeline.objects import Objects
from log_partitioner_pipeline.retired import RetiredObjects
from log_partitioner_pipeline.session import CATALOG, open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from log_partitioner_pipeline.backfill.ranges import Ranges
    from log_partitioner_pipeline.config import JobSettings


class Losses(NamedTuple):
    """Losses that a person names, with the reason: URLs or keys of objects, messages as JSON."""

    reason: str
    objects: Sequence[str] = ()
    offsets: str | None = None


def run(settings: JobSettings, losses: Losses) -> None:
    """Record what is lost; blocks until it is.

    Raises:
        PipelineError: some of it can be read, or no reference names it; nothing is recorded.
    """
    sys.stdout.write(acknowledge(open_session(settings, name="acknowledge"), settings, losses))


def acknowledge(spark: SparkSession, settings: JobSettings, losses: Losses) -> str:
    """Do it through a session; returns what is said about it.

    Raises:
        PipelineError: see `run`.
    """
    if not losses.objects and losses.offsets is None:
        raise PipelineError("nothing is named: give --object or --offsets")
    messages = [] if losses.offsets is None else find_messages(settings, parse_offsets(losses.offsets))
    objects = [find_object(spark, settings, name) for name in losses.objects]
    lost = Acknowledged(frozenset((one.bucket, one.object) for one in objects), messages)
    acknowledgements = Acknowledgements(spark, settings)
    acknowledgements.record(lost, reason=losses.reason, at_ms=time.time_ns() // 1_000_000)
    structlog.get_logger("acknowledge").info("loss_acknowledged", objects=len(objects), messages=lost.messages)
    return sentences.acknowledged(acknowledgements.name, objects, messages)


def find_object(spark: SparkSession, settings: JobSettings, name: str) -> LostObject:
    """Look for an object, by its URL or its key.

    Raises:
        PipelineError: it is there, or retired, or no reference names it, or S3 does not answer.
    """
    bucket, key, _ = Address.named(name, bucket=settings.worker.s3.bucket)
    url, table = f"s3://{bucket}/{key}", f"{CATALOG}.{settings.pipeline.table.beside(REFERENCES.name)}"
    if not spark.catalog.tableExists(table):
        raise TableError(f"there is no table {table}, which materialize makes: nobody knows what {url} holds")
    is_it = (F.col("location.bucket") == bucket) & (F.col("location.object") == key)
    rows = spark.table(table).where(is_it & F.col("reference_id").isNotNull()).dropDuplicates(["reference_id"])
    found = rows.select("location.*", "entries", "sources").collect()
    if not found:
        raise PipelineError(f"no reference in {table} names {url}")
    retired = RetiredObjects(spark, settings).pin().rows
    if retired is not None and not retired.where((F.col("bucket") == bucket) & (F.col("object") == key)).isEmpty():
        raise PipelineError(f"{url} is retired: the table has its entries")
    stored = Objects(settings.worker.s3).fetch(Address(bucket, key, found[0]["version_id"]))
    said = found[0]
    checksum = Checksum(said["checksum"]["algorithm"], said["checksum"]["value"])
    if stored is not None and not stored.differences(said["size"], checksum, said["etag"]):
        raise PipelineError(f"{url} is there, as references name it: it is not passed over")
    return LostObject(
        bucket,
        key,
        references=len(found),
        entries=sum(row["entries"] for row in found),
        source=_hull(source for row in found for source in row["sources"]),
    )


def _hull(sources: Iterable[Any]) -> Ranges:
    ranges: Ranges = {}
    for one in sources:
        tp, span = TopicPartition(one["topic"], one["partition"]), range(one["min_offset"], one["max_offset"] + 1)
        known = ranges.get(tp, span)
        ranges[tp] = range(min(known.start, span.start), max(known.stop, span.stop))
    return ranges


def find_messages(settings: JobSettings, ranges: Ranges) -> list[Messages]:
    """Look at messages of the topics that workers write to; those before a topic's first offset are lost.

    Raises:
        RangeError: it is another topic, or one of the messages is one of its kind, or not there yet.
        CouldNotTellError: no broker answers.
    """
    return [Messages(tp, span.start, span.stop) for tp, span in _checked(settings, ranges)]


def _checked(settings: JobSettings, ranges: Ranges) -> Iterator[tuple[TopicPartition, range]]:
    kafka = settings.worker.kafka
    kinds: dict[str, Callable[[SourceRecord], bool]] = {
        kind.topic(kafka): _is_of(kind) for kind in (REFERENCES, FLUSHES, DEAD_LETTERS)
    }
    kinds[kafka.backfills_topic] = _is_run_record
    with KafkaTopics.of(kafka) as topics:
        for tp, span in ranges.items():
            if tp.topic not in kinds:
                raise RangeError(f"{tp.topic} is none of {', '.join(kinds)}")
            first, end = topics.ends(tp)
            if span.stop > end:
                raise RangeError(f"{tp} ends at {end}, before {span.stop}")
            for message in topics.read({tp: (max(first, span.start), max(first, span.stop))}):
                if kinds[tp.topic](message):
                    raise RangeError(f"{tp} offset {message.offset} can be read: it is not passed over")
            yield tp, span


def _is_of(kind: Announcement) -> Callable[[SourceRecord], bool]:
    return lambda message: any(value is not None for row in kind.rows_of(message) for value in row.values())


def _is_run_record(message: SourceRecord) -> bool:
    try:
        decode_backfill_record(message.value or b"")
    except msgspec.DecodeError:
        return False
    return True
