"""The Avro container file in bytes."""

import io

import fastavro
import pytest

from service.core import container
from service.core.avro_binary import encode_string
from service.core.container import Codec

SYNC = bytes(range(16))
SCHEMA = '{"type":"record","name":"r","fields":[{"name":"a","type":"string"}]}'


@pytest.mark.parametrize("codec", ["zstandard", "deflate", "null"])
def test_file_of_header_and_blocks_is_read_by_fastavro(codec: Codec) -> None:
    """Two blocks, our own metadata, every codec."""
    rows = [encode_string("x" * n) for n in range(50)]
    data = container.header(SCHEMA, codec=codec, sync=SYNC, metadata={"batch": "b1"})
    data += container.block(30, b"".join(rows[:30]), codec=codec, sync=SYNC)
    data += container.block(20, b"".join(rows[30:]), codec=codec, sync=SYNC)
    reader = fastavro.reader(io.BytesIO(data))
    assert [row["a"] for row in reader] == ["x" * n for n in range(50)]
    assert reader.metadata["batch"] == "b1"


@pytest.mark.parametrize("codec", ["zstandard", "deflate", "null"])
def test_compressed_bytes_decompress_to_what_they_were(codec: Codec) -> None:
    """`decompress` undoes `compress`."""
    data = b"abc" * 1000
    assert container.decompress(container.compress(data, codec), codec) == data


def test_block_without_rows_and_short_sync_marker_are_refused() -> None:
    """Some readers end at an empty block, and all count on sixteen bytes."""
    with pytest.raises(AssertionError, match="without rows"):
        container.block(0, b"", codec="null", sync=SYNC)
    with pytest.raises(AssertionError, match="sync marker"):
        container.header(SCHEMA, codec="null", sync=b"short", metadata={})
