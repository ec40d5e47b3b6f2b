"""Rows in bytes by literal cases; their laws are in tests/property."""

from functools import partial
from typing import Any

import pytest

from log_partitioner.avro.infer import TooDeepError
from log_partitioner.avro.row_encoder import (
    EntryEncoder,
    compile_encoder,
    entry_encoder,
    exact_encoder,
    walk_entry,
)
from log_partitioner.avro.schema_types import ArrayType, MapType, RecordType, Scalar
from log_partitioner.config.settings import SchemaBounds

T = Scalar
LIMITS = SchemaBounds(depth_max=3, object_keys_max=2, json_depth_max=4)


@pytest.mark.parametrize("is_compiled", [False, True])
def test_json_value_that_nests_too_deep_is_refused(*, is_compiled: bool) -> None:
    """The limit holds inside of JSON text, too."""
    kind, out = RecordType({"f": T.JSON}), bytearray()
    encode = compile_encoder(kind, LIMITS) if is_compiled else partial(walk_entry, kind, limits=LIMITS)
    encode({"f": [[[1]]]}, out=out)
    assert out.endswith(b"[[[1]]]")
    with pytest.raises(TooDeepError):
        encode({"f": [[[[]]]]}, out=out)


def test_encoder_of_a_type_is_one_for_all_who_ask() -> None:
    """Types are interned by value: compiled once, used by every file."""
    kind = RecordType({"some": T.BOOL, "fields": T.STRING})
    again = RecordType({"fields": T.STRING, "some": T.BOOL})
    assert isinstance(entry_encoder(kind, LIMITS), EntryEncoder)
    assert entry_encoder(kind, LIMITS) is entry_encoder(again, LIMITS)
    assert entry_encoder(kind, LIMITS) is not entry_encoder(kind, LIMITS._replace(depth_max=2))


def test_type_of_thousands_of_fields_is_compiled() -> None:
    """As many as the largest schema may have, and more."""
    kind = RecordType({f"f{n:05}": T.NULL for n in range(3_000)})
    out = bytearray()
    compile_encoder(kind, LIMITS)({}, out)
    assert out == bytes(3_000)


@pytest.mark.parametrize("name", ["'", '"', "\\", "\n", "{x}", "%s", "\u2028", "None", "class", "__import__('os')"])
def test_keys_of_any_spelling_are_data_in_generated_code(name: str) -> None:
    """Keys stand in the generated source as literals only."""
    out = bytearray()
    compile_encoder(RecordType({name: RecordType({name: T.STRING})}), LIMITS)({name: {name: "v"}}, out)
    exact = bytearray()
    kind = RecordType({name: T.STRING})
    exact_encoder(kind, kind, LIMITS)({name: "v"}, exact)
    assert (out, exact) == (b"\2\2\2v", b"\2\2v")


def test_deeply_nested_type_is_compiled() -> None:
    """Python allows twenty nested blocks; types may nest deeper than that."""
    kind: Any = T.BOOL
    value: Any = True
    for level in range(31):
        kind = (ArrayType, MapType, lambda child: RecordType({"a": child}))[level % 3](kind)
        value = ([value], {"k": value}, {"a": value})[level % 3]
    limits = SchemaBounds(32, 10, 40)
    walked, compiled = bytearray(), bytearray()
    walk_entry(RecordType({"f": kind}), {"f": value}, walked, limits)
    compile_encoder(RecordType({"f": kind}), limits)({"f": value}, compiled)
    assert compiled == walked
