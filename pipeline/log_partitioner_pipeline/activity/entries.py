"""References -> the entries that they hold: user, hour, first place, and size in bytes.

Owns the entry as the unit of counting, and its size. Runs on the executors.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from log_partitioner.avro.schema import META
from log_partitioner.proof.oracle.decode import Decoder
from log_partitioner.proof.oracle.equal import NUMBER_KEY
from log_partitioner.proof.oracle.published_schema import PublishedSchema
from log_partitioner_pipeline.objects import Objects
from log_partitioner_pipeline.pieces import decode_share
from log_partitioner_pipeline.rows import open_piece

if TYPE_CHECKING:
    from log_partitioner.config.s3_settings import S3Settings
    from log_partitioner.config.settings import InputSettings
    from log_partitioner.proof.oracle.published_schema import Restore
    from log_partitioner_pipeline.config import ActivitySettings
    from log_partitioner_pipeline.objects import Content
    from log_partitioner_pipeline.pieces import ReadGroup, ReferencePart

Row = dict[str, Any]

# One row for each reference and TopicPartition where its entries first were; the arrays go together. `indexes` are
# those of entries in their records, see `_index_of`.
ENTRIES = T.StructType(
    [
        T.StructField("user", T.StringType()),
        T.StructField("date", T.StringType()),
        T.StructField("hour", T.IntegerType()),
        T.StructField("topic", T.StringType()),
        T.StructField("partition", T.IntegerType()),
        T.StructField("offsets", T.ArrayType(T.LongType())),
        T.StructField("indexes", T.ArrayType(T.LongType())),
        T.StructField("sizes", T.ArrayType(T.LongType())),
    ]
)
_ARROW_ENTRIES = to_arrow_schema(ENTRIES)
_ENTRIES_PER_BATCH = 8192
_INDEX_BITS = 31  # an index of Avro's int
# What stands around a number that is kept as text; in a text of an entry the quotes would be escaped.
_NUMBER_BEGINS = f'{{"{NUMBER_KEY}":"'
_NUMBER_BYTES = len(f'{_NUMBER_BEGINS}"}}'.encode("utf-8", "surrogatepass"))


class Reading(NamedTuple):
    """The settings with which an executor reads references."""

    s3: S3Settings
    input: InputSettings
    activity: ActivitySettings


def read_entries(
    numbers: Iterable[pa.RecordBatch], *, encoded: list[bytes], reading: Reading
) -> Iterator[pa.RecordBatch]:
    """Read the entries of the shares with these numbers (`pieces.encode_share`), as rows of `ENTRIES`.

    Raises:
        ObjectError: an object is absent, altered or unreadable.
    """
    objects = Objects(reading.s3)
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            for piece, content in objects.read_ahead(decode_share(encoded[number])):
                yield from _batches(entries_of(piece, content, reading))


def _batches(rows: Iterable[Row]) -> Iterator[pa.RecordBatch]:
    gathered: list[Row] = []
    entries = 0
    for row in rows:
        gathered.append(row)
        entries += len(row["offsets"])
        if entries >= _ENTRIES_PER_BATCH:
            yield pa.RecordBatch.from_pylist(gathered, _ARROW_ENTRIES)
            gathered, entries = [], 0
    if gathered:
        yield pa.RecordBatch.from_pylist(gathered, _ARROW_ENTRIES)


def entries_of(piece: ReadGroup, content: Content, reading: Reading) -> Iterator[Row]:
    """Yield the entries of the references of a piece from its bytes, as rows of `ENTRIES`.

    Raises:
        ObjectError: they are not what a reference describes.
    """
    container = open_piece(piece, content)
    restore = _schema_of(container.schema_text, reading.input).restore
    for part in piece.parts:
        rows = (row for block in container.blocks_of(part) for row in block.rows)
        yield from _entries_of(part, rows, restore, by_roots=reading.activity.identity == "root")


def _entries_of(part: ReferencePart, rows: Iterable[Row], restore: Restore, *, by_roots: bool) -> Iterator[Row]:
    found: dict[tuple[str, int], tuple[list[int], list[int], list[int]]] = {}
    for row in rows:
        meta = row[META]
        root = meta["root"] if by_roots else None
        origin = root or meta
        offsets, indexes, sizes = found.setdefault((origin["topic"], origin["partition"]), ([], [], []))
        offsets.append(origin["offset"])
        indexes.append(_index_of(meta["index"], root))
        sizes.append(size_of(restore(row)))
    for (topic, partition), (offsets, indexes, sizes) in sorted(found.items()):
        row = part.partition_key._asdict() | {"topic": topic, "partition": partition}
        yield row | {"offsets": offsets, "indexes": indexes, "sizes": sizes}


def _index_of(index: int, root: Row | None) -> int:
    """Number an entry among all entries of its root record, from which a republisher may make several records."""
    if root is None or root["index"] is None:
        return index
    output: int = root["index"]
    return (output + 1 << _INDEX_BITS) + index


def size_of(entry: object) -> int:
    """Return the size of an entry in bytes: its JSON text in the form of `proof.oracle.equal`, in UTF-8.

    So equal entries (DESIGN 3.2) have one size, whichever file they are read from: no spaces, no nulls, whole numbers
    by their digits, and numbers that no double holds by their own text.
    """
    text = json.dumps(entry, ensure_ascii=False, separators=(",", ":"), check_circular=False)
    size = len(text.encode("utf-8", "surrogatepass"))
    return size - _NUMBER_BYTES * text.count(_NUMBER_BEGINS) if NUMBER_KEY in text else size


@lru_cache(maxsize=4096)
def _schema_of(text: str, settings: InputSettings) -> PublishedSchema:
    return PublishedSchema(text, Decoder(settings).parse)
