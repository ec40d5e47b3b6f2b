"""Entries of the source as who compares by unique id sees them: ids, places, and the values that CSV has, too.

The oracle judges, as for the other witness. Dead entries are included, because an older system may have taken entries
that the worker must not.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import types as T

from log_partitioner.adapters.schema_registry import schema_finder
from log_partitioner.proof.oracle.judge import Judge
from log_partitioner.proof.oracle.locate import Surroundings, parse_path, values_at
from log_partitioner_pipeline.archive.rows import value_of_entry
from log_partitioner_pipeline.frames import ENTRY, Row, map_rows, struct
from log_partitioner_pipeline.kafka import record_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import DataFrame

    from log_partitioner.config.settings import Settings
    from log_partitioner_pipeline.config import JobSettings

# One row per entry, dead ones too, or with index -1 per record without any.
IDENTIFIED = struct(
    **ENTRY,
    timestamp_ms=T.LongType(),
    deliverable=T.BooleanType(),
    user=T.StringType(),
    date=T.StringType(),
    hour=T.IntegerType(),
    event_time_us=T.LongType(),
    id=T.StringType(),
    values=T.ArrayType(struct(is_text=T.BooleanType(), digest=T.BinaryType())),
)


def identify(messages: DataFrame, settings: JobSettings) -> DataFrame:
    """Judge messages of the source: `IDENTIFIED`; nothing happens before an action."""
    paths = tuple(settings.pipeline.csv.values.values())
    return map_rows(messages, partial(entries_of, settings=settings.worker, paths=paths), IDENTIFIED)


def entries_of(messages: Iterable[Row], *, settings: Settings, paths: Iterable[str]) -> Iterator[Row]:
    """Yield the entries of messages as rows of `IDENTIFIED`, with the values at these paths."""
    judge = Judge(settings, schema_finder(settings))
    value_paths = tuple(map(parse_path, paths))
    for message in messages:
        record = record_of(message)
        common = record.tp._asdict() | {"offset": record.offset, "timestamp_ms": record.timestamp_ms}
        judged = judge.judge(record)
        if not judged.entries:
            yield common | {"index": -1}
            continue
        decoded = judge.decode(record)
        here = Surroundings(record, None, judge.parse)
        for index, (one, (value, _, envelope)) in enumerate(zip(judged.entries, decoded.entries, strict=True)):
            around = here.within(envelope)
            row = common | {"index": index, "deliverable": one.deliverable is not None}
            if value is not None:
                row["id"] = judge.id_of(value, around) or None  # empty: none, as in the archive
            if one.deliverable is not None and value is not None:
                user, date, hour = one.deliverable.key
                row |= {"user": user, "date": date, "hour": hour, "event_time_us": one.deliverable.event_time_us}
                row["values"] = [value_of_entry(next(values_at((path,), value, around), None)) for path in value_paths]
            yield row
