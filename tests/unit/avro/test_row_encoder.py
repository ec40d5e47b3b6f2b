"""Rows in bytes by literal cases; their laws are in tests/property."""

import pytest

from log_partitioner.avro.infer import TooDeepError
from log_partitioner.avro.row_encoder import entry_encoder
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
