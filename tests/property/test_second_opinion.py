"""The worker, in either lane, and the second opinion decide the same of every entry (DESIGN 3.1)."""

from __future__ import annotations

import io
import json
from functools import reduce
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from log_partitioner import native
from log_partitioner.avro.infer import TooDeepError
from log_partitioner.avro.names import original_of
from log_partitioner.avro.pack_schema import merge
from log_partitioner.avro.row_encoder import SchemaMismatch, entry_encoder
from log_partitioner.avro.schema import row_schema
from log_partitioner.avro.schema_types import ArrayType, MapType, RecordType, Type, join_records
from log_partitioner.config.settings import IdSettings, InputSettings, Settings, TimeSettings, UserSettings
from log_partitioner.formats.model import SourceRecord, TopicPartition
from log_partitioner.formats.values import encode_json
from log_partitioner.proof.oracle import expected_schema as oracle
from log_partitioner.proof.oracle.equal import canonical
from log_partitioner.proof.oracle.json_text import parse_keeping
from log_partitioner.proof.oracle.judge import Judge
from log_partitioner.proof.oracle.published_schema import PublishedSchema
from tests.fakes.lanes import RecordedEntry, recorded, settings
from tests.fakes.schemas import with_schema
from tests.inferred import infer_entry
from tests.property.test_pack_schema import neighbours
from tests.strategies import (
    LIMITS,
    avro_payloads,
    decode_again,
    entries_near,
    entry_types,
    names,
    scalars,
    times_as_many,
)
from tests.strategies import entries as any_entries
from tests.toy_format import oracle as _csv_of_the_oracle  # noqa: F401 - registers it
from tests.toy_format import worker as _csv_of_the_worker  # noqa: F401

TP = TopicPartition("app", 0)
NOW_MS = 1_767_225_600_000  # 2026-01-01
LANES = [
    pytest.param(False, id="Python's lane"),
    pytest.param(True, id="fast lane", marks=pytest.mark.skipif(not native.IS_INSTALLED, reason="make native")),
]

spaces = st.text(" \t\r\n\x0b\x0c\x1c\x85\u00a0\u2028\ufeff\0", max_size=2) | st.sampled_from(["", "", "", " ", "\n"])
years = st.sampled_from([0, 1, 2, 999, 1899, 1969, 1970, 1999, 2000, 2025, 2026, 9998, 9999])
moments = st.tuples(
    years,
    st.sampled_from([1, 2, 3, 12, 13]),
    st.sampled_from([0, 1, 2, 3, 29, 30, 31]),
    st.sampled_from([0, 1, 23, 24]),
    st.sampled_from([0, 59, 60]),
    st.sampled_from([0, 59, 60, 61]),
)
zones = st.sampled_from(["", "Z", "z", " UTC", " +0000", "+14:00", "-12:00", " -0930 CET", "+24:00", "Z[UTC]", " PST"])
_MONTHS = ["?", "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec", "?"]


@st.composite
def time_texts(draw: st.DrawFn) -> str:
    """Write a moment, which need not exist, in one of many forms."""
    year, month, day, hour, minute, second = draw(moments)
    fraction = draw(st.sampled_from(["", "", ".5", ",999999", ".1234567"]))
    mark, sep = draw(st.sampled_from(["-", "-", "/", "", "."])), draw(st.sampled_from("TTt :_"))
    colon = draw(st.sampled_from([":", ":", ":", ""]))
    dates = [
        f"{year:04}{mark}{month:02}{mark}{day:02}",
        f"{day:02}/{_MONTHS[month]}/{year:04}",
        f"Sat, {day} {_MONTHS[month]} {year:04}",
    ]
    clock = f"{hour:02}{colon}{minute:02}{colon}{second:02}{fraction}"
    text = draw(st.sampled_from([dates[0], *dates])) + draw(st.sampled_from(["", *[f"{sep}{clock}"] * 4]))
    return text + draw(zones)


keyed_entries = st.dictionaries(names, scalars | st.dictionaries(names, scalars, min_size=1, max_size=5), max_size=3)
epochs = st.sampled_from(
    [-1, 0, 1, 946_684_799, 946_684_800, 253_402_214_399, 253_402_214_400, NOW_MS // 1000]
).flatmap(lambda s: st.sampled_from([s, s * 1000, s * 10**6, float(s), s + 0.5, str(s), f"{s}.25"]))
users: Any = st.sampled_from(["ann", "1", 1, 1.0, 1e0, -0.0, 1.5, 2.0**53, 2.0**53 + 2, 1e300, True, None, "-", [1]])
inner = st.fixed_dictionaries({"user": users, "time": time_texts() | epochs}, optional={"id": users})
logs = st.builds(json.dumps, inner | users) | st.sampled_from(["", "{", '{"user":NaN}', '{"user":"\\ud800"}', "9" * 30])
logs |= st.sampled_from(["9" * 30, "1e3", "1e400", "0.1234567890123456789"]).map(lambda number: f'{{"user":{number}}}')
entries = st.fixed_dictionaries(
    {"user": users, "time": time_texts() | epochs}, optional={"when": time_texts(), "id": users, "log": logs | users}
)

stamps = st.sampled_from(
    ["Dec 31 23:59:59", "Jan  1 00:00:00", "Feb 29 12:00:00.5", "2026-01-01T00:00:00Z", "Mai 1", ""]
)


LOGICAL_TIME = {"type": "long", "logicalType": "timestamp-millis"}
LOG = {"type": "record", "name": "Log", "fields": [
    {"name": "user", "type": ["null", "string", "long", "double", "bytes"]},
    {"name": "time", "type": ["string", "long", LOGICAL_TIME, {"type": "int", "logicalType": "date"}]},
    {"name": "id", "type": ["null", "string", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}]},
]}  # fmt: skip


@st.composite
def values(draw: st.DrawFn) -> bytes:
    """Write some entries as an object, an array, an envelope or lines, with any white space around the parts."""
    texts = [draw(spaces) + json.dumps(draw(entries)) + draw(spaces) for _ in range(draw(st.integers(1, 3)))]
    form = draw(st.sampled_from(["object", "array", "envelope", "lines", "nothing", "csv", "syslog", "avro"]))
    if form == "avro":
        return draw(avro_payloads(LOG, {}))
    text = {
        "object": texts[0],
        "array": f"[{','.join(texts)}]",
        "envelope": f'{{"n":1,{draw(spaces)}"entries"{draw(spaces)}:{draw(spaces)}[{",".join(texts)}]}}',
        "lines": "\n".join(draw(spaces) + text for text in texts),
        "nothing": f"[{draw(spaces)}]",
        "syslog": "\n".join(f"<{draw(users)}>{draw(stamps)} {draw(users)} app: {text}" for text in texts),
        "csv": "\n".join(f"{draw(users)},{draw(time_texts() | epochs)},{draw(users)}" for _ in texts),
    }[form]
    return (draw(spaces) + text + draw(spaces)).encode()


timestamps = st.sampled_from(
    [None, 0, 1, 946_684_799_999, NOW_MS, NOW_MS, 253_402_214_399_999, 253_402_214_400_000, 2**60]
)
record_keys = st.sampled_from([None, b"", b"-", b"\xff", b"kim", b'{"user":"kim"}', b'{"user":1.0}', b"[1]", b"{"])
headers = st.sampled_from([None, b"", b"\xff", b"kim", b"7", b"2026-01-01T00:00:00Z", b"1767225600.5", b"1e9"])
records = st.builds(
    lambda timestamp_ms, key, value, header: SourceRecord(TP, 0, timestamp_ms, key, value, (("h", header),)),
    *(timestamps, record_keys, values(), headers),
)
NOT_FOR_THE_FAST_LANE = settings(
    user=UserSettings(paths=("key:user", "header:h", "key")),
    id=IdSettings(paths=("header:h", "key:user")),
    time=TimeSettings(paths=("header:h", "time")),
)


class AnyFormat(InputSettings):
    """The format is no setting of the product."""

    format: Any


CSV = settings(input=AnyFormat(format="csv"), id=IdSettings(paths=("id",)))
SYSLOG = settings(input=InputSettings(format="syslog"), user=UserSettings(paths=("host",)))
AVRO = settings(input=with_schema(InputSettings(format="avro"), LOG), id=IdSettings(paths=("id",)))
IN_TEXT = settings(
    user=UserSettings(paths=("log::user", "user")),
    id=IdSettings(paths=("log::id",)),
    time=TimeSettings(paths=("log::time", "time")),
)
RULES = [
    NOT_FOR_THE_FAST_LANE,
    IN_TEXT,
    CSV,
    SYSLOG,
    AVRO,
    *(
        settings(
            user=UserSettings(missing_name=missing_name),
            id=IdSettings(paths=("id",)),
            input=InputSettings(format=form, entries_path=field, envelope="drop"),
            time=TimeSettings(paths=("time", "when"), zone=zone, missing=missing_time, earliest=earliest),
        )
        for missing_name, form, field, zone, missing_time, earliest in [
            (None, "json", None, "UTC", "record-timestamp", "1970-01-01T00:00:00Z"),
            ("unknown", "json", "entries[]", "UTC", "dead-letter", "1970-01-01"),
            (None, "json", "entries[]", "Europe/Berlin", "record-timestamp", "2000-01-01T00:00:00Z"),
            ("unknown", "ndjson", None, "UTC", "record-timestamp", "0001-01-01"),
            (None, "ndjson", None, "Pacific/Kiritimati", "dead-letter", "1969-12-31T23:00:00.5Z"),
        ]
    ),
]


@pytest.mark.parametrize("is_fast", LANES)
@times_as_many(4)
@given(records, st.sampled_from(RULES))
def test_worker_and_second_opinion_decide_the_same(
    is_fast: bool,  # noqa: FBT001 - a case
    record: SourceRecord,
    given_settings: Settings,
) -> None:
    """White space of all kinds, keys, headers, years, earliest times, Kafka's timestamps, forms of times and numbers.

    The record comes a second time, which the fast lane takes if it is plain.
    """
    again = record._replace(offset=1)
    is_fast = is_fast and given_settings not in (NOT_FOR_THE_FAST_LANE, IN_TEXT, CSV, SYSLOG, AVRO)
    rows, dead = recorded([record, again], given_settings, is_fast=is_fast)
    judged = [entry.deliverable for entry in Judge(given_settings).judge(record).entries]
    expected = {n: RecordedEntry(one.key, one.event_time_us, one.id) for n, one in enumerate(judged) if one is not None}
    for offset in (0, 1):
        found = {index: row for (at, index), row in rows.items() if at == offset}
        assert found == expected
        assert dead[offset] == len(judged) - len(expected)


def as_oracle(kind: Type) -> oracle.Type:
    """Write a type of the worker as the second opinion does."""
    match kind:
        case RecordType(by_name=fields):
            return oracle.Record(tuple((original_of(key), as_oracle(fields[key])) for key in sorted(fields)))
        case ArrayType(item=item):
            return oracle.Array(as_oracle(item))
        case MapType(value=value):
            return oracle.Map(as_oracle(value))
    return {"bool": "boolean"}.get(kind.value, kind.value)


def as_parsed(value: Any) -> Any:
    """Give a value of the worker's as the second opinion has it: numbers in its form."""
    if isinstance(value, dict):
        return type(value)({name: as_parsed(item) for name, item in value.items()})
    if isinstance(value, list):
        return [as_parsed(item) for item in value]
    return value if isinstance(value, str) else parse_keeping(encode_json(value).decode())


@times_as_many(4)
@given(st.lists(any_entries(leaves=6) | keyed_entries, max_size=5))
def test_type_of_any_entries_is_that_of_the_second_opinion(some: list[dict[str, Any]]) -> None:
    """Each entry's, and the join of all, in any order: nested objects of too many keys are maps."""
    bounds = LIMITS._replace(json_depth_max=100)
    parsed: list[Any] = list(map(as_parsed, some))
    joined = oracle.join(
        [oracle.Record(()), *(oracle.type_of_entry(one, depth_max=bounds.depth_max) for one in parsed)]
    )
    own = reduce(
        lambda one, other: join_records(one, other, object_keys_max=bounds.object_keys_max),
        [infer_entry(entry, bounds) for entry in some],
        RecordType({}),
    )
    assert as_oracle(own) == oracle.limit_keys(joined, bounds.object_keys_max)


@given(entry_types().flatmap(lambda kind: st.tuples(st.just(kind), entries_near(kind))))
def test_row_of_the_worker_reads_back_equal_by_the_second_opinion(drawn: tuple[RecordType, dict[str, Any]]) -> None:
    """By the published schema, which has the worker's type."""
    kind, entry = drawn
    published, out = PublishedSchema(row_schema(kind).text, parse_keeping), bytearray()
    assert (published.type, published.problems) == (as_oracle(kind), [])
    try:
        entry_encoder(kind, kind, LIMITS)(decode_again(encode_json(entry)), out)
    except (SchemaMismatch, TooDeepError):
        return
    _, *fields = published.avro["fields"]
    row = fastavro.schemaless_reader(io.BytesIO(out), {**published.avro, "fields": fields}, None)
    assert published.restore(row) == canonical(as_parsed(entry))


@times_as_many(2)
@given(neighbours(2))
def test_type_that_the_worker_merges_is_covered_by_the_merged_one(two: list[RecordType]) -> None:
    """Thus no audit calls a right pack wrong; the oracle's tests have the types that it must not cover."""
    both = as_oracle(merge(*two))
    assert all(oracle.is_covered_by(as_oracle(one), both) for one in two)
