"""Entries in envelopes: which path leads to them, and what becomes of all that stands around them (docs/INPUTS.md)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from log_partitioner.config.settings import InputSettings
from log_partitioner.formats.dead_letter import Reason
from log_partitioner.input.decode import RecordContent, RecordDecoder
from tests.fakes.lanes import assert_decoded_alike

NO_LIST, NO_OBJECT, BAD = Reason.ENTRIES_NOT_A_LIST, Reason.NOT_AN_OBJECT, Reason.MALFORMED
OTLP = {
    "resourceLogs": [
        {
            "resource": {"service": "a"},
            "scopeLogs": [{"scope": 1, "logRecords": [{"n": 1}, {"n": 2}]}, {"scope": 2, "logRecords": []}],
        },
        {"resource": {"service": "b"}, "scopeLogs": [{"logRecords": [{"n": 3}]}]},
    ],
    "v": 7,
}  # fmt: skip
CLOUDWATCH = {"logGroup": "g", "owner": "1", "logEvents": [{"id": "1", "message": "m"}, {"id": "2", "message": "n"}]}
DEBEZIUM = {"schema": {"type": "struct"}, "payload": {"after": {"user": "ann"}, "op": "c"}}


def decode(value: Any, **rules: Any) -> RecordContent:
    """Decode by these rules; the second opinion says the same, and texts of rows are their values."""
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    settings = InputSettings(**rules)
    decoded = RecordDecoder(settings).decode(text)
    assert_decoded_alike(decoded, text, settings)
    assert [json.loads(one) for _, _, one, _ in decoded.entries] == [entry for _, entry, *_ in decoded.entries]
    return decoded


def rows(value: Any, path: str, **rules: Any) -> list[dict[str, Any]]:
    """Give the rows of a record of which all entries are good."""
    decoded = decode(value, entries_path=path, **rules)
    assert not decoded.bad
    return [entry for _, entry, *_ in decoded.entries]


def test_envelope_of_one_list_stands_in_each_row() -> None:
    around = {"logGroup": "g", "owner": "1"}
    assert rows(CLOUDWATCH, "logEvents[]") == [
        {"id": "1", "message": "m", "_envelope": around},
        {"id": "2", "message": "n", "_envelope": around},
    ]


def test_envelope_that_is_dropped_can_be_read_by_paths_all_the_same() -> None:
    decoded = decode(CLOUDWATCH, entries_path="logEvents[]", envelope="drop")
    entry, text = {"id": "2", "message": "n"}, b'{"id": "2", "message": "n"}'
    assert decoded.entries[1] == (1, entry, text, {"logGroup": "g", "owner": "1"})


def test_members_around_entries_at_any_level_stand_where_they_stood() -> None:
    scopes = [
        {"resourceLogs": {"resource": {"service": "a"}, "scopeLogs": {"scope": 1}}, "v": 7},
        {"resourceLogs": {"resource": {"service": "a"}, "scopeLogs": {"scope": 1}}, "v": 7},
        {"resourceLogs": {"resource": {"service": "b"}}, "v": 7},
    ]
    found = rows(OTLP, "resourceLogs[].scopeLogs[].logRecords[]")
    assert found == [{"n": number, "_envelope": scope} for number, scope in enumerate(scopes, 1)]


def test_object_at_the_end_of_a_path_is_one_entry() -> None:
    assert rows(DEBEZIUM, "payload") == [{**DEBEZIUM["payload"], "_envelope": {"schema": {"type": "struct"}}}]
    (row,) = rows(DEBEZIUM, "payload.after")
    assert row == {"user": "ann", "_envelope": {"schema": {"type": "struct"}, "payload": {"op": "c"}}}


def test_dot_inside_a_key_of_a_path_is_escaped() -> None:
    assert rows({"a.b": [{"n": 1}]}, r"a\.b[]") == [{"n": 1}]


def test_object_without_the_next_key_is_an_entry_at_any_level() -> None:
    assert rows({"n": 1}, "a[].b[]") == [{"n": 1}]
    assert rows({"v": 1, "a": [{"n": 1}, {"b": [{"n": 2}]}]}, "a[].b[]") == [
        {"n": 1, "_envelope": {"v": 1}},
        {"n": 2, "_envelope": {"v": 1}},
    ]


def test_field_of_an_entry_that_is_named_as_the_envelope_is_kept() -> None:
    entry = {"_envelope": 1, "__envelope": 2}
    assert rows({"v": 1, "a": [entry, {}]}, "a[]") == [{**entry, "___envelope": {"v": 1}}, {"_envelope": {"v": 1}}]


@pytest.mark.parametrize(
    ("value", "path", "bad"),
    [
        ({"a": {"n": 1}}, "a[]", [(None, NO_LIST)]),
        ({"a": [{"n": 1}]}, "a", [(None, NO_OBJECT)]),
        ({"a": None}, "a.b", [(None, NO_OBJECT)]),
        ({"a": [{"b": 1}, 7, {"b": [7]}]}, "a[].b[]", [(0, NO_LIST), (1, NO_OBJECT), (2, NO_OBJECT)]),
        (b'{"a":[{"b":[{},yes]},{"b":[{}],"x":yes},{"b":[{}]}]}', "a[].b[]", [(1, BAD), (2, BAD)]),
    ],
)  # fmt: skip
def test_path_that_ends_at_something_else_is_dead_and_costs_its_neighbours_nothing(
    value: Any, path: str, bad: list[Any]
) -> None:
    assert [(one.number, one.reason) for one in decode(value, entries_path=path).bad] == bad


def test_envelope_whose_copies_are_larger_than_a_record_may_be_is_dead_and_says_what_to_do() -> None:
    value = {"text": "x" * 1000, "a": [{"n": 1}] * 100}
    (bad,) = decode(value, entries_path="a[]", record_bytes_max=50_000).bad
    assert (bad.number, bad.reason) == (None, Reason.RECORD_TOO_LARGE)
    assert "input.envelope = drop" in bad.message
    assert len(rows(value, "a[]", record_bytes_max=50_000, envelope="drop")) == 100


def test_entries_of_all_lists_together_are_bounded() -> None:
    few = type("Few", (InputSettings,), {"entries_per_record_max": 3})
    value = json.dumps({"a": [{"b": [{}, {}]}, {"b": [{}, {}]}]}).encode()
    settings = few(entries_path="a[].b[]")
    decoded = RecordDecoder(settings).decode(value)
    assert_decoded_alike(decoded, value, settings)
    assert [(one.number, one.reason) for one in decoded.bad] == [(None, Reason.TOO_MANY_ENTRIES)]


@pytest.mark.parametrize("levels", [97, 98, 99, 500, 900])
def test_nesting_around_entries_costs_these_and_no_more(levels: int) -> None:
    """The worker goes on: an entry that is too deep with what is around it is a dead letter."""
    deep = b'{"a":' * levels + b"1" + b"}" * levels
    settings = InputSettings(entries_path="e[]")
    value = b'{"zzz":' + deep + b',"e":[{"x":1}]}'
    decoded = RecordDecoder(settings).decode(value)
    assert_decoded_alike(decoded, value, settings)
    assert [bad.reason for bad in decoded.bad] == ([Reason.TOO_DEEP] if levels > 98 else [])
