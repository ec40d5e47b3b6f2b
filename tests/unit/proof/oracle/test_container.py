"""Blocks of a container file by position, written by fastavro."""

from __future__ import annotations

import io
from typing import Any

import fastavro
import pytest

from log_partitioner.proof.oracle.container import Container

SCHEMA = fastavro.parse_schema({"type": "record", "name": "r", "fields": [{"name": "n", "type": "long"}]})
ROWS = [{"n": number} for number in range(1000)]


def written(codec: str = "null") -> bytes:
    stream = io.BytesIO()
    fastavro.writer(stream, SCHEMA, ROWS, codec=codec, sync_interval=200)
    return stream.getvalue()


def blocks_of(data: bytes) -> list[tuple[int, int]]:
    return [(block.offset, block.offset + block.size) for block in fastavro.block_reader(io.BytesIO(data))]


def read(data: bytes, begin: int, end: int) -> list[Any]:
    return list(Container(data).rows(begin, end, SCHEMA))


@pytest.mark.parametrize("codec", ["null", "deflate", "zstandard"])
def test_rows_of_all_blocks_are_those_written(codec: str) -> None:
    """Every codec that the worker writes."""
    data = written(codec)
    container = Container(data)
    assert container.header_bytes == blocks_of(data)[0][0]
    assert list(container.rows(container.header_bytes, container.size, SCHEMA)) == ROWS


def test_rows_of_one_block_are_read_alone() -> None:
    """By its position, in any order."""
    data = written()
    spans = blocks_of(data)
    assert len(spans) > 2
    parts = [read(data, begin, end) for begin, end in spans[::-1]][::-1]
    assert [row for part in parts for row in part] == ROWS


@pytest.mark.parametrize(("begin", "end"), [(1, 0), (0, -1), (0, 1), (-1, 0)])
def test_range_that_is_not_of_whole_blocks_is_refused(begin: int, end: int) -> None:
    """A byte more or less on either side."""
    data = written()
    first, second = blocks_of(data)[1]
    with pytest.raises((ValueError, EOFError, OverflowError, MemoryError)):
        read(data, first + begin, second + end)


def test_damage_is_refused() -> None:
    """Another sync marker, another beginning, fewer bytes."""
    data = written()
    (first, second), *_ = blocks_of(data)
    for broken in (data[: second - 1] + b"\xff" + data[second:], b"obj\1" + data[4:], data[: second - 1]):
        with pytest.raises((ValueError, EOFError)):
            read(broken, first, second)
