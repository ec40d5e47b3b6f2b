"""References -> which entries they hold: whose, of which hour, where they first were, and their size in bytes.

Owns what an entry is for counting, and what its size is. Runs on the executors.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from pipeline.objects import Objects
from pipeline.rows import read_referenced_rows
from service.audit.decode import Decoder
from service.audit.published_schema import PublishedSchema
from service.core.avro_schema import META
from service.core.reference import Reference, decode_reference

if TYPE_CHECKING:
    from pipeline.config import ActivitySettings
    from service.config import InputSettings, S3Settings

Row = dict[str, Any]

# One row for each reference and TopicPartition where its entries first were; the arrays go together.
ENTRIES = T.StructType(
    [
        T.StructField("user", T.StringType()),
        T.StructField("date", T.StringType()),
        T.StructField("hour", T.IntegerType()),
        T.StructField("topic", T.StringType()),
        T.StructField("partition", T.IntegerType()),
        T.StructField("offsets", T.ArrayType(T.LongType())),
        T.StructField("indexes", T.ArrayType(T.IntegerType())),
        T.StructField("sizes", T.ArrayType(T.LongType())),
    ]
)


class Reading(NamedTuple):
    """What an executor needs to read references."""

    s3: S3Settings
    input: InputSettings
    activity: ActivitySettings


def read_entries(
    numbers: Iterable[pa.RecordBatch], *, encoded: list[list[bytes]], reading: Reading
) -> Iterator[pa.RecordBatch]:
    """Read the entries of the shares of references with these numbers, as rows of `ENTRIES`.

    Raises:
        ObjectError: an object is absent, altered or unreadable.
    """
    objects = Objects(reading.s3, threads=reading.activity.download_threads)
    schema = to_arrow_schema(ENTRIES)
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            references = [decode_reference(value) for value in encoded[number]]
            contents = objects.read_ahead(reference.location for reference in references)
            for reference, content in zip(references, contents, strict=True):
                yield pa.RecordBatch.from_pylist(list(entries_of(reference, content, reading)), schema=schema)


def entries_of(reference: Reference, content: bytes, reading: Reading) -> Iterator[Row]:
    """Give the entries of one reference from the bytes that it points to, as rows of `ENTRIES`.

    Raises:
        ObjectError: they are not what the reference describes.
    """
    rows, schema_text = read_referenced_rows(content, reference)
    restore = _schema_of(schema_text, reading.input).restore
    by_roots = reading.activity.identity == "root"
    user, date, hour = reference.partition.user, reference.partition.date, reference.partition.hour
    found: dict[tuple[str, int], tuple[list[int], list[int], list[int]]] = {}
    for row in rows:
        meta = row[META]
        origin = (meta["root"] if by_roots else None) or meta
        offsets, indexes, sizes = found.setdefault((origin["topic"], origin["partition"]), ([], [], []))
        offsets.append(origin["offset"])
        indexes.append(meta["index"])
        sizes.append(size_of(restore(row)))
    for (topic, partition), (offsets, indexes, sizes) in sorted(found.items()):
        row = {"user": user, "date": date, "hour": hour, "topic": topic, "partition": partition}
        yield row | {"offsets": offsets, "indexes": indexes, "sizes": sizes}


def size_of(entry: object) -> int:
    """Give the size of an entry in bytes: its JSON text in the form of `service.audit.equal`, in UTF-8.

    So entries that are equal (DESIGN 3.2) have one size, whichever file they are read from: no spaces, no nulls,
    whole numbers by their digits.
    """
    text = json.dumps(entry, ensure_ascii=False, separators=(",", ":"), check_circular=False)
    return len(text.encode("utf-8", "surrogatepass"))


@lru_cache(maxsize=4096)
def _schema_of(text: str, settings: InputSettings) -> PublishedSchema:
    return PublishedSchema(text, Decoder(settings).parse)
