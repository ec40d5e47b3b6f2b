"""Tasks of Spark judge bundles of batches: each with clients of its own, and no task needs another.

A bundle comes as one row, a pickled list of batches; behind it come the rows that the table has of its retired objects.
One row goes back with all that was judged, and, if asked for, one for each of its references and unique ids.
"""

from __future__ import annotations

import pickle
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from log_partitioner.adapters.kafka.topics import KafkaTopics
from log_partitioner.errors import CouldNotTellError
from log_partitioner.proof.audit.judge import BatchJudge, bundles
from log_partitioner.proof.audit.source import GivenUp
from log_partitioner.proof.audit.store import S3Reader
from log_partitioner_pipeline.acknowledged import Acknowledged
from log_partitioner_pipeline.audit.digests import Digests, digest_of
from log_partitioner_pipeline.audit.judged import JudgedBatches, PlacedFindings, ids_of, judged_of
from log_partitioner_pipeline.erasures import Erased
from log_partitioner_pipeline.frames import ENTRY, ENTRY_KEY, Row, struct

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from log_partitioner.formats.model import TopicPartition
    from log_partitioner.formats.reference import Reference
    from log_partitioner.proof.audit.announced import AnnouncedBatch
    from log_partitioner.proof.audit.context import Ground
    from log_partitioner.proof.audit.flush import ComparedBatch, Strays

THREADS = 8
_ENTRIES_PER_TASK = 50_000
_BATCH = ("batch_id", "user", "date", "hour", "message_partition", "message_offset", "given_up")


BUNDLE = struct(
    bundle=T.IntegerType(),
    batches=T.BinaryType(),
    reference_id=T.StringType(),
    meta=T.BinaryType(),
    digest=T.BinaryType(),
)
"""`batches` alone is a bundle; `reference_id` alone says that its object is retired, with the rest it is one row."""

JUDGED = struct(
    judged=T.BinaryType(),
    reference_id=T.StringType(),
    batch_id=T.StringType(),
    user=T.StringType(),
    date=T.StringType(),
    hour=T.IntegerType(),
    message_partition=T.IntegerType(),
    message_offset=T.LongType(),
    given_up=T.BooleanType(),
    rows=T.LongType(),
    low=T.LongType(),
    high=T.LongType(),
    id=T.StringType(),
    in_source=T.LongType(),
    in_files=T.LongType(),
)
REFERENCE_ROW = struct(reference_id=T.StringType(), **ENTRY, digest=T.BinaryType())


class WantedOutput(NamedTuple):
    """Output beside counts: digests by reference, unique ids; how many examples of each kind; and what is given up."""

    references: bool = False
    ids: bool = False
    examples: int = 10
    erased: Erased = Erased({})
    acknowledged: Acknowledged = Acknowledged()

    def given_up(self, reference: Reference, tp: TopicPartition, offset: int) -> GivenUp | None:
        """Return why no reader has the entries of a reference any more; None if a reader must have them."""
        if self.acknowledged.has_object(reference.location):
            return GivenUp.ACKNOWLEDGED
        user = reference.partition_key.user
        return GivenUp.ERASED if self.erased.has(user, partition=tp.partition, offset=offset) else None


def frame_of(spark: SparkSession, batches: Iterable[AnnouncedBatch], retired: DataFrame | None) -> DataFrame:
    """Make the rows of bundles, those of a bundle together; `retired` are columns of BUNDLE by `batch_id`."""
    gathered = list(bundles(batches))
    rows = pa.table(
        {
            "bundle": pa.array(range(len(gathered)), pa.int32()),
            "batches": pa.array([pickle.dumps(bundle) for bundle in gathered], pa.binary()),
        }
    )
    nothing = [F.lit(None).cast(field.dataType).alias(field.name) for field in BUNDLE]
    frame = spark.createDataFrame(rows).select("bundle", "batches", *nothing[2:])
    if retired is not None:
        names = [(batch.batch_id, number) for number, bundle in enumerate(gathered) for batch in bundle]
        numbers = spark.createDataFrame(names, "batch_id string, bundle int")
        theirs = retired.join(F.broadcast(numbers), on="batch_id")
        frame = frame.unionByName(theirs.select("bundle", nothing[1], *BUNDLE.names[2:]))
    entries = sum(record.totals.entries for bundle in gathered for batch in bundle for record in batch.records)
    tasks = max(spark.sparkContext.defaultParallelism, entries // _ENTRIES_PER_TASK)
    spread = frame.repartition(max(1, min(len(gathered), tasks)), "bundle")
    return spread.sortWithinPartitions("bundle", F.col("batches").desc_nulls_last())


def judge_frame(frame: DataFrame, ground: Ground, strays: Strays, wanted: WantedOutput) -> DataFrame:
    """Judge bundles: JUDGED; nothing happens before an action."""
    return frame.mapInArrow(partial(_judge, ground=ground, strays=strays, wanted=wanted), JUDGED)


def entries_frame(frame: DataFrame, ground: Ground, strays: Strays, references: frozenset[str]) -> DataFrame:
    """Read the rows of these references: REFERENCE_ROW; nothing happens before an action."""
    return frame.mapInArrow(partial(_read_entries, ground=ground, strays=strays, references=references), REFERENCE_ROW)


class Bench:
    """Judges bundles, and gathers the output that is asked for; for one thread."""

    def __init__(self, judge: BatchJudge, findings: PlacedFindings, wanted: WantedOutput) -> None:
        self._judge = judge
        self._findings = findings
        self._wanted = wanted
        self._digests: dict[str, Digests] = defaultdict(Digests)
        self._ids: Counter[str] = Counter()
        context = judge.context
        context.keeps_ids = wanted.ids
        context.on_row = self._see
        context.given_up = wanted.given_up

    def _see(self, reference: Reference, meta: Row, digest: bytes) -> None:
        if self._wanted.references:
            name = reference.reference_id
            self._digests[name] = self._digests[name].with_row(digest_of(meta, digest))
        if self._wanted.ids and meta["id"] is not None:
            self._ids[meta["id"]] += 1

    def rows(self, compared: list[ComparedBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the judgement of these batches, columns of JUDGED; then begin anew."""
        context = self._judge.context
        judged = judged_of(self._findings, context, compared)
        yield _columns(judged=[pickle.dumps(judged)])
        # No batch without rows: Spark takes the first one of a table for its end.
        if self._wanted.references and (references := self._of_references(compared)):
            columns = ("reference_id", *_BATCH, *Digests._fields)
            yield _columns(**dict(zip(columns, map(list, zip(*references, strict=True)), strict=True)))
        if self._wanted.ids:
            expected = Counter(ids_of(compared))
            if names := list(expected | self._ids):
                yield _columns(
                    id=names,
                    in_source=[expected[name] for name in names],
                    in_files=[self._ids[name] for name in names],
                )
        self._findings.begin_anew()
        context.counts.clear()
        context.dead_letters.clear()
        self._digests.clear()
        self._ids.clear()

    def _of_references(self, compared: list[ComparedBatch]) -> list[tuple[Any, ...]]:
        once: dict[str, tuple[Any, ...]] = {}
        for one in compared:
            for reference, (tp, offset) in zip(one.told.references, one.told.places, strict=True):
                name = reference.reference_id
                is_given_up = self._wanted.given_up(reference, tp, offset) is not None
                at = tp.partition, offset, is_given_up
                once.setdefault(name, (name, one.batch.name, *reference.partition_key, *at, *self._digests[name]))
        return list(once.values())


@contextmanager
def _judging(ground: Ground, findings: PlacedFindings) -> Iterator[BatchJudge]:
    """Open a task's own clients, and its judge."""
    s3 = S3Reader(ground.settings.s3, threads=THREADS)
    with (
        KafkaTopics.of(ground.settings.kafka) as topics,
        BatchJudge(ground, topics, s3.get, findings, threads=THREADS) as judge,
    ):
        yield judge


def _judge(
    batches: Iterable[pa.RecordBatch], *, ground: Ground, strays: Strays, wanted: WantedOutput
) -> Iterator[pa.RecordBatch]:
    findings = PlacedFindings(examples_max=wanted.examples)
    with _judging(ground, findings) as judge:
        bench = Bench(judge, findings, wanted)
        for bundle, judge.context.retired in _bundles(batches):
            try:
                compared = list(judge.judge(bundle, strays))
            except CouldNotTellError as error:
                findings.doubt(str(error))
                compared = []
            yield from bench.rows(compared)


def _read_entries(
    batches: Iterable[pa.RecordBatch], *, ground: Ground, strays: Strays, references: frozenset[str]
) -> Iterator[pa.RecordBatch]:
    found: list[Row] = []

    def see(reference: Reference, meta: Row, digest: bytes) -> None:
        if reference.reference_id in references:
            place = {name: meta[name] for name in ENTRY_KEY}
            found.append({"reference_id": reference.reference_id, "digest": digest_of(meta, digest), **place})

    with _judging(ground, PlacedFindings(examples_max=0)) as judge:
        judge.context.on_row = see
        for bundle, judge.context.retired in _bundles(batches):
            for _ in judge.judge(bundle, strays):
                pass
            yield pa.RecordBatch.from_pylist(found, to_arrow_schema(REFERENCE_ROW))
            found.clear()


Retired = dict[str, list[tuple[Row, bytes]]]


def _bundles(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[list[AnnouncedBatch], Retired]]:
    rows = (row for batch in batches for row in batch.to_pylist())
    for _, some in groupby(rows, key=itemgetter("bundle")):
        first, *others = some
        yield pickle.loads(first["batches"]), retired_of(others)  # noqa: S301 - the driver has made it


def retired_of(rows: Iterable[Row]) -> Retired:
    """Gather the rows of retired objects by reference."""
    retired: Retired = defaultdict(list)
    for row in rows:
        kept = retired[row["reference_id"]]
        if row["meta"] is not None:
            kept.append((msgspec.json.decode(row["meta"]), row["digest"]))
    for kept in retired.values():
        kept.sort(key=lambda one: [one[0][name] for name in ("topic", "partition", "offset", "index")])
    return dict(retired)


def _columns(**columns: list[Any]) -> pa.RecordBatch:
    """Make rows of JUDGED; columns that are not given are null."""
    schema = to_arrow_schema(JUDGED)
    nulls = [None] * len(next(iter(columns.values())))
    return pa.RecordBatch.from_arrays(
        [pa.array(columns.get(one.name, nulls), one.type) for one in schema], schema=schema
    )


def read_judged(rows: Iterable[Any], *, examples_max: int) -> JudgedBatches:
    """Add up what tasks have judged."""
    judged = JudgedBatches()
    for row in rows:
        if row["judged"] is not None:
            judged.add(pickle.loads(row["judged"]), examples_max=examples_max)  # noqa: S301 - a task of ours has made it
    return judged
