"""The columns of the frames that the steps of the audit hand on.

All of them identify an entry by (topic, partition, offset, index).
"""

from __future__ import annotations

from pyspark.sql import types as T

ENTRY_KEY = ["topic", "partition", "offset", "index"]


def struct(**fields: T.DataType) -> T.StructType:
    """Return a row type of these nullable fields."""
    return T.StructType([T.StructField(name, kind) for name, kind in fields.items()])


ENTRY: dict[str, T.DataType] = {
    "topic": T.StringType(),
    "partition": T.IntegerType(),
    "offset": T.LongType(),
    "index": T.IntegerType(),
}
# One row per entry of the source, or with index -1 per record without any. `reasons` is what a dead letter of it may
# say (comma before and behind each), empty where it must not be dead; `whole`: it cannot be named by an index.
SOURCE = struct(
    **ENTRY,
    timestamp_ms=T.LongType(),
    entries=T.IntegerType(),
    deliverable=T.BooleanType(),
    whole=T.BooleanType(),
    reasons=T.StringType(),
    user=T.StringType(),
    date=T.StringType(),
    hour=T.IntegerType(),
    event_time_us=T.LongType(),
    id=T.StringType(),
    root=T.StringType(),
    digest=T.BinaryType(),
    record_digest=T.BinaryType(),
)
# One row per row of a file; or, with a `kind`, one per finding about a reference or its object. `user`, `date` and
# `hour` are the reference's. `taken`: it is in the table, if all is well. `lost`: the rows of this reference could
# not be had; `unread`: because S3 refused. `retired`: its object is, and this is what the table has of it.
ROWS = struct(
    **ENTRY,
    reference_id=T.StringType(),
    user=T.StringType(),
    date=T.StringType(),
    hour=T.IntegerType(),
    meta_user=T.StringType(),
    event_time_us=T.LongType(),
    timestamp_ms=T.LongType(),
    id=T.StringType(),
    root=T.StringType(),
    digest=T.BinaryType(),
    kind=T.StringType(),
    taken=T.BooleanType(),
    text=T.StringType(),
    lost=T.BooleanType(),
    unread=T.BooleanType(),
    retired=T.BooleanType(),
)
# One row per entry that a dead letter names; or, with a `kind`, one per finding about a dead letter. Of one record and
# reason there may be several, each with some of the indexes: the first one tells them apart.
DEAD = struct(
    **ENTRY,
    end_offset=T.LongType(),
    all_of_it=T.BooleanType(),
    first_index=T.IntegerType(),
    reason=T.StringType(),
    batch_id=T.StringType(),
    group_id=T.StringType(),
    object=T.StringType(),
    record_digest=T.BinaryType(),
    kind=T.StringType(),
    text=T.StringType(),
    unread=T.BooleanType(),
)
TABLE = struct(
    **ENTRY,
    reference_id=T.StringType(),
    user=T.StringType(),
    event_time_us=T.LongType(),
    timestamp_ms=T.LongType(),
    id=T.StringType(),
    root=T.StringType(),
    digest=T.BinaryType(),
)
FINDING = struct(
    kind=T.StringType(),
    count=T.LongType(),
    **ENTRY,
    timestamp_ms=T.LongType(),
    user=T.StringType(),
    date=T.StringType(),
    hour=T.IntegerType(),
    id=T.StringType(),
    reference_id=T.StringType(),
    object=T.StringType(),
    batch_id=T.StringType(),
    worker=T.StringType(),
    text=T.StringType(),
)
SPAN = struct(
    topic=T.StringType(),
    partition=T.IntegerType(),
    first=T.LongType(),
    next=T.LongType(),
    window_first=T.LongType(),
    window_next=T.LongType(),
    committed=T.LongType(),
    start=T.LongType(),
    answers_from=T.LongType(),
    committed_again=T.LongType(),
)
