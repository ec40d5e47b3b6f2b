"""Long, double and string in Avro's binary form, by the examples of its specification."""

import pytest

from log_partitioner.avro.binary import (
    decode_double,
    decode_long,
    decode_string,
    encode_long,
    encode_string,
    pack_double,
)

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


@pytest.mark.parametrize("value", INT64)
def test_long_anywhere_in_int64_reads_back_where_it_stands(value: int) -> None:
    """Decoding gives the value and the position behind it."""
    data = b"x" + encode_long(value) + b"y"
    assert decode_long(data, 1) == (value, len(data) - 1)


@pytest.mark.parametrize("value", [0.0, -0.0, 5e-324, 1.7976931348623157e308, 0.1])
def test_double_reads_back_bit_by_bit(value: float) -> None:
    """Eight bytes, little-endian."""
    data = b"x" + pack_double(value)
    assert repr(decode_double(data, 1)) == repr((value, 9))


@pytest.mark.parametrize("value", ["", "a", "é", "😀\0\n", "x" * 200])
def test_string_reads_back_with_its_length_in_bytes(value: str) -> None:
    """The length counts bytes, not characters."""
    data = encode_string(value)
    assert decode_string(data + b"z", 0) == (value, len(data))
