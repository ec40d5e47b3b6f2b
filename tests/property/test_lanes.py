"""Both lanes do the same, byte for byte: whatever the fast lane takes, and wherever it gives a record back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from log_partitioner import native
from log_partitioner.avro.schema_types import RecordType, Scalar
from log_partitioner.batch.fast_lane import FastLane
from log_partitioner.batch.row_writer import EntryWriter
from log_partitioner.config.settings import (
    IdSettings,
    InputSettings,
    SchemaBounds,
    Settings,
    SpoolSettings,
    TimeSettings,
    TopicSettings,
    UserSettings,
)
from log_partitioner.control.flush_policy import FlushLoad
from log_partitioner.formats.model import SourceRecord, TopicPartition
from log_partitioner.formats.values import encode_json
from tests.fakes.lanes import deliver, opened, settings
from tests.fakes.records import poll_of
from tests.strategies import entries, entries_near, entry_types, floats, names, times_as_many

pytestmark = pytest.mark.skipif(not native.IS_INSTALLED, reason="make native")

NOW_S = 1_767_225_600
TPS = [TopicPartition("app", number) for number in range(3)]
TOPICS = [*TPS, TopicPartition("web", 0), TopicPartition("lines", 0), TopicPartition("access", 0)]


class SmallBlocks(SpoolSettings):
    """Objects of many blocks."""

    block_bytes = 300


class SmallObjects(SmallBlocks):
    """Small packs."""

    packed_bytes_max = 400


class Shallow(InputSettings):
    """Little nesting."""

    json_depth_max = 6


class ShallowFew(Shallow):
    """Both."""

    entries_per_record_max = 5


class FewEntries(InputSettings):
    """Records that soon have too many entries."""

    entries_per_record_max = 3


PLAIN = settings(spool=SmallBlocks(codec="null"), id=IdSettings(paths=("id", "meta.id")))
NARROW = settings(
    spool=SmallObjects(codec="null"),
    input=Shallow(inexact_numbers="text"),
    layout="pack",
).model_copy(update={"schema_bounds": SchemaBounds(3, 3, Shallow.json_depth_max, fields_max=12)})
OTHER = settings(
    spool=SpoolSettings(codec="null"),
    input=InputSettings(entries_path="entries[]", envelope="drop"),
    user=UserSettings(paths=("who.name", "envelope:who.name", "user"), missing_name="unknown"),
    time=TimeSettings(paths=("when", "time"), epoch_unit="ms", zone="Europe/Berlin"),
    id=IdSettings(paths=("envelope:id",)),
)
LINES = settings(
    spool=SpoolSettings(codec="null"),
    input=InputSettings(format="ndjson"),
    user=UserSettings(paths=("key", "user")),
    time=TimeSettings(paths=("time", "key"), missing="dead-letter"),
)
FEW = settings(
    spool=SpoolSettings(codec="null"),
    input=FewEntries(entries_path="entries[]", envelope="drop"),
    time=TimeSettings(paths=("envelope:at.time", "time")),
)
_WHO = UserSettings(paths=("who.name", "envelope:who.name", "user", "envelope:groups.who.name"), missing_name="unknown")
KEPT = settings(
    spool=SmallBlocks(codec="null"),
    input=InputSettings(entries_path="entries[]"),
    user=_WHO,
    id=IdSettings(paths=("envelope:id",)),
)
DEEP = settings(
    spool=SpoolSettings(codec="null"),
    input=InputSettings(entries_path="data.groups[].entries[]", framing="confluent"),
    user=UserSettings(paths=("envelope:data.groups.who.name", "user", "envelope:who.name", "envelope:data")),
    time=TimeSettings(paths=("envelope:data.at.time", "time", "envelope:data.groups")),
    id=IdSettings(paths=("envelope:data.groups.id", "envelope:id")),
)
NARROW_DEEP = settings(
    spool=SmallObjects(codec="null"),
    input=ShallowFew(entries_path="data.groups[].entries[]", framing="glue", inexact_numbers="text"),
    layout="pack",
).model_copy(update={"schema_bounds": SchemaBounds(3, 3, Shallow.json_depth_max, fields_max=12)})
ONE_INNER = settings(
    spool=SpoolSettings(codec="null"),
    input=InputSettings(entries_path="data.who", envelope="drop"),
    id=IdSettings(paths=("name",)),
)
MIXED = settings(
    spool=SpoolSettings(codec="null"),
    topics={
        "web": TopicSettings(
            input=InputSettings(entries_path="entries[]", framing="apicurio8"),
            user=UserSettings(paths=("user", "key")),
            id=IdSettings(paths=("id",)),
        ),
        "lines": TopicSettings(
            input=InputSettings(format="ndjson"), time=TimeSettings(paths=("time", "key"), epoch_unit="ms")
        ),
        "access": TopicSettings(input=InputSettings(format="access-log")),
    },
)
SETTINGS = [PLAIN, NARROW, OTHER, LINES, FEW, KEPT, DEEP, NARROW_DEEP, ONE_INNER, MIXED]
_PREFIXES = {"none": b"", "confluent": b"\0\0\0\0\7", "apicurio8": bytes(9), "glue": b"\3\0" + bytes(16)}
_encode = encode_json

users = st.sampled_from(["ann", "bob", "", "-", "ä\n", '"', "\U0001f600", 7, 10**20, None, True, ["ann"]]) | names
clock_times = st.builds(
    "{:04}-{:02}-{:02}{}{:02}:{:02}:{:02}{}{}".format,
    st.sampled_from([2025, 2026, 2000, 1999, 0, 9999]),
    st.integers(0, 13),
    st.sampled_from([0, 1, 28, 29, 30, 31, 32]),
    st.sampled_from("Tt _"),
    st.integers(0, 25),
    st.integers(0, 60),
    st.integers(0, 61),
    st.sampled_from(["", ".5", ".123456", ".123456789", ".", ",5"]),
    st.sampled_from(["", "Z", "z", "+02:00", "-23:59", "+24:00", "+0200", "-01", "+02:0", " "]),
)
likely_times = st.integers(0, 7200).map(lambda s: f"2025-12-31T{22 + s // 3600}:{s // 60 % 60:02}:{s % 60:02}.{s:03}Z")
epoch_times = st.sampled_from([1, 1000, 10**6, 10**9]).flatmap(
    lambda factor: (
        st.integers((NOW_S - 7200) * factor, NOW_S * factor)
        | st.floats((NOW_S - 7200) * float(factor), NOW_S * float(factor))
    )
)
times = (
    likely_times | likely_times | clock_times | epoch_times | st.sampled_from([None, True, "", "-1", "1767225600", -1])
)


@st.composite
def texts_of(draw: st.DrawFn, entry: dict[str, Any]) -> bytes:
    """Write an entry, or several, as some program would."""
    form = draw(st.integers(0, 15))
    text = _encode(entry)
    if form == 0:
        return b" " + json.dumps(json.loads(text), indent=draw(st.sampled_from([None, 1]))).encode() + b"\n"
    if form == 1:
        return b"[" + text + b"," + text + b"]"
    if form == 2:
        at = draw(st.integers(0, len(text)))
        return text[:at] + draw(st.binary(max_size=2)) + text[at + draw(st.integers(0, 2)) :]
    if form == 3:
        return text[:-1] + b"," + text[1:] if len(entry) else text  # every key stands twice
    if form == 4:
        return (
            text[:-1]
            + b',"'
            + draw(st.sampled_from([b"k", b"id", b"entries", b"_envelope"]))
            + b'":'
            + draw(_numbers)
            + b"}"
        )
    if form == 5:
        return draw(st.sampled_from([b"\n", b"\r\n \n", b"\n\x0b\n"])).join([text] * draw(st.integers(2, 4)))
    if form in (6, 7):
        return draw(envelopes_of(text))
    if form in (8, 9):
        groups = draw(st.lists(envelopes_of(text) | st.just(text), max_size=3))
        listed = b"[" + b", ".join(groups) + b"]"
        inner = draw(envelopes_of(draw(st.sampled_from([listed, listed, listed, text])), key=b"groups"))
        return draw(envelopes_of(inner, key=b"data"))
    return text


@st.composite
def envelopes_of(draw: st.DrawFn, text: bytes, *, key: bytes = b"") -> bytes:
    """Put members around what has a key; without one around a list of entries, or what stands in its place."""
    if not key:
        array = b"[ " + b" ,\n".join([text] * draw(st.integers(0, 4))) + b"]"
        key, text = b"entries", draw(st.sampled_from([array, array, array, text, b"null"]))
    around = [
        b'"' + key + b'": ' + text,
        *draw(st.lists(st.sampled_from(_AROUND) | _numbers.map(b'"m":%b'.__mod__), max_size=3)),
    ]
    return b" {" + b", ".join(draw(st.permutations(around))) + b"} "


_AROUND = b"""
    "who":{"name":"eve"} "who":{"x":[1,{"y":2}],"name":7} "who":{} "who":"ann" "id":"i1" "id":7 "id":null "n":1.5
    "at":{"time":"2025-12-31T23:00:00Z"} "at":{"time":1767225600} "at":{"time":[]} "n":1e400 "id":"\\u00e9" "entries":[]
    "t":"\\n\\/\\u0001\\"\\\\\\b\\t\\f\\r\\u001F\\u007f" "n":1.50 "n":-0.0 "n":0.0001 "n":123456789012345.6 "n":1e-5
    "n":9007199254740993 "o":{"a":[],"b":{},"c":[null,[true],{"d":1.25}]} "o":{"a":1,"a":2} "_envelope":1
    "o":[[[[[[1]]]]]] "n":1e16 "n":9999999999999998.0
    """.split()


_numbers = st.sampled_from(
    b"""
    9223372036854775807 -9223372036854775808 -9223372036854775809 -0 0 -0.0 00 1. 1e5 1E+5 0.1 1e400
    5e-324 1e-400 9007199254740993 9007199254740993.0 999999999999999999 nan {} [] 9999999999999999999
    0.1234567890123456789 123456789.123456789 [1,"a",null] [[1],[]] [{"a":1},{}] "\\ud83d\\ude00"
    "\\ud83d" "\\/\\u00e9\\n"
    """.split()
) | floats.map(lambda one: repr(one).encode())


@st.composite
def logs(draw: st.DrawFn) -> list[SourceRecord]:
    """Make records of a few types, so that shapes come again; offsets ascend, with holes."""
    drawn = [draw(entry_types()) for _ in range(draw(st.integers(1, 3)))]
    records, offset = [], 0
    for number in range(draw(st.integers(1, 30))):
        dice = draw(st.integers(0, 9))
        entry = draw(entries(leaves=6)) if dice == 0 else draw(entries_near(draw(st.sampled_from(drawn))))
        placed = {"user": draw(users), "time": draw(times)} if dice < 3 else {"user": "ann", "time": draw(likely_times)}
        keys = {"who": {"name": draw(users)}} if dice == 4 else {"meta": {"id": draw(users)}} if dice == 5 else {}
        offset += draw(st.sampled_from([1, 1, 1, 5]))
        records.append(
            SourceRecord(
                draw(st.sampled_from(TOPICS)),
                offset,
                draw(st.sampled_from([NOW_S * 1000, NOW_S * 1000, NOW_S * 1000, None, 0, 2**60])),
                draw(st.sampled_from([None, None, b"ann", b"", b"\xff", b"2025-12-31T22:10:00Z"])),
                draw(texts_of({**entry, **placed, **keys} if number % 2 else {**placed, **entry, **keys})),
                draw(st.sampled_from([(), (), (), (), *_HEADERS])),
                leader_epoch=3,
            )
        )
    return records


_HEADERS = [
    (("trace", b"1"),),
    (("source-topic-chain", b'[["a",0,1]]'),),
    (("__value_schema_id", b"\0\0\0\0\7"),),
]


def framed(record: SourceRecord, given: Settings) -> SourceRecord:
    """Put the id of a schema before the value of most records, as the settings of their topic want it."""
    prefix = _PREFIXES[given.of_topic(record.tp.topic).input.framing]
    return record if record.offset % 7 == 3 else record._replace(value=prefix + (record.value or b""))


CASES = (
    logs(),
    st.sampled_from(SETTINGS),
    st.integers(1, 20),
    st.sampled_from([2**40, 3000]),
)


@pytest.mark.slow
@times_as_many(4)
@given(*CASES)
def test_lanes_deliver_the_same_bytes(
    records: list[SourceRecord], given_settings: Settings, at_once: int, memory_max: int
) -> None:
    """Objects, what references say of them, dead letters, what is covered, and what is counted."""
    records = [framed(record, given_settings) for record in records]
    python = deliver(records, given_settings, is_fast=False, memory_max=memory_max)
    fast = deliver(records, given_settings, is_fast=True, at_once=at_once, memory_max=memory_max)
    assert [data for data, _ in fast.objects] == [data for data, _ in python.objects]
    assert [one for _, one in fast.objects] == [one for _, one in python.objects]
    assert fast[1:4] == python[1:4]
    of_types = 200 * fast.load.source_bytes  # of refused records, too: in proportion to their texts
    assert fast.load.fixed_bytes <= 2 * python.load.fixed_bytes + of_types
    assert _sizes(fast.load) == _sizes(python.load)
    if memory_max == 2**40:  # else they leave memory when they will: what they take of it is each lane's own
        assert fast.load.spool_bytes == python.load.spool_bytes == 0
        assert python.load.row_bytes <= _of_texts(fast.load) <= _of_texts(python.load)


def _sizes(load: FlushLoad) -> FlushLoad:
    return load._replace(fixed_bytes=0, memory_bytes=0, spool_bytes=0)


def _of_texts(load: FlushLoad) -> int:
    return load.memory_bytes - load.fixed_bytes


def test_plain_records_are_taken() -> None:
    """From the first on: else the test above compares nothing."""
    records = [
        SourceRecord(TPS[n % 3], n, NOW_S * 1000, None, _encode({"user": f"u{n % 5}", "time": NOW_S - n, **more}), ())
        for n in range(100)
        for more in ([{"a": n, "b": {"c": [n, None], "id": "x\n"}}] if n % 2 else [{"a": n / 7, "t": "\u00e9"}])
    ]
    delivered = deliver(records, PLAIN, is_fast=True)
    assert (delivered.taken, delivered.dead_letters) == (100, [])


def test_plain_entries_are_written_by_compiled_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many objects side by side, nested ones, and decimals of 17 digits: Python is not asked for any of them."""
    nested = {f"k{n}": {"a": [{"b": 0.12345678901234568}, None], "c": {"d": {}}} for n in range(100)}
    records = [
        SourceRecord(TPS[0], n, NOW_S * 1000, None, _encode({"user": "ann", "time": NOW_S - n, **nested}), ())
        for n in range(5)
    ]
    python = deliver(records, PLAIN, is_fast=False)
    monkeypatch.delattr(EntryWriter, "write")
    fast = deliver(records, PLAIN, is_fast=True)
    assert [data for data, _ in fast.objects] == [data for data, _ in python.objects]
    assert sum(one.entries for _, one in fast.objects) == 5


@pytest.mark.parametrize(
    ("form", "given_settings"),
    [
        (b"[%s, %s]", OTHER),
        (b'{"who": {"name": "eve"}, "entries": [%s, %s], "id": "i"}', OTHER),
        (b'{"v": [{}], "entries": [%s, %s]}', FEW),
        (b"%s\n\n%s\r\n", LINES),
        (b'{"id": 7, "entries": [%s, %s], "t": "\\u00e9\\/", "o": {"a": [1, 0.5]}}', KEPT),
        (b'{"id": "i", "data": {"at": {}, "groups": [{"id": 1, "entries": [%s]}, %s]}, "x": null}', DEEP),
        (b'{"data": {"groups": [{"entries": []}, {"t": "x", "entries": [%s, %s]}]}}', NARROW_DEEP),
        (b'{"data": {"who": %s, "also": %s}}', ONE_INNER),
    ],
)
def test_records_of_several_entries_are_taken(form: bytes, given_settings: Settings) -> None:
    """Arrays, envelopes and lines: all but the first, without which their types are not known."""
    entries = [_encode({"user": "ann", "time": (NOW_S - n) * 1000, "n": n}) for n in range(100)]
    values = [form % (entries[n], entries[n + 1]) for n in range(0, 100, 2)]
    prefix = _PREFIXES[given_settings.input.framing]
    records = [SourceRecord(TPS[0], n, NOW_S * 1000, b"bob", prefix + value, ()) for n, value in enumerate(values)]
    fast, python = (deliver(records, given_settings, is_fast=is_fast) for is_fast in (True, False))
    assert fast._replace(taken=0, load=None) == python._replace(taken=0, load=None)
    assert (fast.taken, fast.outcomes) == (50, {"written": 50 if given_settings is ONE_INNER else 100})


def test_records_of_topics_with_and_without_a_lane_are_read_each_by_its_own_rules() -> None:
    """One poll may mix them; compiled code gets no record of a topic without a lane, and so gives none back."""
    text = _encode({"user": "ann", "time": NOW_S})
    values = {
        "app": text,
        "web": bytes(9) + b'{"host":"h","entries":[%s]}' % text,
        "lines": text[:-1].replace(b"%d" % NOW_S, b"%d000" % NOW_S) + b"}\n",
        "access": b'127.0.0.1 - ann [31/Dec/2025:23:00:00 +0000] "GET / HTTP/1.1" 200 5',
    }
    records = [
        SourceRecord(tp, n, NOW_S * 1000, None, values[tp.topic], ())
        for n in range(20)
        for tp in (*TOPICS, TopicPartition("web", 1))
    ]
    fast, python = (deliver(records, MIXED, is_fast=is_fast) for is_fast in (True, False))
    assert fast._replace(taken=0, load=None) == python._replace(taken=0, load=None)
    assert (fast.taken, fast.outcomes, fast.dead_letters) == (120, {"written": 140}, [])
    assert not opened(records, MIXED, is_fast=True).has_lane("access")


_TAIL = b',"user":"ann","time":1767225600}'
_EDGES = {
    "entries of an envelope": (FEW, [b'{"entries":[%s]}', b'{"entries":[%s,%s,%s,%s]}']),
    "latest time": (
        PLAIN,
        [b'{"user":"ann","time":"2025-12-31T23:00:00Z"}', b'{"user":"ann","time":"9999-12-31T00:00:00Z"}'],
    ),
    "envelope without entries": (
        OTHER,
        [b'{"id":"%d","user":"ann","time":1767225600000}' % n for n in range(2)],
    ),
    "key twice": (PLAIN, [b'{"j":1' + _TAIL, b'{"k":1,"k":"x"' + _TAIL, b'{"k":"x","k":1' + _TAIL]),
    "key of a map twice": (
        NARROW,
        [b'{"m":{"a":1,"b":1,"c":1,"d":1}' + _TAIL, b'{"m":{"a":1,"b":1,"c":1,"d":1,"d":2}' + _TAIL],
    ),
    "integers of 53 bits": (PLAIN, [b'{"n":%d' % n + _TAIL for n in (2**53, 2**53 + 1, -(2**53), -(2**53) - 1)]),
    "integers of 64 bits": (PLAIN, [b'{"n":%d' % n + _TAIL for n in (2**63 - 1, -(2**63), 2**62, -(2**62))]),
    "copies of an envelope": (
        KEPT,
        [b'{"t":"%b","entries":[%%s%b]}' % (b"x" * 30_000, b",%s" * entries) for entries in (0, 100, 300, 700)],
    ),
    "depth of an envelope": (
        NARROW.model_copy(update={"input": Shallow(entries_path="entries[]")}),
        [b'{"o":%b%b,"entries":[%%s]}' % (b"[" * depth, b"]" * depth) for depth in (3, 4, 5, 6)],
    ),
    "key of an envelope twice": (
        KEPT,
        [b'{"n":1,"o":{"a":1},"entries":[%s]}', b'{"n":1,"n":2,"entries":[%s]}', b'{"o":{"a":1,"a":2},"entries":[%s]}'],
    ),
    "place of an envelope that is taken": (
        KEPT,
        [b'{"n":1,"entries":[%s]}', b'{"n":1,"entries":[{"_envelope":2,"user":"bob","time":1767225600}]}'],
    ),
    "entry without a key": (
        KEPT,
        [b'{"who":{"name":"eve"},"entries":[{},{ \n},%s]}'],
    ),
    "elements before entries": (
        NARROW_DEEP.model_copy(update={"input": FewEntries(entries_path="a[].b[]")}),
        [b'{"a":[{"b":[%s]}' + b',{"b":[]}' * n + b"]}" for n in (1, 2, 3)],
    ),
    "digits of a double": (NARROW, [b'{"n":1.5' + _TAIL, b'{"n":9007199254740.993' + _TAIL]),
}


@pytest.mark.parametrize("name", _EDGES)
def test_records_at_an_edge_are_the_same_in_both_lanes(name: str) -> None:
    """Random logs seldom have them. Each comes twice, first to teach its shape; the later ones have no timestamp."""
    given_settings, values = _EDGES[name]
    records = [
        SourceRecord(TPS[0], n, NOW_S * 1000 + n if n < 2 else None, None, value.replace(b"%s", b"{" + _TAIL[1:]), ())
        for n, value in enumerate(value for value in values for _ in range(2))
    ]
    fast, python = (deliver(records, given_settings, is_fast=is_fast) for is_fast in (True, False))
    assert fast.taken > 0
    assert fast._replace(taken=0, load=None) == python._replace(taken=0, load=None)


def test_plain_records_weigh_their_entries_and_their_kib() -> None:
    """As those do that Python records: a turn of large ones ends as early."""
    value = _encode({"user": "ann", "time": NOW_S, "text": "x" * 2048})
    records = [SourceRecord(TPS[0], n, NOW_S * 1000, None, value, ()) for n in range(9)]
    recorder = opened(records, PLAIN, is_fast=True)
    assert recorder.record(records[0]) == 3
    taken = recorder.take(poll_of(records), 1, 9, weight_max=6, bytes_max=2**40)
    assert (taken.records, taken.weight) == (2, 6)


def test_entries_without_a_time_are_taken_where_the_timestamp_stands_in() -> None:
    """They count as such; without that setting each is a dead letter of Python's lane."""
    values = [_encode({"user": "ann", "n": n}) for n in range(100)]
    records = [SourceRecord(TPS[0], n, NOW_S * 1000, b"bob", value, ()) for n, value in enumerate(values)]
    fast, strict = deliver(records, PLAIN, is_fast=True), deliver(records, LINES, is_fast=True)
    assert (fast.taken, fast.outcomes) == (100, {"written": 0, "record_timestamp": 100})
    assert (strict.taken, len(strict.dead_letters)) == (0, 100)


def test_topic_partitions_without_a_row_change_no_plan() -> None:
    """One that has dead letters alone, of a long name: the objects are those of Python."""
    tps = [TopicPartition("app", number) for number in range(221)]
    values = dict.fromkeys(tps, _encode({"user": "ann", "time": "2025-12-31T23:00:00Z"}))
    values[TopicPartition("z" * 249, 0)] = b"nonsense"
    records = [SourceRecord(tp, 0, NOW_S * 1000, None, value, ()) for tp, value in values.items()]
    kafka = PLAIN.kafka.model_copy(update={"message_bytes_max": 100_000})
    small = PLAIN.model_copy(update={"kafka": kafka})
    fast, python = (deliver(records, small, is_fast=is_fast) for is_fast in (True, False))
    assert len(python.objects) == 3
    assert fast.objects == python.objects


def test_types_that_take_too_much_are_forgotten_with_the_next_batch() -> None:
    """The types of the batch before stay its own."""
    lane = FastLane(settings(), bytes_max=20_000)
    made = [lane.begin().types]
    for batch in range(40):
        for n in range(5):
            made[-1].number(RecordType({f"k{batch * 5 + n}": Scalar.LONG53}))
            assert made[-1].memory_bytes <= 30_000
        made.append(lane.begin().types)
    assert 3 < len({id(one) for one in made}) < 40
    assert made[0].type_of(made[0].number(RecordType({"k0": Scalar.LONG53}))) == RecordType({"k0": Scalar.LONG53})
