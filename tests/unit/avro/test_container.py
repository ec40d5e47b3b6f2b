"""Avro in bytes: the container file, which another reader reads in tests/property, and its numbers and texts."""

import io
from collections.abc import Callable
from typing import Any

import fastavro
import pytest
from backports import zstd

from log_partitioner.avro import container
from log_partitioner.avro.binary import encode_long, encode_string, pack_double
from log_partitioner.avro.container import Codec
from log_partitioner.proof.oracle.container import _CODECS

SYNC = bytes(range(16))
SCHEMA = '{"type":"record","name":"r","fields":[{"name":"a","type":"string"}]}'


@pytest.mark.parametrize("codec", ["zstandard", "deflate", "null"])
def test_compressed_bytes_decompress_to_what_they_were(codec: Codec) -> None:
    """Each block by itself, in any order; an empty one too."""
    compress = container.compressor(codec)
    blocks = [b"abc" * 1000, b"", b"abc" * 1000, bytes(range(256)) * 300]
    packed = [compress(data) for data in blocks]
    assert [_CODECS[codec](data) for data in reversed(packed)] == blocks[::-1]
    assert packed[0] == packed[2], "a block does not depend on those before it"


def test_zstandard_frame_says_how_long_its_content_is() -> None:
    """Some readers take a buffer of that size, and refuse a frame without it."""
    packed = container.compressor("zstandard")(b"abc" * 1000)
    assert zstd.get_frame_info(packed).decompressed_size == 3000


def test_compressor_does_not_keep_what_it_is_given() -> None:
    """A row buffer is used again; a block of codec null is a copy, too."""
    data = bytearray(b"abc")
    packed = container.compressor("null")(data)
    data[:] = b"xyz"
    assert packed == b"abc"


def test_block_without_rows_and_short_sync_marker_are_refused() -> None:
    """Some readers end at an empty block, and all count on sixteen bytes."""
    with pytest.raises(AssertionError, match="without rows"):
        container.block(0, b"", compress=bytes, sync=SYNC)
    with pytest.raises(AssertionError, match="sync marker"):
        container.header(SCHEMA, codec="null", sync=b"short", metadata={})


_EDGES = (0, 1, 64, 65, 8191, 8192, 8193, 2**14, 2**20, 2**31, 2**53, 2**62, 2**63 - 1)
INT64 = [*_EDGES, *(-edge for edge in _EDGES), -(2**63)]


@pytest.mark.parametrize(
    ("value", "encoded"),
    [(0, "00"), (-1, "01"), (1, "02"), (-2, "03"), (2, "04"),
     (-64, "7f"), (64, "8001"), (2**63 - 1, "fe" + 8 * "ff" + "01")],
)  # fmt: skip
def test_long_of_the_specification_is_encoded_as_there(value: int, encoded: str) -> None:
    """Zigzag, seven bits a byte, lowest first."""
    assert encode_long(value).hex() == encoded


@pytest.mark.parametrize(
    ("kind", "encode", "value"),
    [
        *(("long", encode_long, value) for value in INT64),
        *(("double", pack_double, value) for value in (0.0, -0.0, 5e-324, 1.7976931348623157e308, 0.1)),
        *(("string", encode_string, value) for value in ("", "a", "\u00e9", "\U0001f600\0\n", "x" * 200)),
    ],
)
def test_value_of_each_kind_is_read_back_by_another_reader(
    kind: str, encode: Callable[[Any], bytes], value: Any
) -> None:
    """Bit by bit, and to its last byte; the length of a string counts bytes, not characters."""
    stream = io.BytesIO(encode(value) + b"y")
    assert repr(fastavro.schemaless_reader(stream, kind, None)) == repr(value)
    assert stream.read() == b"y"
