"""Lines by a pattern of RE2 (docs/INPUTS.md): members, refusals at the start, hostile patterns and lines."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.real import DATA
from log_partitioner import zstd
from log_partitioner.config.settings import InputSettings, UserSettings
from log_partitioner.formats.dead_letter import Reason
from log_partitioner.formats.model import SourceRecord, TopicPartition
from log_partitioner.input.decode import RecordContent, RecordDecoder
from log_partitioner.input.formats import find_format_problems
from log_partitioner.partitioning.partitioner import Partitioner, Placement
from tests.fakes.lanes import decode_alike, settings
from tests.strategies import times_as_many

PATTERN = r"(?P<time>\S+) (?P<level>[A-Z]+)(?: \[(?P<thread>[^]]*)\])? (?P<user>\S+): (?P<message>.*)"
LINE = "2026-03-04T05:06:07,123 WARN [main] ann: gone"
ENTRY = {"time": "2026-03-04T05:06:07,123", "level": "WARN", "thread": "main", "user": "ann", "message": "gone"}


def by(pattern: str | None) -> InputSettings:
    return InputSettings(format="text", pattern=pattern)


def decode(value: bytes, rules: InputSettings = by(PATTERN)) -> RecordContent:  # noqa: B008 - a frozen value
    """Decode lines; the second opinion says the same."""
    return decode_alike(value, rules)


@pytest.mark.parametrize(
    ("line", "entry"),
    [
        (LINE, ENTRY),
        (LINE + "\r", ENTRY),
        (LINE.replace(" [main]", ""), {name: value for name, value in ENTRY.items() if name != "thread"}),
        (LINE.replace("main", ""), ENTRY | {"thread": ""}),
        (LINE.replace("ann", "änn\U0001f600"), ENTRY | {"user": "änn\U0001f600"}),
        (LINE.replace("gone", "go\0ne"), ENTRY | {"message": "go\0ne"}),
    ],
)
def test_groups_are_members_of_an_entry_with_a_text_that_says_the_same(line: str, entry: Any) -> None:
    """A group that takes no part is no member."""
    ((_, found, text, _),) = decode(line.encode()).entries
    assert found == json.loads(text) == entry


def test_members_stand_in_the_order_of_their_groups() -> None:
    ((_, _, text, _),) = decode(LINE.encode()).entries
    assert list(json.loads(text)) == ["time", "level", "thread", "user", "message"]


def test_backslash_before_a_letter_is_no_byte() -> None:
    assert decode(rb"C:\Cat", by(r"C:\\(?P<name>Cat)")).entries


def test_group_may_hold_a_whole_line_and_others_within_it() -> None:
    ((_, found, *_),) = decode(LINE.encode(), by(f"(?P<line>{PATTERN})")).entries
    assert found == ENTRY | {"line": LINE}


@pytest.mark.parametrize(
    ("line", "reason", "told"),
    [
        (b'{"user": "ann"}', Reason.MALFORMED, "input.pattern"),
        (b" " + LINE.encode(), Reason.MALFORMED, "input.pattern"),
        (LINE.encode() + b"\xff", Reason.INVALID_UNICODE, "UTF-8"),
    ],
)
def test_line_that_does_not_match_is_dead_and_costs_its_neighbours_nothing(
    line: bytes, reason: Reason, told: str
) -> None:
    decoded = decode(LINE.encode() + b"\n\n" + line + b"\n" + LINE.encode())
    assert [index for index, *_ in decoded.entries] == [0, 2]
    assert [(bad.number, bad.reason) for bad in decoded.bad] == [(1, reason)]
    assert told in decoded.bad[0].message


pieces = st.sampled_from([*LINE.split(" "), " ", "[", "]", ":", "\u2028", "\t", "\n", "\0"]) | st.text(max_size=2)


@times_as_many(4)
@given(st.lists(pieces, max_size=8), st.integers(0, len(LINE)))
def test_any_lines_are_what_the_second_opinion_says(some: list[str], at: int) -> None:
    decode(f"{LINE[:at]}{''.join(some)}{LINE[at:]}".encode(errors="replace"))


@pytest.mark.parametrize(
    "pattern", ["(?P<a>(a+)+)b", "(?P<a>(a|aa)*)b", "(?P<a>(.*)*)(.*)*b", r"(?P<a>(\w+\s*)+)b", "(?P<a>(a*)*)*b"]
)
@pytest.mark.parametrize("part", [b"a", b"a ", b"\0", "ä".encode()])
def test_hostile_line_is_read_in_linear_time_by_nested_quantifiers(pattern: str, part: bytes) -> None:
    """Lines of 100 kB."""
    begin = time.process_time()
    decode(part * (100_000 // len(part)) + b"\n" + part * (100_000 // len(part)) + b"b", by(pattern))
    assert time.process_time() - begin < 2


@pytest.mark.parametrize(
    ("pattern", "told"),
    [
        (None, "input.format text needs an input.pattern with named groups: (?P<time>"),
        (r"(\S+) .*", "input.format text needs an input.pattern with named groups: (?P<time>"),
        ("(?P<a>", "input.pattern is no pattern of RE2: missing )"),
        (r"(?P<a>.)\1", "input.pattern is no pattern of RE2: invalid escape sequence"),
        ("(?P<a>(a{1000}){1000})", "input.pattern is no pattern of RE2: "),
        (r"(?P<a>\C)", r"input.pattern has \C"),
    ],
)
def test_pattern_that_is_none_is_refused_at_the_start(pattern: str | None, told: str) -> None:
    (problem,) = find_format_problems(settings(input=by(pattern)))
    assert problem.startswith(told)


def test_start_without_the_extra_is_refused_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    (problem,) = find_format_problems(settings(input=by(PATTERN)))
    assert problem.startswith("input.format text needs google-re2: pip install 'log-partitioner[formats]', or an image")
    assert not [*find_format_problems(settings(input=InputSettings(format="syslog")))]


REAL = DATA / "http-access" / "apache_logs.raw.log.zst"
ACCESS = (
    r'(?P<client>\S+) (?P<ident>\S+) (?P<user>\S+) \[(?P<time>[^]]+)\] "(?P<request>(?:[^"\\]|\\.)*)" '
    r'(?P<status>\d{3}) (?P<bytes>\d+|-) "(?P<referer>(?:[^"\\]|\\.)*)" "(?P<agent>(?:[^"\\]|\\.)*)"?'
)


@pytest.mark.skipif(not REAL.exists(), reason="real logs are absent: http-access")
@pytest.mark.parametrize("rules", [InputSettings(format="access-log"), by(ACCESS)], ids=["access-log", "text"])
def test_real_log_is_a_row_per_line_as_its_twin_in_json_is(rules: InputSettings) -> None:
    """Entry, user and time are those of an object per line that other code writes."""
    lines = zstd.decompress(REAL.read_bytes()).decode().splitlines()
    decoded = decode("\n".join(lines).encode(), rules)
    twins = "\n".join(json.dumps(as_json(line, has_numbers=rules.format == "access-log")) for line in lines)
    of_json = RecordDecoder(InputSettings(format="ndjson")).decode(twins.encode())
    assert not decoded.bad
    assert len(decoded.entries) == len(lines) == 10_000
    partition = Partitioner(settings(user=UserSettings(paths=("client",)))).partition
    record = SourceRecord(TopicPartition("app", 0), 0, None, None, b"", ())
    for (_, entry, *_), (_, twin, *_) in zip(decoded.entries, of_json.entries, strict=True):
        assert entry == twin
        placed = partition(entry, None, record)
        assert placed == partition(twin, None, record)
        assert isinstance(placed, Placement)


def as_json(line: str, *, has_numbers: bool) -> dict[str, Any]:
    """Take a line apart at its quotes."""
    head, request, middle, referer, _, agent, *_ = line.replace('\\"', "\0").split('"')
    client, ident, user, day, zone = head.split()
    status, size = middle.split()
    texts = {
        "client": client, "ident": ident, "user": user, "time": f"{day[1:]} {zone[:-1]}", "request": request,
        "status": status, "bytes": size, "referer": referer, "agent": agent,
    }  # fmt: skip
    twin: dict[str, Any] = {name: text.replace("\0", '\\"') for name, text in texts.items()}
    if has_numbers:
        twin["status"] = int(status)
        twin["bytes"] = None if size == "-" else int(size)
    return {name: value for name, value in twin.items() if value is not None}
