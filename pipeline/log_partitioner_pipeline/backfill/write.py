"""Pieces -> rows -> objects -> the messages that announce them, kept as parts of the outbox. On the executors.

Goes through sorted pieces: those of one PartitionKey stand together, in the order of their offsets, so that the lines
that announce them do, too. Every attempt of a task writes objects of its own, so that a killed attempt leaves only
objects that nobody names.

A reference is identified by batch id and number. The numbers of a task begin at its own number times `LINES_MAX`, in
all attempts alike. The outbox has the parts of one attempt of each task, whichever finished, and only the outbox is
published.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count, groupby, islice
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from log_partitioner.avro.schema import RowSchema
from log_partitioner.batch.fast_lane import is_fast
from log_partitioner.batch.messages import (
    Sender,
    UploadedObject,
    check_references,
    dead_letter_message,
    key_of,
    object_metadata,
    reference_messages,
    rows_in,
    split_letter,
    stored_apart,
    stored_object,
)
from log_partitioner.batch.pack_plan import seal_rules
from log_partitioner.batch.rows import Rows
from log_partitioner.batch.seal import SealedObject, seal
from log_partitioner.batch.types import make_types
from log_partitioner.formats.dead_letter import DeadLetter, Reason
from log_partitioner.formats.model import PartitionKey
from log_partitioner.formats.object_key import schema_key
from log_partitioner.partitioning.chain import root_of
from log_partitioner.partitioning.partitioner import Placement
from log_partitioner_pipeline.backfill.memory_spool import MemorySpool
from log_partitioner_pipeline.backfill.outbox import OutboxMessage, encode_part, part_key
from log_partitioner_pipeline.backfill.split import rules_of
from log_partitioner_pipeline.frames import Row, struct
from log_partitioner_pipeline.kafka import record_of
from log_partitioner_pipeline.objects import THREADS, Objects

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from log_partitioner.config.settings import Settings
    from log_partitioner_pipeline.backfill.outbox import Run

PART_MESSAGES_MAX = 1000  # in one object of the outbox
TRANSACTION_BYTES_MAX = 32 * 1024 * 1024  # beyond its first message
WORKER = "backfill"
GENERATION = 0
LINES_MAX = 2**32  # of one task; the numbers of two million tasks are exact in a double
PART = struct(key=T.StringType(), messages=T.IntegerType(), sha256=T.StringType())
_KEY = ("date", "hour", "user")  # in the order of packs


def written(pieces: DataFrame, run: Run, settings: Settings, *, tasks: int) -> DataFrame:
    """Write everything when it is collected; returns the parts of the outbox, in the order to publish them."""
    write = partial(_write_batches, run=run, settings=settings, part_messages_max=PART_MESSAGES_MAX)
    # Dead pieces have no user: they are spread by their record.
    spread = F.when(F.col("user").isNull(), F.hash("topic", "partition", "offset"))
    sorted_pieces = pieces.repartition(tasks, *_KEY, spread).sortWithinPartitions(
        *_KEY, "topic", "partition", "offset", "reason"
    )
    return sorted_pieces.mapInArrow(write, PART)


def sender_of(run: Run, settings: Settings) -> Sender:
    """Return the sender of a backfill's messages."""
    topics = {"references_topic": run.references_topic, "dead_letters_topic": run.dead_letters_topic}
    return Sender(WORKER, run.run_id, settings.kafka.model_copy(update=topics), settings.s3.bucket)


def _write_batches(
    batches: Iterable[pa.RecordBatch], *, run: Run, settings: Settings, part_messages_max: int
) -> Iterator[pa.RecordBatch]:
    context, schema = TaskContext.get(), to_arrow_schema(PART)
    assert context is not None, "this is a task"
    rows = (row for batch in batches for row in batch.to_pylist())
    with ThreadPoolExecutor(THREADS, thread_name_prefix="backfill") as pool:
        writer = Writer(run, settings, pool, task=context.partitionId())
        for number, messages in enumerate(_parts(writer.write(rows), messages_max=part_messages_max)):
            yield pa.RecordBatch.from_pylist([writer.keep(messages, number)], schema)


def _parts(
    messages: Iterable[OutboxMessage], *, messages_max: int, bytes_max: int = TRANSACTION_BYTES_MAX
) -> Iterator[list[OutboxMessage]]:
    """Cut messages into parts of the outbox: none is much larger than a transaction."""
    part: list[OutboxMessage] = []
    size = 0
    for announced in messages:
        part.append(announced)
        size += announced.size
        if len(part) >= messages_max or size >= bytes_max:
            yield part
            part, size = [], 0
    if part:
        yield part


class Writer:
    """Writes the pieces of one attempt of a task."""

    def __init__(self, run: Run, settings: Settings, pool: ThreadPoolExecutor, *, task: int) -> None:
        self._run = run
        self._settings = settings
        self._pool = pool
        self._rules = rules_of(settings)
        self._seal_rules = seal_rules(settings)
        self._is_fast = is_fast(settings)
        self._objects = Objects(settings.s3)
        self._sender = sender_of(run, settings)
        self._attempt = f"{run.batch_id}-{secrets.token_hex(4)}"
        self._spans = {tp: (span.start, span.stop) for tp, span in run.ranges.items()}
        self._numbers = count()  # of objects
        self._next_line = task * LINES_MAX
        self._schemas: set[str] = set()

    def write(self, pieces: Iterable[Row]) -> Iterator[OutboxMessage]:
        """Upload everything, some objects at once; yields the messages in the order of the pieces.

        Raises:
            ObjectError: S3 refuses or does not answer.
        """
        for is_dead, some in groupby(pieces, lambda piece: piece["user"] is None):
            make = self._reject_all if is_dead else self._write_all
            yield from make(some)

    def keep(self, messages: list[OutboxMessage], number: int) -> Row:
        """Keep messages as a part of the outbox; returns its row."""
        body = encode_part(messages)
        key = part_key(self._settings.s3.prefix, self._run.run_id, f"{self._attempt}-{number}")
        self._objects.create(self._settings.s3.bucket, key, body, {"lp-batch-id": self._run.batch_id})
        return {"key": key, "messages": len(messages), "sha256": hashlib.sha256(body).hexdigest()}

    def _write_all(self, pieces: Iterable[Row]) -> Iterator[OutboxMessage]:
        """Gather rows while memory has room for them, then make objects of them."""
        rows = self._no_rows()
        for piece in pieces:
            self._add(piece, rows)
            if rows.memory_bytes + rows.fixed_bytes > self._settings.spool.memory_bytes_max:
                yield from self._seal(rows)
                rows = self._no_rows()
        if len(rows):
            yield from self._seal(rows)

    def _no_rows(self) -> Rows:
        return Rows(make_types(self._settings.schema_bounds, is_fast=self._is_fast))

    def _add(self, piece: Row, rows: Rows) -> None:
        """Add the entries of a piece: the recorder's steps."""
        record, key = record_of(piece), PartitionKey(piece["user"], piece["date"], piece["hour"])
        _, decoder, partitioner = self._rules.by_topic[record.tp.topic]
        decoded = decoder.decode(record.value, record.headers)
        entries = {one[0]: one for one in decoded.entries}
        root = root_of(record)
        for index in piece["indexes"]:
            _, entry, text, around = entries[index]
            placed = partitioner.partition(entry, around, record)
            assert isinstance(placed, Placement), f"{record.tp} {record.offset} {index} had a place, now: {placed}"
            assert placed.key == key, f"{record.tp} {record.offset} {index}: {placed.key} was {key}"
            number = rows.add(record, index, key, self._rules.types.of(entry), text, placed.event_time_us)
            rows.note(number, unique_id=placed.unique_id, root=root)

    def _seal(self, rows: Rows) -> Iterator[OutboxMessage]:
        """Write rows into objects, upload each as soon as it is finished, and announce all."""
        run, spool = self._run, MemorySpool()
        sealing = seal(rows, spool, self._spans, self._seal_rules, batch_id=run.batch_id)
        finished = (one._replace(number=next(self._numbers)) for _, one in sealing if one is not None)
        uploaded = list(self._pool.map(partial(self._upload, spool), finished))  # submits while `finished` goes on
        written = rows_in(one.sealed for one in uploaded).total()
        assert written == len(rows), f"W3: {written} entries are in objects, {len(rows)} should be"
        first, self._next_line = self._next_line, self._next_line + sum(one.sealed.references for one in uploaded)
        messages = list(
            reference_messages(
                uploaded,
                self._sender,
                batch_id=run.batch_id,
                generation=GENERATION,
                at_ms=run.started_at_ms,
                first_number=first,
            )
        )
        check_references((one.sealed for one in uploaded), messages)
        yield from map(OutboxMessage.of, messages)

    def _upload(self, spool: MemorySpool, sealed: SealedObject) -> UploadedObject:
        s3, schema = self._settings.s3, sealed.schema
        metadata = object_metadata(sealed, batch_id=self._run.batch_id)
        key = key_of(sealed, s3.prefix, batch_id=self._attempt, attempt=0)
        stored = self._objects.create(s3.bucket, key, spool.load(sealed.file), metadata)
        # A task does not know how many messages there will be: none carries the text of a schema.
        return UploadedObject(sealed, stored, self._upload_schema(schema), inline=False)

    def _upload_schema(self, schema: RowSchema) -> str:
        """Make sure that the object of a schema is there; returns its key."""
        s3 = self._settings.s3
        key = schema_key(s3.prefix, schema.fingerprint)
        if schema.fingerprint not in self._schemas:
            self._objects.create(s3.bucket, key, schema.text.encode(), {})
            self._schemas.add(schema.fingerprint)
        return key

    def _reject_all(self, pieces: Iterable[Row]) -> Iterator[OutboxMessage]:
        """Make dead letters, some at once: pieces carry whole records, of which memory holds only a few."""
        pieces = iter(pieces)
        while some := list(islice(pieces, THREADS)):
            for letters in self._pool.map(self._reject, some):
                yield from letters

    def _reject(self, piece: Row) -> list[OutboxMessage]:
        """Make the dead letters of a piece: several if its indexes are too many for one."""
        indexes = None if piece["indexes"] is None else tuple(piece["indexes"])
        record, of_entries = record_of(piece), piece["of_entries"]
        letter = DeadLetter(record, Reason(piece["reason"]), piece["message"], indexes, of_entries=of_entries)
        letters = split_letter(letter, message_bytes_max=self._settings.kafka.message_bytes_max)
        return [self._letter(one) for one in letters]

    def _letter(self, letter: DeadLetter) -> OutboxMessage:
        s3, batch_id = self._settings.s3, self._run.batch_id
        object_key = None
        apart = stored_apart(letter, message_bytes_max=self._settings.kafka.message_bytes_max)
        if apart is not None:
            object_key, body = stored_object(
                letter.record, apart, prefix=s3.prefix, batch_id=self._attempt, number=next(self._numbers)
            )
            self._objects.create(s3.bucket, object_key, body, {"lp-batch-id": batch_id})
        return OutboxMessage.of(dead_letter_message(letter, self._sender, batch_id=batch_id, object_key=object_key))
