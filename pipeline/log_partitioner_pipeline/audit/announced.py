"""Messages of the output topics as frames: those of the history that is audited.

Objects named by other histories are known, too: they lie under the same prefix and are no orphans.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from log_partitioner_pipeline import topics
from log_partitioner_pipeline.audit import backfills, sides
from log_partitioner_pipeline.audit.ground import Announced
from log_partitioner_pipeline.kafka import read_messages
from log_partitioner_pipeline.whose import letters_of_history, of_history

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from log_partitioner_pipeline.audit.scope import Asked
    from log_partitioner_pipeline.kept import Kept
    from log_partitioner_pipeline.whose import Chosen


def read_announced(
    spark: SparkSession, chosen: Chosen, asked: Asked, kept: Kept, *, step: Callable[[str], None]
) -> Announced:
    """Read the topics up to the ends that were asked for; frames that are used several times are kept."""
    settings, lineage = chosen.settings, chosen.lineage
    kafka = settings.worker.kafka
    step("flush records")
    records = kept.keep(topics.flush_records(read_messages(spark, kafka, asked.flushes)))
    is_known = F.col("batch_id").isNotNull() & F.col("group_id").isNotNull()  # of run records, too
    flushes = of_history(records.where(is_known), lineage, "topic_partitions")
    step("references")
    runs = kept.keep(topics.run_records(read_messages(spark, kafka, asked.backfills)))
    read = topics.references(read_messages(spark, kafka, asked.references), keep=kept.keep)
    every = of_history(read.every, lineage, "sources")
    step("dead letters")
    letters = kept.keep(sides.read_dead_letters(spark, settings, asked.dead_letters))
    return Announced(
        flushes=flushes,
        lines=kept.keep(topics.lines_of(flushes)),
        references=every,
        repeated=of_history(read.repeated, lineage, "sources"),
        by_batch=kept.keep(every.groupBy("batch_id").agg(F.count("*").alias("references"))),
        dead=letters_of_history(letters, lineage),
        runs=kept.keep(backfills.newest(of_history(runs.where(is_known), lineage, "topic_partitions"))),
        no_flushes=records.where(~is_known),
        no_references=read.unreadable,
        no_runs=runs.where(~is_known),
        elsewhere=_named(read.every, letters) if chosen.others else None,
    )


def _named(references: DataFrame, letters: DataFrame) -> DataFrame:
    objects = references.select("location.object").union(references.select("schema_object"))
    return objects.union(letters.where(F.col("object").isNotNull()).select("object"))
