"""Pieces -> files -> objects -> the messages that announce them, kept as parts of the outbox. On the executors.

Goes through sorted pieces: those of one PartitionKey stand together, in the order of their offsets. Every attempt of a
task writes objects of its own, so that one that was killed leaves nothing but objects that nobody names.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from pipeline.backfill.outbox import Announced, encode_part, part_key
from pipeline.backfill.split import Rules, record_of, rules_of
from pipeline.objects import Objects
from service.core.announcements import (
    SchemaPlace,
    Speaker,
    Uploaded,
    dead_letter_message,
    fitting_reference,
    is_oversized,
    object_metadata,
    reference_message,
    stored_letter,
)
from service.core.avro_schema import row_schema
from service.core.batch import Batch, Ledger
from service.core.chain import root_of
from service.core.container import SYNC_BYTES
from service.core.dead_letter import DeadLetter, Reason
from service.core.exchange import SealedFile
from service.core.model import PartitionKey, SourceRecord
from service.core.object_key import data_key, schema_key
from service.core.partition_file import PartitionFile, SchemaFullError
from service.core.partition_key import Placed
from service.core.row_meta import encode_id, encode_meta, encode_origin, encode_rest, encode_user

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from pipeline.backfill.outbox import Run
    from pipeline.config import BackfillSettings
    from service.config import Settings

WORKER = "backfill"
GENERATION = 0
PART = T.StructType(
    [
        T.StructField("key", T.StringType()),
        T.StructField("messages", T.IntegerType()),
        T.StructField("sha256", T.StringType()),
    ]
)
_KEY = ("user", "date", "hour")

Row = dict[str, Any]


def written(pieces: DataFrame, run: Run, settings: Settings, backfill: BackfillSettings, *, tasks: int) -> DataFrame:
    """Write everything when it is collected; gives the parts of the outbox, in the order to publish them."""
    # Dead pieces have no user: they are spread by their record.
    spread = F.when(F.col("user").isNull(), F.hash("topic", "partition", "offset"))
    sorted_pieces = pieces.repartition(tasks, *_KEY, spread).sortWithinPartitions(
        *_KEY, "topic", "partition", "offset", "reason"
    )
    return sorted_pieces.mapInArrow(partial(_write_batches, run=run, settings=settings, backfill=backfill), PART)


def speaker_of(run: Run, settings: Settings) -> Speaker:
    """Say who speaks in a backfill's messages."""
    kafka = settings.kafka
    return Speaker(
        worker=WORKER,
        boot=run.run_id,
        group_id=kafka.group_id,
        bucket=settings.s3.bucket,
        references_topic=run.references_topic,
        flushes_topic=kafka.flushes_topic,
        dead_letters_topic=run.dead_letters_topic,
    )


def _write_batches(
    batches: Iterable[pa.RecordBatch], *, run: Run, settings: Settings, backfill: BackfillSettings
) -> Iterator[pa.RecordBatch]:
    schema = to_arrow_schema(PART)
    rows = (row for batch in batches for row in batch.to_pylist())
    with ThreadPoolExecutor(backfill.upload_threads, thread_name_prefix="backfill") as pool:
        writer = Writer(run, settings, pool, ahead=2 * backfill.upload_threads)
        messages: list[Announced] = []
        parts = 0
        for announced in writer.write(rows):
            messages.append(announced)
            if len(messages) >= backfill.part_messages_max:
                yield pa.RecordBatch.from_pylist([writer.keep(messages, parts)], schema)
                messages, parts = [], parts + 1
        if messages:
            yield pa.RecordBatch.from_pylist([writer.keep(messages, parts)], schema)


class _Closed(NamedTuple):
    """A file that takes no more rows, and its blocks that left memory."""

    file: PartitionFile
    blocks: bytearray


class Writer:
    """Writes the pieces of one task."""

    def __init__(self, run: Run, settings: Settings, pool: ThreadPoolExecutor, *, ahead: int) -> None:
        self._run = run
        self._settings = settings
        self._pool = pool
        self._ahead = ahead
        self._rules: Rules = rules_of(settings)
        self._objects = Objects(settings.s3, threads=ahead)
        self._speaker = speaker_of(run, settings)
        self._attempt = f"{run.batch_id}-{secrets.token_hex(4)}"
        self._batch = Batch(run.batch_id, GENERATION, "", 0.0, run.started_at_ms)
        self._ledgers = {tp: Ledger(span.start, span.stop) for tp, span in run.ranges.items()}
        self._numbers = 0
        self._schemas: set[str] = set()

    def write(self, rows: Iterable[Row]) -> Iterator[Announced]:
        """Upload everything, some objects at once; yields the messages in the order of the rows.

        Raises:
            ObjectError: S3 refuses or does not answer.
        """
        under_way: deque[Future[Announced]] = deque()
        for task in self._tasks(rows):
            under_way.append(task)
            if len(under_way) >= self._ahead:
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()

    def keep(self, messages: list[Announced], number: int) -> Row:
        """Keep messages as a part of the outbox; gives its row."""
        body = encode_part(messages)
        key = part_key(self._settings.s3.prefix, self._run.run_id, f"{self._attempt}-{number}")
        self._objects.create(self._settings.s3.bucket, key, body, {"lp-batch-id": self._run.batch_id})
        return {"key": key, "messages": len(messages), "sha256": hashlib.sha256(body).hexdigest()}

    def _tasks(self, rows: Iterable[Row]) -> Iterator[Future[Announced]]:
        for key, pieces in groupby(rows, lambda row: tuple(row[name] for name in _KEY)):
            if key[0] is None:
                for piece in pieces:
                    letter = DeadLetter(record_of(piece), Reason(piece["reason"]), piece["message"], _indexes(piece))
                    yield self._pool.submit(self._bury, letter, self._next_number())
            else:
                for closed in self._fill(PartitionKey(*key), pieces):
                    yield self._pool.submit(self._upload, closed)

    def _next_number(self) -> int:
        self._numbers += 1
        return self._numbers - 1

    def _fill(self, key: PartitionKey, pieces: Iterable[Row]) -> Iterator[_Closed]:
        """Write the rows of one PartitionKey into as many files as it takes."""
        user = encode_user(key.user)
        opened = self._new_file(key)
        for piece in pieces:
            record = record_of(piece)
            for append in self._rows_of(record, piece["indexes"], key, user):
                try:
                    append(opened.file)
                except SchemaFullError:
                    yield opened
                    opened = self._new_file(key)
                    append(opened.file)
                if opened.file.is_full:
                    yield opened
                    opened = self._new_file(key)
                elif opened.file.block_is_full:
                    opened.blocks.extend(opened.file.take_block())
        if opened.file.rows:
            yield opened

    def _new_file(self, key: PartitionKey) -> _Closed:
        rules, number = self._rules, self._next_number()
        codec, sync = self._settings.spool.codec, os.urandom(SYNC_BYTES)
        return _Closed(PartitionFile(key, number=number, bounds=rules.bounds, codec=codec, sync=sync), bytearray())

    def _rows_of(
        self, record: SourceRecord, indexes: list[int], key: PartitionKey, user: bytes
    ) -> Iterator[partial[None]]:
        """Make the rows of a record's entries, as calls that want a file: the recorder's steps."""
        rules = self._rules
        decoded = rules.decoder.decode(record.value)
        entries = dict(decoded.entries)
        root = root_of(record, self._settings.input.chain_header) if record.headers else None
        origin, rest = encode_origin(record), encode_rest(record.timestamp_ms, root)
        wire_bytes = decoded.size // len(decoded.entries)
        for index in indexes:
            entry = entries[index]
            placed = rules.placer.place(entry, decoded.envelope, record)
            assert isinstance(placed, Placed), f"{record.tp} {record.offset} {index} had a place, now: {placed}"
            assert placed.key == key, f"{record.tp} {record.offset} {index}: {placed.key} was {key}"
            meta = encode_meta(
                user=user,
                event_time_us=placed.event_time_us,
                unique_id=encode_id(placed.unique_id),
                origin=origin,
                index=index,
                rest=rest,
            )
            yield partial(
                _append,
                meta=meta,
                entry=entry,
                tp=record.tp,
                offset=record.offset,
                event_time_us=placed.event_time_us,
                root=root,
                wire_bytes=wire_bytes,
            )

    def _upload(self, closed: _Closed) -> Announced:
        file, blocks = closed
        run, s3 = self._run, self._settings.s3
        metadata = object_metadata(file, batch_id=run.batch_id)
        body = b"".join(file.seal(lambda start, length: bytes(blocks[start : start + length]), metadata=metadata))
        schema = row_schema(file.entry_type)
        place = SchemaPlace(schema, schema_key(s3.prefix, schema.fingerprint), self._is_inline(schema.text))
        if schema.fingerprint not in self._schemas:
            self._objects.create(s3.bucket, place.key, schema.text.encode(), {})
            self._schemas.add(schema.fingerprint)
        key = data_key(s3.prefix, file.key, batch_id=self._attempt, number=file.number)
        stored = self._objects.create(s3.bucket, key, body, metadata)
        sealed = SealedFile(key, len(body), hashlib.sha256(body).digest(), zlib.crc32(body))
        limit = self._settings.kafka.message_bytes_max
        uploaded = Uploaded(file, sealed, stored)
        reference = fitting_reference(
            uploaded, self._batch, self._ledgers, self._speaker, place, message_bytes_max=limit
        )
        reference = msgspec.structs.replace(reference, reference_id=f"{self._attempt}-{file.number}")
        return Announced.of(reference_message(reference, self._speaker, at_ms=run.started_at_ms))

    def _is_inline(self, text: str) -> bool:
        """Tell whether references carry the schema: a task does not know how many there will be, so by setting only."""
        schema = self._settings.record_schema
        return schema.inline == "inline" and len(text) <= schema.inline_bytes_max

    def _bury(self, letter: DeadLetter, number: int) -> Announced:
        s3, limit = self._settings.s3, self._settings.kafka.message_bytes_max
        object_key = None
        if is_oversized(letter, message_bytes_max=limit):
            object_key, body = stored_letter(
                letter.record, prefix=s3.prefix, batch_id=self._attempt, number=number, message_bytes_max=limit
            )
            self._objects.create(s3.bucket, object_key, body, {"lp-batch-id": self._run.batch_id})
        batch_id = self._run.batch_id
        message = dead_letter_message(letter, self._speaker, batch_id=batch_id, object_key=object_key)
        return Announced.of(message)


def _append(file: PartitionFile, **row: Any) -> None:
    file.append(row.pop("meta"), row.pop("entry"), **row)


def _indexes(piece: Row) -> tuple[int, ...] | None:
    return None if piece["indexes"] is None else tuple(piece["indexes"])
