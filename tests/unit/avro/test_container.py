"""The Avro container file in bytes."""

import io

import fastavro
import pytest
from backports import zstd

from service.avro import container
from service.avro.binary import encode_string
from service.avro.container import Codec

SYNC = bytes(range(16))
SCHEMA = '{"type":"record","name":"r","fields":[{"name":"a","type":"string"}]}'


@pytest.mark.parametrize("codec", ["zstandard", "deflate", "null"])
def test_file_of_header_and_blocks_is_read_by_fastavro(codec: Codec) -> None:
    """Two blocks, our own metadata, every codec; one compressor makes all blocks."""
    rows = [encode_string("x" * n) for n in range(50)]
    compress = container.compressor(codec)
    data = container.header(SCHEMA, codec=codec, sync=SYNC, metadata={"batch": "b1"})
    data += container.block(30, b"".join(rows[:30]), compress=compress, sync=SYNC)
    data += container.block(20, bytearray(b"".join(rows[30:])), compress=compress, sync=SYNC)
    reader = fastavro.reader(io.BytesIO(data))
    assert [row["a"] for row in reader] == ["x" * n for n in range(50)]
    assert reader.metadata["batch"] == "b1"


@pytest.mark.parametrize("codec", ["zstandard", "deflate", "null"])
def test_compressed_bytes_decompress_to_what_they_were(codec: Codec) -> None:
    """`decompress` undoes each block by itself, in any order; an empty one too."""
    compress = container.compressor(codec)
    blocks = [b"abc" * 1000, b"", b"abc" * 1000, bytes(range(256)) * 300]
    packed = [compress(data) for data in blocks]
    assert [container.decompress(data, codec) for data in reversed(packed)] == blocks[::-1]
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
