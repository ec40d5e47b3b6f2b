"""The reader's kit: the golden pack by the ranges that are needed, references of what a worker has flushed, tables."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import fastavro
import msgspec
import pytest

from log_partitioner.boundary import Message
from log_partitioner.errors import CouldNotTellError, DamagedError, NotFoundError
from log_partitioner.formats.model import TopicPartition
from log_partitioner.formats.reference import Reference, decode_references
from log_partitioner.proof.audit.store import Address, FetchedObject
from log_partitioner.proof.oracle.json_text import parse_keeping
from log_partitioner.proof.oracle.published_schema import PublishedSchema
from log_partitioner.reader import Entry, ReferencesTopic, entries_of, read, to_arrow, to_json, to_pandas
from tests.fakes.check import BrokerTopics, BucketStore
from tests.fakes.records import NOW, P0, P1, entry, value_of
from tests.fakes.rig import Rig
from tests.fakes.worker import REFERENCES, settings_of
from tests.golden.example import GOLDEN, PACK

MESSAGE = (GOLDEN / "references.json").read_bytes()
ANN, BOB, E = decode_references(MESSAGE)
KEY = ANN.location.object
META = {
    "user": "u", "event_time": 0, "id": None, "topic": "t", "partition": 0, "offset": 0, "index": 0, "timestamp": -1,
    "root": None,
}  # fmt: skip


class Pack(BucketStore):
    """A store that has the golden pack, and notes what is asked of it."""

    def __init__(self, data: bytes = PACK, etag: str | None = ANN.location.etag) -> None:
        super().__init__({KEY: data})
        self.asked: list[list[tuple[int, int]]] = []
        self._etag = etag

    def get(self, address: Address, ranges: Iterable[tuple[int, int]] | None = None) -> FetchedObject | None:
        """Read ranges of it."""
        self.asked.append(list(ranges or ()))
        found = super().get(address, self.asked[-1])
        return found and found._replace(etag=self._etag)


@pytest.mark.parametrize(
    ("references", "asked"),
    [
        ([BOB], [(0, 1360), (1496, 77)]),
        ([E, ANN], [(0, 1496), (1573, 52)]),
        ([ANN, BOB, E, BOB], [(0, 1625)]),
    ],
)
def test_references_are_read_by_the_bytes_that_they_need(
    references: list[Reference], asked: list[tuple[int, int]]
) -> None:
    """Neighbours by one GET; each row is that of its reference, at its number, and no reference is read twice."""
    store = Pack()
    rows = json.loads((GOLDEN / "rows.json").read_text())
    expected = [
        (one.reference_id, number, row["_meta"])
        for one, some in zip((ANN, BOB, E), rows, strict=True)
        if one in references
        for number, row in enumerate(some)
    ]

    found = list(read(references, store))

    assert [(one.reference and one.reference.reference_id, one.number, one.meta) for one in found] == expected
    assert store.asked == [asked]


def test_entry_has_its_original_names_and_values_and_is_written_as_json() -> None:
    """Nulls are absent, and times are texts."""
    (found,) = read(BOB, Pack())

    assert found.values == {"bytes": 9007199254740993, "ctx": {"a-b": 1}, "status": 200, "tags": ["x"]}
    assert json.loads(to_json(found)) == {
        "_meta": {
            "user": "bob", "event_time": "2026-03-04T04:00:00Z", "id": None, "topic": "app", "partition": 0,
            "offset": 104, "index": 0, "timestamp": "2026-03-04T05:06:00Z",
            "root": {"topic": "raw", "partition": 5, "offset": 4711, "index": 1},
        },
        "entry": found.values,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("change", "store", "error"),
    [
        ({}, BucketStore({}), NotFoundError),
        ({}, Pack(etag='"another"'), DamagedError),
        ({}, Pack(PACK[:1572] + b"?" + PACK[1573:]), DamagedError),
        ({}, Pack(PACK[:1550]), DamagedError),
        ({"entries": 2}, Pack(), DamagedError),
        ({}, Pack(b"no Avro file at all" * 100), DamagedError),
    ],
)
def test_object_that_is_not_what_was_announced_is_refused(
    change: dict[str, Any], store: BucketStore, error: type[Exception]
) -> None:
    """It is not there, is another one, is damaged, ends too early, has fewer rows, or is none."""
    with pytest.raises(error):
        list(read(msgspec.structs.replace(BOB, **change), store))


def entry_of(types: dict[str, Any], **row: object) -> Entry:
    """Make an entry of these fields; each type is an Avro type, and a mark."""
    fields = [
        {"name": name, "type": ["null", kind], "default": None, "lp.type": mark} for name, (kind, mark) in types.items()
    ]
    schema = {"type": "record", "name": "entry", "fields": [{"name": "_meta", "type": "string"}, *fields]}
    return Entry(None, 0, {"_meta": META, **row}, PublishedSchema(json.dumps(schema), parse_keeping))


JSON = ("string", "json")


def test_number_that_no_double_holds_keeps_its_digits() -> None:
    """It stands in a JSON-marked column; a text that looks like its form stays a text."""
    types = {"n": JSON, "text": ("string", None), "some": JSON}
    line = to_json(entry_of(types, n="12345e999", text='{"\\ud800": "1"}', some="[1e-999]"))

    assert '"timestamp": null' in line
    assert line.endswith('"entry": {"n": 12345e999, "text": "{\\"\\\\ud800\\": \\"1\\"}", "some": [1e-999]}}')


def test_integer_of_any_length_is_read() -> None:
    """Python converts no text of more than 4,300 digits; the worker keeps each of them."""
    field = {"name": "n", "type": ["null", "string"], "default": None, "lp.type": "json"}
    schema = {"type": "record", "name": "entry", "fields": [{"name": "_meta", "type": "string"}, field]}
    file = io.BytesIO()
    fastavro.writer(file, schema, [{"_meta": "", "n": "9" * 5000}])
    (entry,) = entries_of(file.getvalue(), Address("b", "k"))
    assert to_json(entry._replace(row={**entry.row, "_meta": META})).endswith(f'"entry": {{"n": {"9" * 5000}e0}}}}')


def test_value_that_contradicts_its_schema_is_refused() -> None:
    """The reader guesses nothing."""
    with pytest.raises(DamagedError, match="contradicts its schema"):
        _ = entry_of({"n": JSON}, n="{").values


class Topics(BrokerTopics):
    """Topics of a rig; each time that is asked for is before all messages."""

    def offsets_at(self, tps: Iterable[TopicPartition], timestamp_ms: int) -> dict[TopicPartition, int | None]:
        """Return the first offset."""
        assert timestamp_ms >= 0
        return dict.fromkeys(tps, 0)


def flushed() -> tuple[Rig, ReferencesTopic]:
    """Let a worker flush entries of two users and two hours, in two flushes."""
    rig = Rig()
    rig.worker()
    some = [entry("ann", n=1), entry("bob", n=2)], [entry("ann", n=3, hours_ago=1)]
    for tp, entries in zip((P0, P1), some, strict=True):
        rig.broker.logs[tp].append(value_of(*entries), timestamp_ms=rig.clock.wall_ms())
        rig.drain()
    return rig, ReferencesTopic(Topics(rig.broker), settings_of())


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({}, [1, 2, 3]),
        ({"user": "ann"}, [1, 3]),
        ({"user": "ann", "begin": NOW}, [1]),
        ({"begin": (NOW - timedelta(hours=2)).isoformat(), "end": NOW.replace(tzinfo=None)}, [3]),
        ({"user": "eve"}, []),
    ],
)
def test_references_are_chosen_by_user_and_time_and_read(choice: dict[str, Any], expected: list[int]) -> None:
    """Times are moments or their texts, with or without a zone."""
    rig, references = flushed()

    found = read(references.of(**choice), BucketStore(rig.bucket.objects))

    assert sorted(one.values["n"] for one in found) == expected


def test_reader_goes_on_after_the_offsets_that_it_has_kept() -> None:
    """It reads up to the present end; once it has kept the place behind a message, that one does not come again."""
    rig, references = flushed()
    positions: dict[int, int] = {}
    found = []
    for delivery in references.after(positions):
        found += [one.values["n"] for one in read(delivery.references, BucketStore(rig.bucket.objects))]
        positions[delivery.partition] = delivery.offset + 1

    assert sorted(found) == [1, 2, 3]
    assert list(references.after(positions)) == []
    rig.broker.logs[P0].append(value_of(entry("eve", n=4)), timestamp_ms=rig.clock.wall_ms())
    rig.drain()
    ((reference,),) = (one.references for one in references.after(positions))
    assert reference.partition_key.user == "eve"


def test_reader_whose_place_retention_has_taken_away_is_told() -> None:
    """Otherwise it would silently go on behind a gap."""
    rig, _ = flushed()

    class Shortened(Topics):
        def ends(self, tp: TopicPartition) -> tuple[int, int]:
            return 1, super().ends(tp)[1]

    with pytest.raises(CouldNotTellError, match="messages from 0 on are gone; the first there is 1"):
        list(ReferencesTopic(Shortened(rig.broker), settings_of()).after({0: 0}))


@pytest.mark.parametrize("value", [b"{}", None])
def test_message_that_is_none_of_references_ends_the_reading(value: bytes | None) -> None:
    """Otherwise its entries would be missing silently."""
    rig, references = flushed()
    rig.broker.transactions[0].messages.append(Message(REFERENCES, None, value, []))

    with pytest.raises(CouldNotTellError, match="is no message of references that is known here"):
        list(references.after({}))


def test_messages_of_another_group_are_passed_by() -> None:
    """It publishes every record once more; its name alone tells."""
    rig, _ = flushed()
    mine = settings_of()
    theirs = mine.model_copy(update={"kafka": mine.kafka.model_copy(update={"group_id": "another"})})

    assert list(ReferencesTopic(Topics(rig.broker), theirs).of()) == []


def test_table_has_typed_columns_and_text_where_values_disagree() -> None:
    """A field that is called like a column of `_meta` has another name; numbers in texts keep their digits."""
    types = {"n": JSON, "s": ("string", None), "_meta.user": ("string", None), "__meta.user": ("string", None)}
    names = [{"n": "1", "s": "a"}, {"n": '{"a": 1e999}', "s": None, "_meta.user": "x", "__meta.user": "y"}]
    entries = [entry_of(types, **{"s": None, "_meta.user": None, "__meta.user": None} | one) for one in names]

    rows = to_arrow(entries).to_pylist()

    place = {f"_meta.{name}": META[name] for name in ("user", "id", "topic", "partition", "offset", "index")}
    at = {"_meta.event_time": datetime(1970, 1, 1, tzinfo=UTC)}
    assert rows == [
        {**place, **at, "n": "1", "s": "a", "__meta.user": None, "___meta.user": None},
        {**place, **at, "n": '{"a": 1e999}', "s": None, "__meta.user": "x", "___meta.user": "y"},
    ]


def test_table_of_pandas_has_times_as_such_and_numbers() -> None:
    """The columns that people group and sort by."""
    frame = to_pandas(read([ANN, BOB], Pack()))

    assert frame["_meta.event_time"].dt.hour.tolist() == [4, 4, 4, 4]
    assert frame.groupby("_meta.user")["status"].count().to_dict() == {"ann": 3, "bob": 1}


@pytest.mark.parametrize(("missing", "make"), [("pyarrow", to_arrow), ("pandas", to_pandas)])
def test_library_that_is_not_installed_is_named(
    missing: str, make: Callable[[Iterable[Entry]], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No such library is needed to read."""
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ImportError, match=f"tables of entries need {missing}: pip install {missing}"):
        make([])
