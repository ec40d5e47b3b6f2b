"""Long, double and string in Avro's binary form, by the examples of its specification."""

import io

import fastavro
import pytest

from log_partitioner.avro.binary import encode_long, encode_string, pack_double

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
    ("kind", "value", "encoded"),
    [
        *(("long", value, encode_long(value)) for value in INT64),
        *(("double", value, pack_double(value)) for value in (0.0, -0.0, 5e-324, 1.7976931348623157e308, 0.1)),
        *(("string", value, encode_string(value)) for value in ("", "a", "\u00e9", "\U0001f600\0\n", "x" * 200)),
    ],
)
def test_value_of_each_kind_is_read_back_by_another_reader(kind: str, value: object, encoded: bytes) -> None:
    """Bit by bit, and to its last byte; the length of a string counts bytes, not characters."""
    stream = io.BytesIO(encoded + b"y")
    assert repr(fastavro.schemaless_reader(stream, kind, None)) == repr(value)
    assert stream.read() == b"y"
