"""Hypothesis strategies for what flows through core: JSON values, entries, types of the lattice; and how it is sealed.

Names and bounds are few and small on purpose: fields have to meet, and limits have to be reached.
"""

from __future__ import annotations

import json
import struct
from base64 import b64encode
from collections.abc import Iterable
from typing import Any, cast

import msgspec
from hypothesis import settings
from hypothesis import strategies as st

from log_partitioner.avro.binary import encode_long, encode_string, pack_double
from log_partitioner.avro.entry_types import EntryTypes
from log_partitioner.avro.infer import INT64_MAX, INT64_MIN, LONG53_MAX
from log_partitioner.avro.schema_types import ArrayType, MapType, RecordType, Scalar, Type
from log_partitioner.batch.pack_plan import SealRules
from log_partitioner.batch.reference_lines import Spans
from log_partitioner.batch.rows import Rows
from log_partitioner.batch.seal import SealedObject, seal
from log_partitioner.batch.types import make_types
from log_partitioner.boundary import BatchSpool
from log_partitioner.config.settings import Layout, SchemaBounds
from log_partitioner.formats.model import PartitionKey, SourceRecord, TopicPartition
from log_partitioner.formats.values import Bytes, Date, Decimal, DeclaredMap, Timestamp
from log_partitioner.input.json_text import JsonDecoder


def times_as_many(factor: int) -> settings:
    """Take more examples than the profile says, for a test that is cheap or looks for something rare."""
    return settings(max_examples=factor * settings.default.max_examples)


LIMITS = SchemaBounds(depth_max=3, object_keys_max=3, json_depth_max=6)

texts = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(
    ["", " a\n", "\0", "{}", "1"]
)
names = st.sampled_from(["a", "b", "c", "A", "a-b", "a_x2Db", "_meta", "1", "é", "x.y", ""]) | texts
integers = st.sampled_from(
    [0, 1, -1, LONG53_MAX, -LONG53_MAX, LONG53_MAX + 1, INT64_MAX, INT64_MIN, INT64_MAX + 1, INT64_MIN - 1, 10**40]
) | st.integers(-(2**70), 2**70)
floats = st.floats(allow_nan=False, allow_infinity=False)
numbers_as_text = st.sampled_from([b"1e400", b"-1e999", b"0.1234567890123456789012345", b"1e-400"]).map(msgspec.Raw)
declared_scalars: dict[Scalar, st.SearchStrategy[Any]] = {
    Scalar.BYTES: st.binary(max_size=5).map(lambda data: Bytes(b64encode(data).decode())),
    Scalar.DECIMAL: st.decimals(allow_nan=False, allow_infinity=False).map(lambda number: Decimal(str(number))),
    Scalar.TIMESTAMP: st.datetimes().map(lambda moment: Timestamp(f"{moment.isoformat(timespec='microseconds')}Z")),
    Scalar.DATE: st.dates().map(lambda day: Date(day.isoformat())),
}
json_scalars = st.none() | st.booleans() | integers | floats | texts | numbers_as_text
scalars = json_scalars | st.one_of(*declared_scalars.values())


def values(*, leaves: int = 12) -> st.SearchStrategy[Any]:
    """Make any value that decoding yields."""
    return st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=4) | objects(inner, keys_max=5),
        max_leaves=leaves,
    )


def objects(inner: st.SearchStrategy[Any], *, keys_max: int) -> st.SearchStrategy[dict[str, Any]]:
    """Make an object, or a map by declaration."""
    some = st.dictionaries(names, inner, max_size=keys_max)
    return some | some.map(DeclaredMap)


def entries(*, leaves: int = 12) -> st.SearchStrategy[dict[str, Any]]:
    """Make an entry of any shape."""
    return st.dictionaries(names, values(leaves=leaves), max_size=5)


def json_values() -> st.SearchStrategy[Any]:
    """Make what `json.dumps` writes and `json.loads` reads back."""
    return st.recursive(
        st.none() | st.booleans() | st.integers(-(2**70), 2**70) | floats | texts,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4),
        max_leaves=10,
    )


def types(limits: SchemaBounds = LIMITS, *, depth: int = 2) -> st.SearchStrategy[Type]:
    """Make a type that can stand at `depth`: nothing with parts beyond the depth rule, no record with too many keys."""
    plain: st.SearchStrategy[Type] = st.sampled_from(list(Scalar))
    if depth > limits.depth_max:
        return plain
    inner = types(limits, depth=depth + 1)
    return (
        plain
        | record_types(inner, keys_max=limits.object_keys_max)
        | st.builds(ArrayType, inner)
        | st.builds(MapType, inner)
    )


def record_types(inner: st.SearchStrategy[Type], *, keys_max: int) -> st.SearchStrategy[RecordType]:
    """Make a record of such fields."""
    return st.dictionaries(names, inner, max_size=keys_max).map(RecordType)


def entry_types(limits: SchemaBounds = LIMITS) -> st.SearchStrategy[RecordType]:
    """Make the type of an entry; its top level may have any number of keys."""
    return record_types(types(limits), keys_max=6)


@st.composite
def entries_near(draw: st.DrawFn, record: RecordType) -> dict[str, Any]:
    """Make an entry that fits a type, or nearly does."""
    entry = {name: draw(_near(child)) for name, child in record.by_name.items() if draw(st.booleans())}
    if draw(st.integers(0, 7)) == 0:
        entry |= draw(entries(leaves=4))
    return entry


def _near(child: Type) -> st.SearchStrategy[Any]:
    exact = _fitting(child)
    return st.integers(0, 11).flatmap(lambda dice: values(leaves=3) if dice == 0 else st.none() if dice == 1 else exact)


def _fitting(child: Type) -> st.SearchStrategy[Any]:
    if isinstance(child, RecordType):
        return entries_near(child)
    if isinstance(child, ArrayType):
        return st.lists(_near(child.item), max_size=3)
    if isinstance(child, MapType):
        return objects(_near(child.value), keys_max=6)
    return {
        **declared_scalars,
        Scalar.NULL: st.none(),
        Scalar.BOOL: st.booleans(),
        Scalar.LONG53: st.integers(-LONG53_MAX, LONG53_MAX),
        Scalar.LONG64: st.integers(INT64_MIN, INT64_MAX),
        Scalar.DOUBLE: floats | st.integers(-LONG53_MAX, LONG53_MAX),
        Scalar.STRING: texts,
        Scalar.JSON: values(leaves=6),
    }[child]


SCHEMA_BOUNDS = SchemaBounds(16, 500, 100)


def seal_rules(
    *,
    bounds: SchemaBounds = SCHEMA_BOUNDS,
    layout: str = "auto",
    packed_bytes_max: int = 2**20,
    object_bytes_max: int = 2**26,
    pack_bytes_max: int = 2**25,
    **rules: Any,
) -> SealRules:
    """Give the rules of sealing, as a worker has them by default, but for the codec."""
    usual = {
        "codec": "null",
        "block_bytes": 2**16,
        "line_bytes_max": 600_000,
        "group_bytes_max": 600_000,
        "schema_texts_min": 0,
        "decode": decode_again,
    }
    sizes = {
        "packed_bytes_max": packed_bytes_max,
        "object_bytes_max": object_bytes_max,
        "pack_bytes_max": pack_bytes_max,
    }
    return SealRules(bounds=bounds, layout=cast("Layout", layout), **{**usual, **sizes, **rules})


decode_again = JsonDecoder(keep_inexact_text=True).decode_again
"""Reads the text of a row."""


A = TopicPartition("app", 0)
HOUR_10_US = 1_714_557_600_000_000


def empty_rows(*, is_fast: bool = False, bounds: SchemaBounds = SCHEMA_BOUNDS) -> Rows:
    """Make rows as a batch begins with."""
    return Rows(make_types(bounds, is_fast=is_fast))


def keyed_rows(
    some: Iterable[tuple[str, int, dict[str, Any]]],
    *,
    bounds: SchemaBounds = SCHEMA_BOUNDS,
    is_fast: bool = False,
    size: int | None = None,
    topics: int = 1,
) -> Rows:
    """Make rows of (user, hour, entry), one of each record; with a size their texts are only so long."""
    made, types = empty_rows(is_fast=is_fast, bounds=bounds), EntryTypes(bounds)
    for offset, (user, hour, entry) in enumerate(some):
        tp = A if topics == 1 else TopicPartition(f"topic-{offset % topics}", 0)
        text = json.dumps(entry).encode() if size is None else b"x" * size
        key = PartitionKey(user, "2024-05-01", hour)
        made.add(SourceRecord(tp, offset, None, None, None, ()), 0, key, types.of(entry), text, HOUR_10_US)
    return made


def sealed_objects(
    rows: Rows,
    spool: BatchSpool,
    rules: SealRules,
    *,
    spans: Spans | None = None,
) -> list[SealedObject]:
    """Seal rows as one batch, and give its objects in the order in which they were finished."""
    spans = dict.fromkeys(rows.tps, (0, 2**62)) if spans is None else spans
    steps = list(seal(rows, spool, spans, rules, batch_id="b1"))
    assert [step.rows for step in steps] == sorted(step.rows for step in steps), "rows are counted as they are written"
    assert not steps or steps[-1].rows == len(rows)
    return [step.finished for step in steps if step.finished is not None]


AVRO_LOGICAL: list[Any] = [
    {"type": "int", "logicalType": "date"},
    {"type": "int", "logicalType": "time-millis"},
    {"type": "int", "logicalType": "timestamp-millis"},  # not valid: a plain int
    *({"type": "long", "logicalType": f"{name}-{unit}"} for name in ("timestamp", "local-timestamp", "time")
      for unit in ("millis", "micros", "nanos")),
    {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 3},
    {"type": "bytes", "logicalType": "decimal", "precision": 90, "scale": 80},
    {"type": "bytes", "logicalType": "decimal", "precision": 4},
    {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 5},  # not valid
    {"type": "bytes", "logicalType": "decimal"},
    {"type": "bytes", "logicalType": "big-decimal"},
    {"type": "string", "logicalType": "uuid"},
    {"type": {"type": "string"}, "avro.java.string": "String"},
]  # fmt: skip
AVRO_FIXED: list[Any] = [
    {"size": 0}, {"size": 3}, {"size": 12, "logicalType": "duration"}, {"size": 16, "logicalType": "uuid"},
    {"size": 4, "logicalType": "decimal", "precision": 9, "scale": 2}, {"size": 5, "logicalType": "uuid"},
]  # fmt: skip
AVRO_PRIMITIVES = ["null", "boolean", "int", "long", "float", "double", "bytes", "string"]
_AVRO_LONGS = st.integers(INT64_MIN, INT64_MAX) | st.integers(-(10**15), 10**15) | st.integers(-(10**17), 10**17)


@st.composite
def avro_schemas(draw: st.DrawFn, *, depth: int = 3, named: list[str] | None = None) -> Any:
    """Make a schema of Avro, any type within any other; records may hold themselves."""
    named = [] if named is None else named
    kinds = ["primitive", "logical", "fixed", "enum", "record", "array", "map", "union", "known"]
    kind = draw(st.sampled_from(kinds if depth else kinds[:4]))
    inner = avro_schemas(depth=depth - 1, named=named)
    if kind == "primitive" or (kind == "known" and not named):
        return draw(st.sampled_from(AVRO_PRIMITIVES))
    if kind == "logical":
        return draw(st.sampled_from(AVRO_LOGICAL))
    if kind == "known":
        return draw(st.sampled_from(named))
    if kind in ("array", "map"):
        return {"type": kind, "items" if kind == "array" else "values": draw(inner)}
    if kind == "union":
        return draw(avro_unions(inner))
    name = f"x.y.{kind}{len(named)}"
    named.append(name)
    space, _, short = name.rpartition(".")
    head = {"type": kind, **draw(st.sampled_from([{"name": name}, {"name": short, "namespace": space}]))}
    if kind == "fixed":
        return head | draw(st.sampled_from(AVRO_FIXED))
    if kind == "enum":
        return head | {"symbols": ["RED", "GREEN"][: draw(st.integers(1, 2))]}
    keys = draw(st.lists(st.sampled_from(["a", "b", "c", "user", "time"]), unique=True, max_size=4))
    return head | {"fields": [{"name": key, "type": draw(inner)} for key in keys]}


@st.composite
def avro_unions(draw: st.DrawFn, inner: st.SearchStrategy[Any]) -> list[Any]:
    """Make a union, mostly with null; no branch is a union, and each is of another kind or has another name."""
    branches = {str(kind_of_avro(one)): one for one in draw(st.lists(inner, max_size=3)) if not isinstance(one, list)}
    branches |= {"null": "null"} if draw(st.booleans()) or not branches else {}
    return draw(st.permutations([*branches.values()]))


def kind_of_avro(schema: Any) -> Any:
    """Return what branches of a union differ by: the name of a type that has one, or the kind."""
    while isinstance(schema, dict) and "name" not in schema:
        schema = schema["type"]
    return f"{schema.get('namespace', 'x.y')}.{schema['name']}".split(".")[-1] if isinstance(schema, dict) else schema


def settled(schema: Any, named: dict[str, Any]) -> Any:
    """Return a schema in which a name that nothing before it defines is `long`; `named` gets what it defines."""
    if isinstance(schema, list):
        return [settled(branch, named) for branch in schema]
    if isinstance(schema, str):
        return schema if schema in named or schema in AVRO_PRIMITIVES else "long"
    if "name" in schema:
        made = {**schema}
        named[schema["name"] if "." in schema["name"] else f"{schema['namespace']}.{schema['name']}"] = made
        made["fields"] = [{**field, "type": settled(field["type"], named)} for field in schema.get("fields", ())]
        return made
    return schema | {part: settled(schema[part], named) for part in ("items", "values") if part in schema}


@st.composite
def avro_inputs(draw: st.DrawFn) -> tuple[Any, bytes]:
    """Make a schema, and write a value of it."""
    named: dict[str, Any] = {}
    schema = settled(draw(avro_schemas()), named)
    return schema, draw(avro_payloads(schema, named))


@st.composite
def avro_payloads(draw: st.DrawFn, schema: Any, named: dict[str, Any], depth: int = 6) -> bytes:
    """Write a value of a schema; one that nests without end is cut."""
    if isinstance(schema, list):
        ends = [n for n, one in enumerate(schema) if one == "null"] if depth < 0 else []
        number = draw(st.sampled_from(ends or range(len(schema))))
        return encode_long(number) + draw(avro_payloads(schema[number], named, depth))
    if isinstance(schema, str):
        if schema in named:
            return draw(avro_payloads(named[schema], named, depth)) if depth > -4 else b""
        return draw(_AVRO_PLAIN[schema])
    kind = schema["type"]
    inner = depth - 1
    if kind in ("array", "map"):
        items = []
        for _ in range(draw(st.integers(0, 3 if depth > 0 else 0))):
            key = encode_string(draw(texts)) if kind == "map" else b""
            items.append(key + draw(avro_payloads(schema["items" if kind == "array" else "values"], named, inner)))
        written = b"".join(items)
        head = encode_long(len(items))
        if items and draw(st.booleans()):
            head = encode_long(-len(items)) + encode_long(len(written))
        return (head + written if items else b"") + b"\0"
    if kind == "fixed":
        return draw(st.binary(min_size=schema["size"], max_size=schema["size"]))
    if kind == "enum":
        return encode_long(draw(st.integers(0, len(schema["symbols"]) - 1)))
    if kind == "record":
        return b"".join(draw(avro_payloads(field["type"], named, inner)) for field in schema["fields"])
    return draw(avro_payloads(kind, named, depth))


_AVRO_PLAIN: dict[str, st.SearchStrategy[bytes]] = {
    "null": st.just(b""),
    "boolean": st.sampled_from([b"\0", b"\1"]),
    "int": st.integers(-(2**31), 2**31 - 1).map(encode_long),
    "long": _AVRO_LONGS.map(encode_long),
    "float": st.floats(width=32).map(lambda number: struct.pack("<f", number)),
    "double": st.floats().map(pack_double),
    "bytes": st.binary(max_size=6).map(lambda data: encode_long(len(data)) + data),
    "string": texts.map(encode_string),
}
