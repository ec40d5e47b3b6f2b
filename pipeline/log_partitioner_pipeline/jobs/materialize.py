"""References topic -> table, exactly once (DESIGN 8).

The table itself states the offsets it has reached, so the query's own checkpoint is scratch: every start begins at the
table's offsets with a new one. A micro-batch is cut into slices of so many references and bytes, between messages
(`reference_log`); each slice is one commit of rows and offsets together.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import structlog
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from log_partitioner_pipeline.columns import FilePlan, plan_of, union_of
from log_partitioner_pipeline.errors import PipelineError
from log_partitioner_pipeline.kafka import partition_ends, spark_options
from log_partitioner_pipeline.objects import Objects
from log_partitioner_pipeline.pieces import decode_share, encode_share, projection_text, share_out
from log_partitioner_pipeline.progress import StepProgress
from log_partitioner_pipeline.reference_log import (
    WEIGHED_AT_ONCE,
    Bounds,
    ReferenceLog,
    Slice,
    count_behind,
    require_unbroken,
)
from log_partitioner_pipeline.references import SchemaTexts, decode
from log_partitioner_pipeline.rows import RowGatherer
from log_partitioner_pipeline.session import open_session
from log_partitioner_pipeline.table import Offsets, Position, Table
from log_partitioner_pipeline.topic_identity import require_same_topic
from log_partitioner_pipeline.whose import OneHistory, claim, history_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from log_partitioner.adapters.kafka.topics import Ends
    from log_partitioner.config.s3_settings import S3Settings
    from log_partitioner.formats.reference import Reference
    from log_partitioner_pipeline.config import JobSettings, MaterializeSettings

_MESSAGE_COLUMNS = ("partition", "offset", "value")


_NEWEST_HOURS = """
SELECT date_trunc('hour', _meta.event_time) AS hour, count(*) AS entries, count(DISTINCT _meta.user) AS users
FROM {table} GROUP BY 1 ORDER BY 1 DESC LIMIT 10
"""


def run(settings: JobSettings, *, continuous: bool, show: bool = False) -> None:
    """Bring the table up to date; with `continuous` go on until stopped; with `show` query it at the end.

    Blocks until everything there was at the start is in the table.

    Raises:
        PipelineError: see `log_partitioner_pipeline.errors`.
    """
    spark = open_session(settings, name="materialize")
    job = Materialize(spark, settings)
    job.run(continuous=continuous)
    if show:
        query = _NEWEST_HOURS.format(table=job.table_name).strip()
        sys.stdout.write(f"{query}\n")
        spark.sql(query).show(truncate=False)


class Materialize:
    """One driver's run."""

    def __init__(self, spark: SparkSession, settings: JobSettings) -> None:
        self._spark = spark
        self._worker = settings.worker
        self._settings = settings.pipeline.materialize
        self._topic = settings.worker.kafka.references_topic
        run_id = uuid.uuid4().hex[:12]
        self._table = Table(spark, settings.pipeline.table, topic=self._topic, branch=f"materialize_{run_id}")
        self._objects = Objects(settings.worker.s3, threads=self._settings.download_threads)
        self._schema_texts = SchemaTexts(self._objects)
        self._references = ReferenceLog(spark, settings.worker.kafka, self._topic)
        self._log = structlog.get_logger("materialize").bind(run=run_id)
        self._position = Position({}, None)
        self._history = OneHistory(settings.worker.kafka, None)
        self._failure: BaseException | None = None
        self._ends_now = False
        self._progress = StepProgress(spark, "materialize")
        self._ends: dict[int, Ends] = {}
        self._behind = 0

    @property
    def table_name(self) -> str:
        """The table, as SQL names it."""
        return self._table.name

    def run(self, *, continuous: bool) -> None:
        """Materialise until everything is in the table, or for ever.

        Raises:
            PipelineError: it cannot go on; nothing is half done.
        """
        ends = partition_ends(self._worker.kafka, self._topic)
        self._table.ensure()
        require_same_topic(self._spark, self._table.name, topic=self._topic, kafka=self._worker.kafka)
        self._history = history_of(self._spark, self._table.name, self._worker.kafka)
        self._position = self._table.position()
        require_unbroken(self._position.offsets, ends, self._topic)
        self._log.info("materialize_started", offsets=self._position.offsets, columns=len(self._table.schema()))
        self._ends = {} if continuous else ends
        checkpoints = tempfile.TemporaryDirectory(prefix="checkpoint-", dir=self._settings.checkpoint_directory)
        with self._progress, checkpoints as directory:
            checkpoint = Path(directory).absolute()
            self._behind = count_behind(self._position.offsets, self._ends)
            self._progress.step("references", total=self._behind, unit="offsets")
            writer = self._messages(list(ends)).writeStream.foreachBatch(partial(self._take, checkpoint))
            writer = writer.option("checkpointLocation", checkpoint.as_uri())
            if continuous:
                writer = writer.trigger(processingTime=f"{self._settings.interval_s} seconds")
            else:
                writer = writer.trigger(availableNow=True)
            query = writer.start()
            try:
                query.awaitTermination()
            except Exception:
                if self._failure is not None:
                    raise self._failure from None
                raise
            finally:
                self._ends_now = True
                query.stop()
                self._table.drop_branch()
        self._log.info("materialize_ended", offsets=self._position.offsets)

    def _messages(self, partitions: list[int]) -> DataFrame:
        """Read the references topic from the table's offsets on; partitions added later begin at their beginning."""
        from_the_beginning = -2
        starts = {str(number): self._position.offsets.get(number, from_the_beginning) for number in partitions}
        return (
            self._spark.readStream.format("kafka")
            .options(**spark_options(self._worker.kafka, self._topic))
            .option("startingOffsets", json.dumps({self._topic: starts}))
            .option("maxOffsetsPerTrigger", WEIGHED_AT_ONCE)
            .load()
            .select(*_MESSAGE_COLUMNS)
        )

    def _take(self, checkpoint: Path, messages: DataFrame, batch_id: int) -> None:
        """Commit a micro-batch, slice by slice.

        If a range has only markers of transactions, the offsets move alone, because Kafka will delete the markers, too.
        """
        bounds = Bounds(self._settings.references_max, self._settings.bytes_max)
        begin = self._position.offsets
        try:
            ends = begin | read_ends(checkpoint, batch_id, self._topic)
            if ends != begin:
                for one in self._references.slices_of(messages, begin, ends, bounds):
                    if self._ends_now:
                        return
                    self._commit(one)
        except Exception as error:
            self._failure = error  # Spark would hand on its text only
            raise

    def _commit(self, of_it: Slice) -> None:
        """Outline: references -> leave out what the table holds -> plan by exact schema -> widen -> one commit."""
        begun = time.monotonic()
        references = self._history.take(decode(of_it.messages))
        claim(self._spark, self._table.name, self._history)
        held = self._table.holds(references)
        new = [reference for reference in references if reference.reference_id not in held]
        plans = self._plans(new)
        weights: Counter[str] = Counter()
        for plan, entries in plans:
            weights.update(dict.fromkeys(plan.columns.names, entries))
        schema = self._table.widen(union_of(plan.columns for plan, _ in plans), weights=weights)
        rows = read_rows(self._spark, new, schema, s3=self._worker.s3, settings=self._settings)
        entries = sum(reference.entries for reference in new)
        self._position = self._table.append(rows, base=self._position, offsets=of_it.offsets, entries=entries)
        self._progress.reach(self._behind - count_behind(of_it.offsets, self._ends))
        self._progress.count(references=len(new), entries=entries)
        self._log.info(
            "references_materialized",
            references=len(new),
            held_already=len(held),
            entries=entries,
            objects=len({reference.location.object for reference in new}),
            schemas=len(plans),
            offsets=of_it.offsets,
            seconds=round(time.monotonic() - begun, 3),
        )

    def _plans(self, references: list[Reference]) -> list[tuple[FilePlan, int]]:
        """Plan each exact schema once, and count its entries.

        Raises:
            PipelineError: a schema is none of this product, or a projection none of it.
        """
        texts = self._schema_texts.of(references)
        entries: Counter[tuple[str, str]] = Counter()
        for reference in references:
            entries[reference.schema.fingerprint, projection_text(reference)] += reference.entries
        plans = []
        for (fingerprint, projection), count in entries.items():
            try:
                plans.append((plan_of(texts[fingerprint], projection), count))
            except (ValueError, KeyError, TypeError) as error:
                raise PipelineError(f"schema {fingerprint}, projection {projection}: {error}") from error
        return plans


def read_rows(
    spark: SparkSession,
    references: list[Reference],
    schema: T.StructType,
    *,
    s3: S3Settings,
    settings: MaterializeSettings,
) -> DataFrame:
    """Return the rows of these references; they are read when the frame is written."""
    shares = share_out(references, tasks=spark.sparkContext.defaultParallelism)
    encoded = [encode_share(share) for share in shares]
    read = partial(_read_shares, encoded=encoded, schema=to_arrow_schema(schema), s3=s3, settings=settings)
    return spark.range(0, len(shares), 1, max(1, len(shares))).mapInArrow(read, schema)


def _read_shares(
    numbers: Iterable[pa.RecordBatch],
    *,
    encoded: list[bytes],
    schema: pa.Schema,
    s3: S3Settings,
    settings: MaterializeSettings,
) -> Iterator[pa.RecordBatch]:
    """Read the rows of the shares with these numbers; runs on an executor.

    Raises:
        ObjectError: an object is absent, altered or unreadable.
    """
    objects = Objects(s3, threads=settings.download_threads)
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            gatherer = RowGatherer(
                schema, rows_per_batch=settings.rows_per_batch, bytes_per_batch=settings.bytes_per_batch
            )
            for piece, content in objects.read_ahead(decode_share(encoded[number])):
                yield from gatherer.add_piece(piece, content)
            if not gatherer.is_empty:
                yield gatherer.take()


def read_ends(checkpoint: Path, batch_id: int, topic: str) -> Offsets:
    """Read the end of a micro-batch: behind its last messages and the markers of their transactions.

    Partitions without messages are among them. Spark writes this before it runs a batch, and only there.
    """
    version, _metadata, ends = (checkpoint / "offsets" / str(batch_id)).read_text(encoding="utf-8").splitlines()
    assert version == "v1", "one line for the version, one for the batch, one for its only source"
    return {int(partition): offset for partition, offset in json.loads(ends)[topic].items()}
