"""References topic -> table, exactly once (DESIGN 8).

The table itself says how far it has come, so the query's own checkpoint is scratch: every start begins at the table's
offsets with a new one. Each micro-batch is one commit of rows and offsets together.
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

from pipeline.columns import plan_of, union_of
from pipeline.kafka import partition_ends, spark_options
from pipeline.objects import Objects
from pipeline.progress import Progress
from pipeline.reference_log import count_behind, require_unbroken
from pipeline.references import MessageAt, SchemaTexts, decode, encode_for_reading, share_out
from pipeline.rows import RowGatherer
from pipeline.session import open_session
from pipeline.table import Offsets, Position, Table
from pipeline.topic_identity import require_same_topic
from service.core.reference import Reference, decode_reference

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from pipeline.config import JobSettings, MaterializeSettings
    from pipeline.kafka import Ends
    from service.config import S3Settings

_MESSAGE_COLUMNS = ("partition", "offset", "value")


_NEWEST_HOURS = """
SELECT date_trunc('hour', _meta.event_time) AS hour, count(*) AS entries, count(DISTINCT _meta.user) AS users
FROM {table} GROUP BY 1 ORDER BY 1 DESC LIMIT 10
"""


def run(settings: JobSettings, *, continuous: bool, show: bool = False) -> None:
    """Bring the table up to date; with `continuous` go on until stopped; with `show` query it at the end.

    Blocks until everything there was at the start is in the table.

    Raises:
        PipelineError: see `pipeline.errors`.
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
        self._log = structlog.get_logger("materialize").bind(run=run_id)
        self._position = Position({}, None)
        self._failure: BaseException | None = None
        self._progress = Progress(spark, "materialize")
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
            .option("maxOffsetsPerTrigger", self._settings.references_max)
            .load()
            .select(*_MESSAGE_COLUMNS)
        )

    def _take(self, checkpoint: Path, messages: DataFrame, batch_id: int) -> None:
        try:
            found = [MessageAt.of(row) for row in messages.collect()]
            self._commit(found, self._position.offsets | read_ends(checkpoint, batch_id, self._topic))
        except Exception as error:
            self._failure = error  # Spark would hand on its text only
            raise

    def _commit(self, messages: list[MessageAt], offsets: Offsets) -> None:
        """Outline: read references -> leave out what the table holds -> widen -> read rows -> one commit.

        Where there are only markers of transactions the offsets move alone: Kafka will delete them, too.
        """
        if offsets == self._position.offsets:
            return
        begun = time.monotonic()
        references = decode(messages)
        held = self._table.holds(references)
        new = [reference for reference in references if reference.reference_id not in held]
        texts = self._schema_texts.of(new)
        weights: Counter[str] = Counter()
        for reference in new:
            weights.update(dict.fromkeys(plan_of(texts[reference.schema.fingerprint]).columns.names, reference.entries))
        wanted = union_of(plan_of(text).columns for text in texts.values())
        schema = self._table.widen(wanted, weights=weights)
        rows = read_rows(self._spark, new, schema, s3=self._worker.s3, settings=self._settings)
        entries = sum(reference.entries for reference in new)
        self._position = self._table.append(rows, base=self._position, offsets=offsets, entries=entries)
        self._progress.reach(self._behind - count_behind(offsets, self._ends))
        self._progress.count(references=len(new), entries=entries)
        self._log.info(
            "references_materialized",
            references=len(new),
            held_already=len(held),
            entries=entries,
            schemas=len(texts),
            offsets=offsets,
            seconds=round(time.monotonic() - begun, 3),
        )


def read_rows(
    spark: SparkSession,
    references: list[Reference],
    schema: T.StructType,
    *,
    s3: S3Settings,
    settings: MaterializeSettings,
) -> DataFrame:
    """Give the rows of these references; they are read where the frame is written."""
    shares = share_out(references, tasks=spark.sparkContext.defaultParallelism)
    encoded = [[encode_for_reading(reference) for reference in share] for share in shares]
    read = partial(_read_shares, encoded=encoded, schema=to_arrow_schema(schema), s3=s3, settings=settings)
    return spark.range(0, len(shares), 1, max(1, len(shares))).mapInArrow(read, schema)


def _read_shares(
    numbers: Iterable[pa.RecordBatch],
    *,
    encoded: list[list[bytes]],
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
            references = [decode_reference(value) for value in encoded[number]]
            gatherer = RowGatherer(
                schema, rows_per_batch=settings.rows_per_batch, bytes_per_batch=settings.bytes_per_batch
            )
            contents = objects.read_ahead(reference.location for reference in references)
            for reference, content in zip(references, contents, strict=True):
                yield from gatherer.add_file(content, reference)
            if not gatherer.is_empty:
                yield gatherer.take()


def read_ends(checkpoint: Path, batch_id: int, topic: str) -> Offsets:
    """Read up to where a micro-batch goes: behind its last messages and the markers of their transactions.

    Partitions without messages are among them. Spark writes this before it runs a batch, and tells it nowhere else.
    """
    version, _metadata, ends = (checkpoint / "offsets" / str(batch_id)).read_text(encoding="utf-8").splitlines()
    assert version == "v1", "one line for the version, one for the batch, one for its only source"
    return {int(partition): offset for partition, offset in json.loads(ends)[topic].items()}
