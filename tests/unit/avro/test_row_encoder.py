"""Rows in bytes by literal cases; their laws are in tests/property."""

from typing import Any

import msgspec
import pytest

from log_partitioner.avro.infer import TooDeepError
from log_partitioner.avro.row_encoder import SchemaMismatch, entry_encoder
from log_partitioner.avro.schema_types import RecordType, Scalar
from log_partitioner.config.settings import SchemaBounds

T = Scalar
LIMITS = SchemaBounds(depth_max=3, object_keys_max=2, json_depth_max=4)


def test_json_value_that_nests_too_deep_is_refused() -> None:
    """The limit holds inside of JSON text, too."""
    kind, out = RecordType({"f": T.JSON}), bytearray()
    encode = entry_encoder(kind, kind, LIMITS)
    encode({"f": [[[1]]]}, out)
    assert out.endswith(b"[[[1]]]")
    with pytest.raises(TooDeepError):
        encode({"f": [[[[]]]]}, out)


def test_fields_of_others_are_null() -> None:
    """Before, between and behind those of the exact type."""
    out = bytearray()
    own = RecordType({"b": T.BOOL, "d": T.BOOL})
    entry_encoder(own, RecordType(dict.fromkeys("abcdef", T.BOOL)), LIMITS)({"b": True, "d": False}, out)
    assert out == b"\0\2\1\0\2\0\0\0"


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        *[(T.BYTES, one) for one in ["/w", "/w=", "/x==", "/w==\n", "_w==", "/w==/w==", "é", " "]],
        *[(T.DECIMAL, one) for one in ["", "+1", ".5", "1.", "1_0", "NaN", "Infinity", "1 ", "0x1", "\u0661", "1e"]],
        *[
            (T.TIMESTAMP, f"2026-03-04T05:06:07{one}")
            for one in [
                "",
                "Z",
                ".000Z",
                ".000000",
                ".000000z",
                ".0000000Z",
                ".000000ZZ",
                ".000000+00:00",
                ".000000+01:00Z",
            ]
        ],
        *[
            (T.TIMESTAMP, f"{one}.000000Z")
            for one in ["2026-03-04 05:06:07", "20260304T050607", "2026-02-29T00:00:00", "2026-03-04T24:00:00"]
        ],
        *[(T.TIMESTAMP, f"{one}-01-01T00:00:00.000000Z") for one in ["0000", "10000", "-001"]],
        *[
            (T.DATE, one)
            for one in ["2026-02-29", "20260304", "2026-W10-3", "2026-3-4", "0000-01-01", "10000-01-01", ""]
        ],
    ],
)
def test_text_that_a_type_does_not_write_is_refused(kind: Scalar, text: str) -> None:
    """One form each, so that equal values have equal texts."""
    _refuse(kind, text)


@pytest.mark.parametrize("kind", [T.BYTES, T.DECIMAL, T.TIMESTAMP, T.DATE])
@pytest.mark.parametrize("value", [1, 1.5, True, [], {}, msgspec.Raw(b"1e400")])
def test_value_that_is_no_text_is_refused(kind: Scalar, value: Any) -> None:
    """JSON writes the type as text."""
    _refuse(kind, value)


def _refuse(kind: Scalar, value: Any) -> None:
    own = RecordType({"f": kind})
    with pytest.raises(SchemaMismatch):
        entry_encoder(own, own, LIMITS)({"f": value}, bytearray())
