"""Entries of the source as who compares by unique id sees them: ids, places, and the values that CSV has, too.

The oracle judges, as for the other witness. Dead entries are included, because an older system may have taken entries
that the worker must not.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from log_partitioner.proof.oracle.decode import Decoder
from log_partitioner.proof.oracle.judge import Judge
from log_partitioner.proof.oracle.locate import Surroundings, id_of, parse_path, values_at
from log_partitioner_pipeline.archive.rows import value_of_entry
from log_partitioner_pipeline.audit.executors import Row, batched
from log_partitioner_pipeline.audit.frames import ENTRY, struct
from log_partitioner_pipeline.topics import record_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa
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
    read = partial(_identify, settings=settings.worker, paths=paths, schema=to_arrow_schema(IDENTIFIED))
    return messages.mapInArrow(read, IDENTIFIED)


def _identify(
    batches: Iterable[pa.RecordBatch], *, settings: Settings, paths: tuple[str, ...], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    reader = EntryReader(settings, paths)
    yield from batched((row for batch in batches for one in batch.to_pylist() for row in reader.rows(one)), schema)


class EntryReader:
    """Reads records on an executor."""

    def __init__(self, settings: Settings, paths: tuple[str, ...]) -> None:
        self._judge = Judge(settings)
        self._decoder = Decoder(settings.input)
        self._id_paths = tuple(map(parse_path, settings.id.paths))
        self._paths = [parse_path(path) for path in paths]

    def rows(self, message: Row) -> Iterator[Row]:
        """Yield the entries of a record as rows of `IDENTIFIED`."""
        record = record_of(message)
        common = record.tp._asdict() | {"offset": record.offset, "timestamp_ms": record.timestamp_ms}
        judged = self._judge.judge(record)
        if not judged.entries:
            yield common | {"index": -1}
            return
        decoded = self._decoder.decode(record.value)
        around = Surroundings(record, decoded.envelope, self._decoder.parse)
        for index, (one, (value, _)) in enumerate(zip(judged.entries, decoded.entries, strict=True)):
            row = common | {"index": index, "deliverable": one.deliverable is not None}
            if value is not None:
                row["id"] = id_of(self._id_paths, value, around) or None  # empty: none, as in the archive
            if one.deliverable is not None and value is not None:
                user, date, hour = one.deliverable.key
                row |= {"user": user, "date": date, "hour": hour, "event_time_us": one.deliverable.event_time_us}
                found = (next(values_at((path,), value, around), None) for path in self._paths)
                row["values"] = list(map(value_of_entry, found))
            yield row
