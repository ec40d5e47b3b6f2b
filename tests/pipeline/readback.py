"""The table as a test wants it: entries by where they stood in the source, each once."""

import io
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import fastavro
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from log_partitioner.proof.oracle.equal import canonical
from log_partitioner.proof.oracle.json_text import parse_rounding
from log_partitioner_pipeline.audit.in_table import columns_of
from log_partitioner_pipeline.columns import Struct, of_iceberg, restore
from log_partitioner_pipeline.objects import Content
from log_partitioner_pipeline.rows import Container
from log_partitioner_pipeline.session import CATALOG
from tests.pipeline.conftest import Lake

Places = dict[tuple[int, int, int], Any]
"""Entries in canonical form by (partition, offset, index)."""


def read_table(lake: Lake) -> Places:
    """Read every entry of the table through Spark; one that is there twice fails."""
    columns = columns_of(lake.spark.table(lake.table))
    return _places((row.asDict(recursive=True) for row in lake.spark.table(lake.table).collect()), columns)


def read_by_pyiceberg(lake: Lake) -> Places:
    """Read the same with an engine that shares nothing with Spark but the catalogue and the files."""
    with _table_of_pyiceberg(lake) as table:
        columns = of_iceberg(json.loads(table.schema().model_dump_json())["fields"])
        return _places((without_empty(row) for row in table.scan().to_arrow().to_pylist()), columns)


def read_counts_by_pyiceberg(lake: Lake) -> int:
    """Count rows with that engine, by reading one column of all files."""
    with _table_of_pyiceberg(lake) as table:
        return len(table.scan(selected_fields=("_reference",)).to_arrow())


def text_of(name: str, content: bytes) -> bytes:
    """Read a file of a table as text: rows of data, a manifest with its statistics, metadata as it is."""
    match name.rpartition(".")[2]:
        case "parquet":
            return repr(pq.read_table(io.BytesIO(content)).to_pylist()).encode()
        case "avro":
            return repr([*fastavro.reader(io.BytesIO(content))]).encode()
        case _:
            return content


@contextmanager
def pyiceberg_catalog(lake: Lake) -> Iterator[SqlCatalog]:
    """Open the lake's catalogue with PyIceberg."""
    s3 = lake.deployment.s3.endpoint
    catalog = SqlCatalog(
        CATALOG,
        uri=f"sqlite:///{lake.settings.pipeline.catalog.uri}",
        **{
            "s3.endpoint": s3.url,
            "s3.access-key-id": s3.access_key,
            "s3.secret-access-key": s3.secret_key,
            "s3.region": s3.region,
        },
    )
    try:
        yield catalog
    finally:
        catalog.close()


@contextmanager
def _table_of_pyiceberg(lake: Lake) -> Iterator[Table]:
    with pyiceberg_catalog(lake) as catalog:
        yield catalog.load_table(lake.settings.pipeline.table.name)


def without_empty(value: Any) -> Any:
    """Leave out empty arrays and objects, wherever they are.

    PyIceberg reads an absent array or map of records as an empty one (apache/iceberg-python#3833), so what it reads
    can only be compared like this.
    """
    if isinstance(value, dict):
        members = {key: without_empty(item) for key, item in value.items()}
        return {key: item for key, item in members.items() if item not in ([], {}, None)}
    return [without_empty(item) for item in value] if isinstance(value, list) else value


def _places(rows: Iterable[dict[str, Any]], columns: Struct) -> Places:
    found: Places = {}
    for row in rows:
        meta = row["_meta"]
        place = (meta["partition"], meta["offset"], meta["index"])
        assert place not in found, f"{place} is in the table twice"
        found[place] = canonical(restore(row, columns, parse_rounding))
    return found


def read_rows(content: bytes, where: str) -> tuple[list[dict[str, Any]], str]:
    """Read a whole Avro file as jobs do: rows by Avro names, and the schema text they were written with."""
    container = Container(Content(((0, content),)), where)
    return [row for block in container.blocks(((0, len(content)),)) for row in block.rows], container.schema_text
