"""Records -> pieces: entries of a record by PartitionKey, and dead ones by reason. On the executors.

A piece carries the record itself: its entries are decoded once more when they are written, because a decoded entry is
more than JSON text can say (integers of any size, numbers kept as text).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from log_partitioner.adapters.schema_registry import UNKNOWN_S, schema_finder
from log_partitioner.avro.entry_types import EntryTypes
from log_partitioner.avro.infer import TooDeepError, TooManyFieldsError
from log_partitioner.batch.messages import dead_letters_of
from log_partitioner.batch.topic_rules import RulesByTopic
from log_partitioner.formats.dead_letter import Reason
from log_partitioner.formats.model import PartitionKey, SourceRecord
from log_partitioner.input.decode import BadEntry, refused
from log_partitioner.partitioning.partitioner import Placement, Rejection
from log_partitioner_pipeline.backfill.held import WHOLE
from log_partitioner_pipeline.frames import struct
from log_partitioner_pipeline.kafka import MESSAGE, record_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from log_partitioner.config.settings import Settings

# Where a piece goes: user, date and hour, or a reason. `indexes` is null for a record that could not be split.
PIECE = struct(
    user=T.StringType(),
    date=T.StringType(),
    hour=T.IntegerType(),
    reason=T.StringType(),
    message=T.StringType(),
    indexes=T.ArrayType(T.IntegerType()),
    of_entries=T.IntegerType(),
    **{field.name: field.dataType for field in MESSAGE},
)
_RECORDS_AT_ONCE = 500
_BYTES_AT_ONCE = 8 * 1024 * 1024


class SplitRules(NamedTuple):
    """The worker's rules for one record; for one thread."""

    by_topic: RulesByTopic
    types: EntryTypes


def rules_of(settings: Settings) -> SplitRules:
    """Make the rules of these settings."""
    by_topic = RulesByTopic(settings, schema_finder(settings, unknown_after_s=UNKNOWN_S))
    return SplitRules(by_topic, EntryTypes(settings.schema_bounds))


def pieces_of(messages: DataFrame, held: DataFrame, settings: Settings) -> DataFrame:
    """Return the pieces of the entries that are not held; `held` has the indexes by record."""
    joined = messages.join(held, on=["topic", "partition", "offset"], how="left").select(*MESSAGE.names, "held")
    return joined.mapInArrow(partial(_split_batches, settings=settings), PIECE)


def _split_batches(batches: Iterable[pa.RecordBatch], *, settings: Settings) -> Iterator[pa.RecordBatch]:
    rules, schema = rules_of(settings), to_arrow_schema(PIECE)
    pieces: list[dict[str, Any]] = []
    size = 0
    for batch in batches:
        for row in batch.to_pylist():
            found = list(split(row, rules))
            pieces += found
            size += len(found) * len(row["value"] or b"")
            if len(pieces) >= _RECORDS_AT_ONCE or size >= _BYTES_AT_ONCE:
                yield pa.RecordBatch.from_pylist(pieces, schema)
                pieces, size = [], 0
    if pieces:
        yield pa.RecordBatch.from_pylist(pieces, schema)


def split(row: dict[str, Any], rules: SplitRules) -> Iterator[dict[str, Any]]:
    """Split one record, leaving out the indexes in `held`."""
    held = frozenset(row.pop("held") or ())
    if WHOLE in held:
        return
    record = record_of(row)
    decode = rules.by_topic[record.tp.topic].decoder.decode
    decoded = decode(record.value, record.headers) if record.unreadable is None else refused(record)
    bad = [one for one in decoded.bad if one.number not in held and not (one.number is None and held)]
    by_key: dict[PartitionKey, list[int]] = {}
    for index, entry, _, around in decoded.entries:
        if index in held:
            continue
        placed = _place(entry, around, record, rules)
        if isinstance(placed, Placement):
            by_key.setdefault(placed.key, []).append(index)
        else:
            bad.append(BadEntry(index, placed.reason, placed.message))
    for key, indexes in by_key.items():
        yield {**row, "user": key.user, "date": key.date, "hour": key.hour, "indexes": indexes}
    of_entries = len(decoded.entries) + len(decoded.bad)
    for letter in dead_letters_of(record, bad, of_entries=of_entries):
        told = {"reason": letter.reason.value, "message": letter.message, "of_entries": of_entries}
        yield {**row, **told, "indexes": None if letter.indexes is None else list(letter.indexes)}


def _place(
    entry: dict[str, Any], envelope: dict[str, Any] | None, record: SourceRecord, rules: SplitRules
) -> Placement | Rejection:
    """Place an entry; one for which no schema has room is recognised by itself, before any row."""
    placed = rules.by_topic[record.tp.topic].partitioner.partition(entry, envelope, record)
    if isinstance(placed, Placement):
        try:
            rules.types.of(entry)
        except TooDeepError as error:
            return Rejection(Reason.TOO_DEEP, str(error))
        except TooManyFieldsError as error:
            return Rejection(Reason.TOO_MANY_FIELDS, str(error))
    return placed
