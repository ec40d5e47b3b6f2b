"""The table beside the files: digests by reference, then the entries of references that differ; and retired objects.

A reference that the table has taken must have its rows there, once, with the same values. Digests are summed up by
reference on both sides; rows are laid side by side only for references whose sums differ.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import partial, reduce
from operator import or_
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from log_partitioner.formats.findings import Kind
from log_partitioner.proof.oracle.equal import canonical, digest
from log_partitioner.proof.oracle.judge import Judge
from log_partitioner_pipeline.announced import REFERENCES
from log_partitioner_pipeline.audit.bundles import REFERENCE_ROW
from log_partitioner_pipeline.audit.digests import Digests, digest_of
from log_partitioner_pipeline.changes import columns_lost
from log_partitioner_pipeline.columns import EVENT_TIME, META, REFERENCE, USER, Struct, of_iceberg, restore
from log_partitioner_pipeline.entries import EntryTable
from log_partitioner_pipeline.errors import TableError
from log_partitioner_pipeline.frames import ENTRY, ENTRY_KEY, Row, struct
from log_partitioner_pipeline.session import CATALOG
from log_partitioner_pipeline.table import load_table

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from log_partitioner.config.settings import Settings
    from log_partitioner.formats.model import OffsetRanges
    from log_partitioner.proof.audit.announced import AnnouncedBatch
    from log_partitioner_pipeline.config import JobSettings
    from log_partitioner_pipeline.retired import RetiredSnapshot
    from log_partitioner_pipeline.table import Position

_SHOWN = 5
_SUMS = struct(reference_id=T.StringType(), **dict.fromkeys(Digests._fields, T.LongType()))
_PLACED = ("batch_id", "date", "hour")
FINDING = struct(
    **dict.fromkeys(("kind", "text", "reference_id", "batch_id", "date"), T.StringType()),
    hour=T.IntegerType(),
    **ENTRY,
    count=T.LongType(),
    object=T.StringType(),
)
_RULES = [
    (
        Kind.TABLE_MISSING,
        "if(size(f) > 0 and size(t) = 0, 1, 0)",
        "in a file that the table has taken, not in the table",
    ),
    (
        Kind.TABLE_DUPLICATED,
        "if(size(f) > 0, greatest(size(t) - size(f), 0), 0)",
        "more often in the table than in files",
    ),
    (Kind.TABLE_UNEXPECTED, "if(size(f) = 0, size(t), 0)", "a row of the table that no file of its reference has"),
    (
        Kind.TABLE_ALTERED,
        "if(size(f) > 0, size(filter(t, one -> not array_contains(f, one))), 0)",
        "values or _meta in the table are not those of a file",
    ),
]
_FINDINGS = ", ".join(
    f"named_struct('kind', '{kind}', 'text', '{text}', 'count', cast({count} as bigint))"
    for kind, count, text in _RULES
).join(["array(", ")"])


def find_position(spark: SparkSession, settings: JobSettings) -> Position | None:
    """Read the position of the table; None if there is no table."""
    table = EntryTable(spark, settings)
    return table.position() if table.is_there else None


def doubts_of_columns(spark: SparkSession, settings: JobSettings, position: Position) -> list[str]:
    """Return which columns of the table went after the snapshot that is read, which still shows their values.

    Readers of the table no longer have these columns; from the table's next commit on, the audit does not, either.
    """
    name = f"{CATALOG}.{settings.pipeline.table.name}"
    table = load_table(spark, name)
    snapshot = table.snapshot(position.snapshot_id)
    lost = [] if snapshot is None else columns_lost(table, snapshot.schemaId())
    shown = ", ".join(lost[:_SHOWN])
    return [f"{len(lost)} columns of {name} are gone since its newest commit: {shown}"] if lost else []


def rows_at(
    spark: SparkSession, settings: JobSettings, position: Position, near: OffsetRanges, judged: DataFrame
) -> DataFrame:
    """Return the rows that the table has of judged references as of a snapshot; these offsets hold all of them."""
    rows = _rows_near(spark, settings, position, near)
    return rows.join(judged.select(F.col("reference_id").alias(REFERENCE)), on=REFERENCE, how="left_semi")


def rows_within(
    spark: SparkSession, settings: JobSettings, position: Position, source: OffsetRanges, judged: DataFrame
) -> DataFrame:
    """Return the rows that the table has of other references, and of these offsets."""
    rows = _rows_near(spark, settings, position, source)
    spans = spark.createDataFrame(
        [(*tp, *span) for tp, span in source.items()], "topic string, partition int, first bigint, next bigint"
    )
    is_within = (
        (F.col(f"{META}.topic") == F.col("topic"))
        & (F.col(f"{META}.partition") == F.col("partition"))
        & (F.col(f"{META}.offset") >= F.col("first"))
        & (F.col(f"{META}.offset") < F.col("next"))
    )
    others = rows.join(judged.select(F.col("reference_id").alias(REFERENCE)), on=REFERENCE, how="left_anti")
    return others.join(F.broadcast(spans), on=is_within, how="left_semi")


def _rows_near(spark: SparkSession, settings: JobSettings, position: Position, near: OffsetRanges) -> DataFrame:
    """Return rows as of a snapshot, without files whose statistics say that they have none of these offsets."""
    name = f"{CATALOG}.{settings.pipeline.table.name}"
    if position.snapshot_id is None:
        return spark.table(name).where("false")
    rows = spark.read.option("versionAsOf", str(position.snapshot_id)).table(name)
    first = min((first for first, _ in near.values()), default=0)
    end = max((end for _, end in near.values()), default=0)
    return rows.where((F.col(f"{META}.offset") >= first) & (F.col(f"{META}.offset") < end))


def compare_sums(judged: DataFrame, sums: DataFrame, position: Position) -> DataFrame:
    """Return the references whose rows differ, with their place if they were judged, and whether the table `has` them.

    `judged` are columns of `bundles.JUDGED`, `sums` those of the table.
    """
    taken = F.create_map(*[F.lit(part) for pair in sorted(position.offsets.items()) for part in pair])
    end = F.try_element_at(taken.cast("map<int, bigint>"), F.col("message_partition"))
    theirs = judged.select("reference_id", *_PLACED, (F.col("message_offset") < end).alias("has"), *Digests._fields)
    both = theirs.join(_renamed(sums), on="reference_id", how="full")
    differs = _differs({name: F.when(F.col("has"), F.col(name)) for name in Digests._fields})
    has = F.coalesce("has", F.lit(False)).alias("has")  # noqa: FBT003 - a value of SQL
    is_read = ~(F.col("has") & (F.col("rows") == 0))  # else its object is a finding, and the table is not
    return both.where(differs & F.coalesce(is_read, F.lit(True))).select(  # noqa: FBT003 - a value of SQL
        "reference_id", *_PLACED, has
    )


def with_sums(in_objects: DataFrame, sums: DataFrame) -> DataFrame:
    """Return sums of digests by reference with `is_other`: whether those of the table are others."""
    joined = in_objects.join(_renamed(sums), on="reference_id", how="left")
    return joined.withColumn("is_other", _differs({name: F.col(name) for name in Digests._fields}))


def _renamed(sums: DataFrame) -> DataFrame:
    return sums.withColumnsRenamed({name: f"t_{name}" for name in Digests._fields})


def _differs(said: Mapping[str, Column]) -> Column:
    """Return whether sums differ from those of the table; a side without sums has no rows."""
    zero = F.lit(0)
    return reduce(or_, (F.coalesce(one, zero) != F.coalesce(f"t_{name}", zero) for name, one in said.items()))


def findings_of(in_files: DataFrame, differing: DataFrame, rows: DataFrame, settings: JobSettings) -> DataFrame:
    """Lay the rows of differing references side by side: FINDING.

    `in_files` are columns of `bundles.REFERENCE_ROW`, `rows` those of the table.
    """
    differing = F.broadcast(differing)
    names = differing.select(F.col("reference_id").alias(REFERENCE))
    is_one = rows[REFERENCE].eqNullSafe(names[REFERENCE])  # a row may have lost its reference
    in_table = entries_of(rows.join(names, on=is_one, how="left_semi"), settings).select(*REFERENCE_ROW.names)
    taken = in_files.join(differing.where("has").select("reference_id"), on="reference_id", how="left_semi")
    sides = taken.withColumn("side", F.lit("f")).unionByName(in_table.withColumn("side", F.lit("t")))
    digests = [F.collect_list(F.when(F.col("side") == side, F.col("digest"))).alias(side) for side in "ft"]
    by_entry = sides.groupBy(*ENTRY_KEY).agg(*digests, F.max("reference_id").alias("reference_id"))
    told = by_entry.select(*ENTRY_KEY, "reference_id", F.expr(_FINDINGS).alias("told"))
    found = told.select(*ENTRY_KEY, "reference_id", F.inline("told")).where("count > 0")
    return in_form(found.join(differing.drop("has"), on="reference_id", how="left"))


def in_form(findings: DataFrame) -> DataFrame:
    """Bring findings into the form of FINDING; a column that they lack is null."""
    absent = [field for field in FINDING if field.name not in findings.columns]
    nulls = {field.name: F.lit(None).cast(field.dataType) for field in absent}
    return findings.withColumns(nulls).select(*FINDING.names)


def sums_of(rows: DataFrame, settings: JobSettings) -> DataFrame:
    """Sum up the digests of rows of the table by reference."""
    read = partial(_sum, settings=settings.worker, columns=columns_of(rows))
    partial_sums = _with_meta(rows).mapInArrow(read, _SUMS)
    return partial_sums.groupBy("reference_id").agg(*[F.sum(name).alias(name) for name in Digests._fields])


def entries_of(rows: DataFrame, settings: JobSettings) -> DataFrame:
    """Return the entries of rows of the table: REFERENCE_ROW with `meta` (JSON) and the digest of the `values`."""
    schema = T.StructType([*REFERENCE_ROW, *struct(meta=T.BinaryType(), values=T.BinaryType())])
    read = partial(_read, settings=settings.worker, columns=columns_of(rows), schema=to_arrow_schema(schema))
    return _with_meta(rows).mapInArrow(read, schema)


def retired_rows(
    spark: SparkSession, settings: JobSettings, retired: RetiredSnapshot, batches: Iterable[AnnouncedBatch]
) -> DataFrame | None:
    """Return the rows that the table has of retired objects of these batches, by `batch_id`: `bundles.BUNDLE`.

    Each reference into such an object has one row more, which is empty. None if no object was ever retired.

    Raises:
        TableError: the tables of references and entries are not there, so nobody has these entries.
    """
    if retired.rows is None:
        return None
    table = settings.pipeline.table
    entries, references = (f"{CATALOG}.{name}" for name in (table.name, table.beside(REFERENCES.name)))
    for name in (entries, references):
        if not spark.catalog.tableExists(name):
            raise TableError(f"objects are retired, and {name}, which has their entries, is not there")
    at = ["bucket", "object"]
    theirs = spark.createDataFrame([(batch.batch_id,) for batch in batches], "batch_id string")
    named = (
        spark.table(references)
        .where(F.col("reference_id").isNotNull())
        .join(F.broadcast(theirs), on="batch_id", how="left_semi")
        .select("batch_id", "reference_id", *[F.col(f"location.{name}").alias(name) for name in at])
        .join(retired.rows.select(*at).distinct(), on=at, how="left_semi")
        .select("batch_id", "reference_id")
        .distinct()
    )
    ids = named.select(F.col("reference_id").alias(REFERENCE))
    rows = entries_of(spark.table(entries).join(ids, on=REFERENCE, how="left_semi"), settings)
    of_rows = rows.select("reference_id", "meta", F.col("values").alias("digest")).join(named, on="reference_id")
    nothing = F.lit(None).cast("binary")
    return named.select("*", nothing.alias("meta"), nothing.alias("digest")).unionByName(of_rows)


def columns_of(rows: DataFrame) -> Struct:
    """Return the columns of rows of the table, those of a snapshot if they are of one."""
    jvm = rows.sparkSession._jvm  # noqa: SLF001 - py4j is the way in
    assert jvm is not None, "the session runs"
    schema = jvm.org.apache.iceberg.spark.SparkSchemaUtil.convert(rows._jdf.schema())  # noqa: SLF001
    return of_iceberg(json.loads(jvm.org.apache.iceberg.SchemaParser.toJson(schema))["fields"])


def _with_meta(rows: DataFrame) -> DataFrame:
    """Gather in `_meta` what a row of a file has there, and the reference."""
    meta = [F.col(f"{META}.{field}").alias(field) for field in (*ENTRY_KEY, "id", "root")]
    meta += [
        F.col(USER).alias("user"),
        F.col(REFERENCE).alias("reference_id"),
        F.unix_micros(EVENT_TIME).alias("event_time"),
        F.unix_millis(f"{META}.timestamp").alias("timestamp"),
    ]
    return rows.withColumn(META, F.struct(*meta))


def _digested(batches: Iterable[pa.RecordBatch], settings: Settings, columns: Struct) -> Iterator[tuple[Row, bytes]]:
    parse = Judge(settings).parse
    for batch in batches:
        for row in batch.to_pylist():
            yield row[META], digest(canonical(restore(row, columns, parse)))


def _sum(batches: Iterable[pa.RecordBatch], *, settings: Settings, columns: Struct) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        sums: dict[str | None, Digests] = defaultdict(Digests)
        for meta, values in _digested([batch], settings, columns):
            sums[meta["reference_id"]] = sums[meta["reference_id"]].with_row(digest_of(meta, values))
        rows = [{"reference_id": name, **one._asdict()} for name, one in sums.items()]
        yield pa.RecordBatch.from_pylist(rows, to_arrow_schema(_SUMS))


def _read(
    batches: Iterable[pa.RecordBatch], *, settings: Settings, columns: Struct, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        rows = [
            {name: meta[name] for name in ("reference_id", *ENTRY_KEY)}
            | {"digest": digest_of(meta, values), "meta": msgspec.json.encode(meta), "values": values}
            for meta, values in _digested([batch], settings, columns)
        ]
        yield pa.RecordBatch.from_pylist(rows, schema)
