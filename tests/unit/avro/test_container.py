"""The Avro container file in bytes; that another reader reads it is in tests/property."""

import pytest
from backports import zstd

from log_partitioner.avro import container
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
