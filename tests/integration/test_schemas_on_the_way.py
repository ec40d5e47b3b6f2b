"""The schema that each reference announces is that of the entries in its object, no more and no less.

The test infers schemas by a rule of its own: not entry by entry and joined, but from all values of a position at
once. A schema is compared as a set of paths with types: a key, `[]` for the items of an array, `{}` for the values
of a map.
"""

import hashlib
import io
import json
from collections.abc import Callable, Iterable, Iterator
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import fastavro
import pytest

from log_partitioner import zstd
from log_partitioner.avro.schema import row_schema, type_of
from log_partitioner.avro.schema_types import join_records
from tests.integration.harness import Deployment
from tests.integration.one_worker import run_through
from tests.integration.readback import ReadObject, read_objects
from tests.stack.kafka_helper import KafkaHelper, ToProduce
from tests.stack.names import Names
from tests.stack.real_logs import real_log_sets
from tests.stack.s3_helper import S3Helper
from tools.demo.generate import generate
from tools.demo.settings import GeneratorSettings, Rates

DEPTH_MAX, KEYS_MAX = 16, 500
INT53, INT64 = 2**53, 2**63

Entry = dict[str, Any]
Paths = dict[tuple[str, ...], str]
Source = Callable[[], Iterable[list[Entry]]]


def _generated() -> Iterator[list[Entry]]:
    """Awkward logs of the demo's generator, but none that are no JSON."""
    rates = Rates(broken=0, compressed=0, absurd_time=0, rare_type=0.01, odd=0.3)
    for record in generate(GeneratorSettings(seed=11, entries=6_000, users=12, rates=rates)):
        if record.value:
            value = json.loads(record.value)
            yield value if isinstance(value, list) else [value]


def _made_to_conflict() -> Iterator[list[Entry]]:
    """Few users whose entries disagree in every way, so that each join of the lattice is met."""
    values: list[Any] = [
        *(None, True, 1, -(2**53), 2**53 + 1, 2**63, 0.5, 1e300, "text", "1", {}, {"a": 1}, {"a": "b", "c": {}}),
        *({"a": {"b": [None]}}, [], [1], [0.5, None], ["x"], [[]], [{"k": 1}, {"l": []}], [2**60], {"a": None}),
        *({f"key {number}": number for number in range(300)}, {f"key {number}": "v" for number in range(250, 600)}),
    ]
    deep: Any = 1
    for level in range(20):
        deep = [deep] if level % 2 else {"down": deep}
        values.append(deep)
    for number, (first, second) in enumerate(combinations(values, 2)):
        user = {"user": f"user {number}", "time": "2024-03-04T05:06:07Z"}
        entries = [{**user, "x": first}, {**user, "x": second, "y": [first, second], "X": number}]
        yield entries[:: -1 if number % 2 else 1]


def _real(file: Path, user: Callable[[Entry], Any], time: str) -> Source:
    def entries() -> Iterator[list[Entry]]:
        with zstd.open_file(file, "rb") as lines:
            for line in lines:
                entry = json.loads(line)
                who = user(entry)
                if who is not None:
                    yield [{**entry, "user of the test": who, "time of the test": entry[time]}]

    return entries


SOURCES: dict[str, Source] = {"generated": _generated, "made to conflict": _made_to_conflict}
for directory in real_log_sets():
    for file, user, time in (
        ("cloudtrail-invictus-2023-07-10", lambda entry: entry["eventSource"], "eventTime"),
        ("cloudtrail-stratus-red-team", lambda entry: entry["awsRegion"], "eventTime"),
        ("nginxplus_json_logs", lambda entry: entry["address"], "timestamp"),
        ("eve", lambda entry: entry["event_type"], "timestamp"),
    ):
        for found in directory.glob(f"{file}.*"):
            SOURCES[file] = _real(found, user, time)


AS_FILES = ("made to conflict", "nginxplus_json_logs")
# Real logs go through the worker in test_real_logs.py: here those of most kinds of schemas.
SHOWN = {"generated", "made to conflict", "eve"}
CASES = [
    *(pytest.param(name, "auto", marks=[] if name in SHOWN else pytest.mark.sweep) for name in SOURCES),
    *(
        pytest.param(name, "file", marks=[] if name in SHOWN else pytest.mark.sweep)
        for name in AS_FILES
        if name in SOURCES
    ),
]


@pytest.mark.parametrize(("name", "layout"), CASES)
def test_schemas_are_those_of_the_entries(
    name: str, layout: str, kafka: KafkaHelper, s3: S3Helper, names: Names, tmp_path: Path
) -> None:
    """Schemas, counts and ranges of each reference are what its entries make them, and merge like the entries."""
    settings = {
        "LOGP_LAYOUT": layout,
        "LOGP_USER__PATHS": '["user of the test", "user"]',
        "LOGP_TIME__PATHS": '["time of the test", "time", "ts"]',
        "LOGP_USER__MISSING_NAME": "unknown",
    }
    records = list(SOURCES[name]())
    with Deployment(kafka=kafka, s3=s3, names=names, root=tmp_path, partitions=3, settings=settings) as deployment:
        written = run_through(deployment, (ToProduce(value=json.dumps(record).encode()) for record in records))
        record_at = dict(zip(written, records, strict=True))
        schemas: dict[str, tuple[str, Paths]] = {}
        merged: list[tuple[ReadObject, list[Entry]]] = []
        for found in read_objects(deployment):
            entries = [record_at[row.partition, row.offset][row.index] for row in found.rows]
            _check_header(found, deployment)
            text = found.exact_text
            if text not in schemas:
                schemas[text] = (text, published_paths(json.loads(text)))
            assert schemas[text][1] == inferred_paths(entries), found.reference.location.object
            _check_counts(found, entries)
            merged.append((found, entries))
        assert sum(len(entries) for _, entries in merged) == sum(map(len, records))
        _check_merging(merged)


def _check_header(found: ReadObject, deployment: Deployment) -> None:
    """Check that message, header and schema object say the same."""
    schema = found.reference.schema
    assert schema.text in (None, found.schema_text)
    assert hashlib.sha256(found.schema_text.encode()).hexdigest() == schema.fingerprint
    assert schema.object.endswith(f"/{schema.fingerprint}.avsc")
    assert deployment.s3.read(deployment.bucket, schema.object).decode() == found.schema_text
    fastavro.parse_schema(json.loads(found.schema_text))
    fastavro.parse_schema(json.loads(found.exact_text))


def _check_counts(found: ReadObject, entries: list[Entry]) -> None:
    reference = found.reference
    assert reference.entries == len(entries)
    times = [row.event_time_us for row in found.rows]
    assert (reference.event_time_min_us, reference.event_time_max_us) == (min(times), max(times))
    for source in reference.sources:
        offsets = [row.offset for row in found.rows if row.partition == source.partition]
        assert (source.min_offset, source.max_offset, source.entries) == (min(offsets), max(offsets), len(offsets))
        assert offsets == sorted(offsets)
        assert source.first_offset <= min(offsets) <= max(offsets) < source.next_offset
    assert {source.partition for source in reference.sources} == {row.partition for row in found.rows}


def _check_merging(merged: list[tuple[ReadObject, list[Entry]]]) -> None:
    """Check that what two references say merges to what their entries say together, either way round."""
    for (one, entries), (other, more) in pairwise(merged):
        left, right = (type_of(json.loads(found.exact_text)) for found in (one, other))
        expected = inferred_paths([*entries, *more])
        for joined in (
            join_records(left, right, object_keys_max=KEYS_MAX),
            join_records(right, left, object_keys_max=KEYS_MAX),
        ):
            assert published_paths(json.loads(row_schema(joined).text)) == expected


# What the test infers itself.


def inferred_paths(entries: list[Entry]) -> Paths:
    """Give the type of every path of some entries."""
    paths: Paths = {}
    for name in {name for entry in entries for name in entry}:
        _infer((name,), [entry[name] for entry in entries if name in entry], 2, paths)
    return paths


def _infer(path: tuple[str, ...], values: list[Any], depth: int, paths: Paths) -> None:
    """Note the type of a position that holds these values; `depth` is that of a container here."""
    present = [value for value in values if value is not None]
    kinds = {type(value) for value in present}
    if kinds <= {int, float}:
        paths[path] = _type_of_numbers(present)
    elif len(kinds) > 1 or (kinds <= {dict, list} and depth > DEPTH_MAX):
        paths[path] = "json"
    elif kinds == {list}:
        paths[path] = "array"
        _infer((*path, "[]"), [item for value in present for item in value], depth + 1, paths)
    elif kinds == {dict}:
        names = {name for value in present for name in value}
        paths[path] = "map" if len(names) > KEYS_MAX else "record" if names else "empty-object"
        if len(names) > KEYS_MAX:
            _infer((*path, "{}"), [item for value in present for item in value.values()], depth + 1, paths)
        else:
            for name in names:
                _infer((*path, name), [value[name] for value in present if name in value], depth + 1, paths)
    else:
        paths[path] = {str: "string", bool: "boolean"}[kinds.pop()]


def _type_of_numbers(values: list[int | float]) -> str:
    """Give the type of numbers alone; of none, that of nulls."""
    largest = max((abs(value) for value in values if isinstance(value, int)), default=0)
    has_floats = any(isinstance(value, float) for value in values)
    if not values:
        return "null"
    if any(isinstance(value, int) and not -INT64 <= value < INT64 for value in values):
        return "json"
    if largest <= INT53:
        return "double" if has_floats else "long53"
    return "json" if has_floats else "long64"


# What a published schema says.


def published_paths(schema: Entry) -> Paths:
    """Give the type of every path of a published schema."""
    paths: Paths = {}
    meta, *fields = schema["fields"]
    assert meta["name"] == "_meta"
    _read_fields((), fields, paths)
    return paths


def _read_fields(path: tuple[str, ...], fields: list[Entry], paths: Paths) -> None:
    for field in fields:
        assert field["default"] is None
        _read_type((*path, field.get("lp.name", field["name"])), field["type"], field.get("lp.type"), paths)


def _read_type(path: tuple[str, ...], union: list[Any], mark: str | None, paths: Paths) -> None:
    null, avro = union
    assert null == "null"
    if isinstance(avro, dict) and mark is None:
        mark = avro.get("lp.type")
    kind = avro["type"] if isinstance(avro, dict) else avro
    assert path not in paths
    if mark is not None:
        assert kind == {"json": "string", "null": "string", "long53": "long", "empty-object": "map"}[mark]
        paths[path] = mark
        return
    paths[path] = "long64" if kind == "long" else kind
    match kind:
        case "record":
            _read_fields(path, avro["fields"], paths)
        case "array":
            _read_type((*path, "[]"), avro["items"], None, paths)
        case "map":
            _read_type((*path, "{}"), avro["values"], None, paths)


def test_objects_are_readable_by_any_avro_reader(
    kafka: KafkaHelper, s3: S3Helper, names: Names, tmp_path: Path
) -> None:
    """Fastavro reads every object by the schema in it and by another one that it resolves to."""
    records = list(_made_to_conflict())[::7]
    with Deployment(kafka=kafka, s3=s3, names=names, root=tmp_path, partitions=2) as deployment:
        run_through(deployment, (ToProduce(value=json.dumps(record).encode()) for record in records))
        references = deployment.references()
        for name in {reference.location.object for reference in references}:
            data = s3.read(deployment.bucket, name)
            rows = list(fastavro.reader(io.BytesIO(data)))
            reference, *others = [one for one in references if one.location.object == name]
            assert len(rows) == sum(one.entries for one in (reference, *others))
            whole = json.loads(reference.schema.text or "")
            some = {**whole, "fields": [whole["fields"][0], {"name": "new", "type": "string", "default": "none"}]}
            resolved = list(fastavro.reader(io.BytesIO(data), reader_schema=some))
            assert [row["_meta"] for row in resolved] == [row["_meta"] for row in rows]
            assert {row["new"] for row in resolved} == {"none"}
