"""The worker's log events: all are declared, all are written, and what is written is read back."""

from __future__ import annotations

import ast
import io
import json
import re
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
import structlog

import log_partitioner
from log_partitioner.adapters import logs
from log_partitioner.formats import log_events
from log_partitioner.formats.log_events import EVENTS, FIELDS, LogEvent, Start, read_line, tell
from log_partitioner.formats.model import CommittedOffset
from log_partitioner.formats.plain_events import PLAIN
from tests.log_lines import line_of, read

LEVELS = {"debug", "info", "warning", "error", "critical", "exception", "log"}
SOURCES = [path for path in Path(log_partitioner.__file__).parent.rglob("*.py") if path.name != "log_events.py"]
CALLS = [
    node
    for path in SOURCES
    for node in ast.walk(ast.parse(path.read_text()))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name)
]
OF_ERRORS = {"code", "message", "fatal", "retriable"}  # `adapters.kafka.log.describe`
SAMPLES: dict[Any, Any] = {
    int: 7,
    float: 0.25,
    str: "text",
    list[str]: ["logs-0", "logs-1"],
    dict[str, int]: {"logs-0": 5},
    dict[str, float]: {"seal": 0.5},
    dict[str, list[int]]: {"logs-0": [3, 5]},
    dict[str, Start]: {"logs-0": Start(3, "committed")},
    dict[str, log_events.Covered]: {
        "logs-0": {"first_offset": 1, "min_offset": 2, "max_offset": None, "next_offset": 4}
    },
    dict[str, tuple[int, CommittedOffset]]: {"logs-0": (3, CommittedOffset(5, None, "text"))},
    dict[str, tuple[int, int]]: {"logs-0": (3, 5)},
    list[tuple[int, int]]: [(1, 3), (5, 6)],
    list[int]: [17, 0],
}


def is_logger(node: ast.expr) -> bool:
    """Whether this is `log`, `self._log` or what `get_logger` returns."""
    return re.search(r"(\blog|_log|get_logger\(.*\)|bind\(.*\))$", ast.unparse(node)) is not None


def plain_calls() -> list[tuple[str, set[str]]]:
    """Events that are written by their names, with the fields of each call."""
    found = []
    for call in CALLS:
        if isinstance(call.func, ast.Attribute) and call.func.attr in LEVELS and is_logger(call.func.value):
            names = [one.value for one in call.args if isinstance(one, ast.Constant)]
            assert len(names) == 1, f"an event without a name: {ast.unparse(call)}"
            found.append((str(names[0]), {keyword.arg for keyword in call.keywords if keyword.arg}))
    return found


def sample(kind: type[LogEvent], *, only_required: bool) -> LogEvent:
    """Make an event with a value in each field."""
    values: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        if field.required or not only_required:
            of_type = [one for one in get_args(field.type) if one is not type(None)]
            values[field.name] = SAMPLES[field.type] if field.type in SAMPLES else SAMPLES[of_type[0]]
    return kind(**values)


def test_every_event_that_is_written_is_declared_and_every_declared_one_is_written() -> None:
    """By its class, or for those of `PLAIN` by its name."""
    made = {
        (call.func.id if isinstance(call.func, ast.Name) else call.func.attr)
        for call in CALLS
        if isinstance(call.func, ast.Name | ast.Attribute)
    }
    classes = {kind.__name__: name for name, kind in EVENTS.items()}
    assert classes.keys() - made == set()
    assert {name for name, _ in plain_calls()} == PLAIN.keys()
    assert not PLAIN.keys() & EVENTS.keys()


def test_every_field_has_a_meaning() -> None:
    """In the text of its event, or among those that several have."""
    told = {name: kind.__doc__ or "" for name, kind in EVENTS.items()} | dict(PLAIN)
    fields = {name: set(kind.__struct_fields__) for name, kind in EVENTS.items()}
    for name, named_fields in plain_calls():
        fields[name] = fields.get(name, set()) | named_fields
    for name, text in told.items():
        meant = set(re.findall(r"`(\w+)`", text)) | FIELDS.keys()
        assert fields[name] <= meant, name
        written = fields[name] | OF_ERRORS | {"client"} if name in PLAIN else fields[name]
        assert set(re.findall(r"`(\w+)`", text)) <= written, name


@pytest.mark.parametrize("only_required", [True, False], ids=["required", "all"])
@pytest.mark.parametrize("kind", EVENTS.values(), ids=EVENTS)
def test_event_is_read_as_it_was_written(kind: type[LogEvent], *, only_required: bool) -> None:
    """Through the log as the process configures it: names and order of fields, then what every line has."""
    stream, event = io.StringIO(), sample(kind, only_required=only_required)
    logs.configure(level="info", style="json", worker="w-1", boot="b00t", stream=stream)
    tell(structlog.get_logger().warning, event)
    structlog.reset_defaults()
    line = read_line(stream.getvalue().encode())
    assert line is not None
    assert line.event == event
    assert (line.head.worker, line.head.boot, line.head.seq, line.head.level) == ("w-1", "b00t", 1, "warning")
    names = [field.name for field in msgspec.structs.fields(kind) if field.required or not only_required]
    assert list(json.loads(stream.getvalue()))[: len(names) + 2] == [*names, "event", "level"]


def test_odd_value_costs_no_line() -> None:
    """A value that its field cannot hold is written as text: logging raises nothing."""
    assert read(log_events.WorkerLeft(message=ValueError("why"))).fields["message"] == "ValueError('why')"  # type: ignore[arg-type]


def test_lines_of_other_versions_are_read_as_far_as_they_are_known() -> None:
    """An unknown field is passed over; an unknown event, and one with other fields, has no `event`."""
    known = read(log_events.Paused(seconds=1.0))
    more = line_of("paused", seconds=1.0, until="later")
    assert read_line(more) == known._replace(fields={**known.fields, "until": "later"})
    for line in (read("paused"), read("paused", seconds="one"), read("something_new", seconds=1.0)):
        assert line.event is None
        assert line.head.seq == 1


@pytest.mark.parametrize(
    "raw", [b"", b"Traceback (most recent call last):", b"[1]", b"5", b'{"event": "paused"}', b'{"a', b"\xff{\xff}"]
)
def test_what_is_no_line_of_a_worker_is_none(raw: bytes) -> None:
    """Other programs write beside it; a line may be cut."""
    assert read_line(raw) is None


def test_what_stands_before_a_line_is_ignored() -> None:
    """A log collector writes its own."""
    line = line_of(log_events.Resumed())
    assert read_line(b"2026-03-04T00:00:00Z stdout F " + line) == read_line(line)
