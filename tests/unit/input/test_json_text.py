"""JSON text to values: exact numbers, and hostile text that is split (docs/INPUTS.md, DESIGN 4.5)."""

from typing import Any

import msgspec
import pytest

from log_partitioner.input.json_text import FAST_REFUSALS, JsonDecoder, UndecodableError, split_array

ROUNDING = JsonDecoder(keep_inexact_text=False)
KEEPING = JsonDecoder(keep_inexact_text=True)


def decoded(decoder: JsonDecoder, text: bytes) -> Any:
    """Decode as the record decoder does: fast, then tolerant."""
    try:
        return decoder.decode_fast(text)
    except FAST_REFUSALS:
        return decoder.decode_tolerant(text)


@pytest.mark.parametrize("text", [b"9007199254740993", b"-9223372036854775809", b"18446744073709551616", b"1" * 4300])
def test_integer_of_any_size_is_exact(text: bytes) -> None:
    """Integers beyond 2^53, int64 and uint64 keep every digit."""
    assert decoded(ROUNDING, text) == int(text)


@pytest.mark.parametrize("text", [b"1e400", b"-1e400", b"1" * 400 + b".0", b"1e99999999999999999999999", b"7" * 5000])
def test_number_beyond_the_doubles_is_kept_as_text_in_any_case(text: bytes) -> None:
    """There is no infinity in JSON to round to; nor does Python make an int of 5,000 digits (CVE-2020-10735)."""
    for decoder in (ROUNDING, KEEPING):
        value = decoded(decoder, text)
        assert isinstance(value, msgspec.Raw)
        assert bytes(value) == text


@pytest.mark.parametrize(
    "text",
    [
        b"0.12345678901234567890",
        b"9.291417776317066",  # sixteen digits: ...067 is the nearest that a double holds
        b"1e-400",
        b"9.87654321e-320",
        b"1e-99999999999999999999999",
        b"3.14159265358979323846",
    ],
)
def test_number_that_a_double_does_not_hold_is_rounded_and_counted_or_kept(text: bytes) -> None:
    """By setting: rounded to binary64 and counted, or kept as its text; so is a number that underflows."""
    decoder = JsonDecoder(keep_inexact_text=False)
    assert decoded(decoder, text) == float(text)
    assert decoder.rounded == 1
    assert bytes(decoded(KEEPING, text)) == text


@pytest.mark.parametrize(
    "text",
    [b"0.1", b"1e22", b"-0.0", b"0.30000000000000004", b"5e-324", b"0e99999999999999999999", b"123456789012345.5",
     b"1.7976931348623157e308", b"0.0000000000000000000000000000"],
)  # fmt: skip
def test_number_that_a_double_holds_is_a_float_and_not_counted(text: bytes) -> None:
    """A number that survives the way to a double and back is not kept as text."""
    decoder = JsonDecoder(keep_inexact_text=True)
    value = decoded(decoder, text)
    assert type(value) is float
    assert value == float(text)
    assert decoder.rounded == 0


@pytest.mark.parametrize(
    "text",
    [b'{"a": 1, "a": 1.50}', b'{"a": %s}' % (b"7" * 5000), b'{"a": 1e400}', b'{"a": 0.12345678901234567890}',
     b' {"a": -0.0, "b": 1e-400, "c": 18446744073709551616}', '{"é": "\u2028"}'.encode()],
)  # fmt: skip
@pytest.mark.parametrize("decoder", [ROUNDING, KEEPING])
def test_text_that_was_decoded_before_decodes_to_the_same_again(decoder: JsonDecoder, text: bytes) -> None:
    """Sealing reads what recording has read, whichever decoder had to; and what was encoded of it reads back, too."""
    value = decoded(decoder, text)
    again = decoder.decode_again(text)
    assert {name: type(item) for name, item in again.items()} == {name: type(item) for name, item in value.items()}
    assert msgspec.json.encode(again) == msgspec.json.encode(value)
    assert msgspec.json.encode(decoder.decode_again(msgspec.json.encode(value))) == msgspec.json.encode(value)


def test_number_that_is_rounded_again_is_not_counted_again() -> None:
    """It is one number, however often a batch is sealed."""
    decoder = JsonDecoder(keep_inexact_text=False)
    assert decoder.decode_fast(b'{"a": 0.12345678901234567890}') == {"a": 0.12345678901234567890}
    assert decoder.decode_again(b'{"a": 0.12345678901234567890}') == {"a": 0.12345678901234567890}
    assert decoder.rounded == 1


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "text",
    [
        b'[1,"' + b'\\"' * 500_000 + b"]",
        b'["' + b"\\" * 1_000_001 + b'"]',
        b"[" * 200_000 + b"]" * 200_000,
        b'["' + b"a" * 2_000_000 + b'", x]',
    ],
)
def test_split_of_hostile_text_takes_linear_time(text: bytes) -> None:
    """A megabyte of quotes that never close, of backslashes or of brackets holds up no worker (DESIGN 4.5)."""
    try:
        parts = split_array(text, elements_max=4)
    except UndecodableError:
        parts = []
    assert len(parts) <= 4
