"""Lines of syslog (docs/INPUTS.md): which part has which name, in RFC 5424 and as rsyslog writes RFC 3164."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from log_partitioner.config.settings import InputSettings, UserSettings
from log_partitioner.formats.dead_letter import Reason
from log_partitioner.formats.model import SourceRecord, TopicPartition
from log_partitioner.input.decode import RecordContent
from tests.fakes.lanes import decode_alike, recorded, settings
from tests.strategies import times_as_many

RULES = InputSettings(format="syslog")
RFC_3164 = "<34>Oct 11 22:14:15 mymachine su[123]: 'su root' failed for lonvick on /dev/pts/8"
RFC_5424 = (
    "<165>1 2003-10-11T22:14:15.003Z mymachine.example.com evntslog - ID47 "
    '[exampleSDID@32473 iut="3" eventSource="Application"][priority@32473 class="high"] An event'
)
OLD = {
    "facility": 4, "severity": 2, "time": "Oct 11 22:14:15", "host": "mymachine", "app": "su", "pid": "123",
    "message": "'su root' failed for lonvick on /dev/pts/8",
}  # fmt: skip
BARE = {"time": "Oct 11 22:14:15", "host": "h"}
NEW = {
    "facility": 20, "severity": 5, "time": "2003-10-11T22:14:15.003Z", "host": "mymachine.example.com",
    "app": "evntslog", "msgid": "ID47", "message": "An event",
    "data": {"exampleSDID@32473": {"iut": "3", "eventSource": "Application"}, "priority@32473": {"class": "high"}},
}  # fmt: skip


def decode(value: bytes) -> RecordContent:
    """Decode lines; the second opinion says the same."""
    return decode_alike(value, RULES)


def without(entry: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in entry.items() if name not in names}


@pytest.mark.parametrize(
    ("line", "entry"),
    [
        (RFC_3164, OLD),
        (RFC_3164 + "\r", OLD),
        (RFC_3164.replace("<34>", ""), without(OLD, "facility", "severity")),
        (RFC_3164.replace("[123]", ""), without(OLD, "pid")),
        (RFC_3164.replace("Oct 11", "Oct  1"), OLD | {"time": "Oct  1 22:14:15"}),
        (RFC_3164.replace(BARE["time"], "2026-10-11T22:14:15+02:00"), OLD | {"time": "2026-10-11T22:14:15+02:00"}),
        (
            "Oct 11 22:14:15.250 h kernel: [ 12.5] usb: up",
            {"time": "Oct 11 22:14:15.250", "host": "h", "app": "kernel", "message": "[ 12.5] usb: up"},
        ),
        ("Oct 11 22:14:15 h postfix/smtpd[1]:", BARE | {"app": "postfix/smtpd", "pid": "1"}),
        ("Oct 11 22:14:15 h a:b: c", BARE | {"message": "a:b: c"}),
        ("Oct 11 22:14:15 h -- MARK --", BARE | {"message": "-- MARK --"}),
        ("Oct 11 22:14:15 h", BARE),
        ("Oct 11 22:14:15 ::1 ", BARE | {"host": "::1", "message": ""}),
        (RFC_5424, NEW),
        (RFC_5424.replace(" An event", ""), without(NEW, "message")),
        ("<0>1 - - - - - -", {"facility": 0, "severity": 0}),
        ("<191>1 - - - - - -  \ufeffü", {"facility": 23, "severity": 7, "message": " \ufeffü"}),
        ('<14>1 - h a 7 - [origin ip="::1" ip="10.0.0.1" x=""][origin y="\\"]"] ',
         {"facility": 1, "severity": 6, "host": "h", "app": "a", "pid": "7", "message": "",
          "data": {"origin": {"ip": ["::1", "10.0.0.1"], "x": "", "y": '\\"]'}}}),
        ("<14>1 - - - - - [timeQuality]", {"facility": 1, "severity": 6, "data": {"timeQuality": {}}}),
    ],
)  # fmt: skip
def test_line_is_an_entry_with_a_text_that_says_the_same(line: str, entry: Any) -> None:
    ((_, found, text, _),) = decode(line.encode()).entries
    assert found == json.loads(text) == entry


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"user": "ann"}', Reason.MALFORMED),
        (RFC_3164.replace("<34>", "<192>").encode(), Reason.MALFORMED),
        (RFC_3164.replace("<34>", "<034>").encode(), Reason.MALFORMED),
        (RFC_3164.replace("<34>", "<>").encode(), Reason.MALFORMED),
        (RFC_3164.replace("Oct", "10").encode(), Reason.MALFORMED),
        (RFC_3164.replace(" mymachine su[123]", "").encode(), Reason.MALFORMED),
        (RFC_5424.replace(">1", ">2").encode(), Reason.MALFORMED),
        (RFC_5424.replace("165", "1650").encode(), Reason.MALFORMED),
        (RFC_5424.replace(" ID47", " ").encode(), Reason.MALFORMED),
        (RFC_5424.replace('high"]', 'high"').encode(), Reason.MALFORMED),
        (RFC_5424.replace('iut="3"', "iut=3").encode(), Reason.MALFORMED),
        (RFC_5424.replace("] An", "]An").encode(), Reason.MALFORMED),
        (RFC_5424.encode() + b"\xff", Reason.INVALID_UNICODE),
    ],
)
def test_line_of_another_kind_is_dead_and_costs_its_neighbours_nothing(line: bytes, reason: Reason) -> None:
    decoded = decode(RFC_3164.encode() + b"\n\n" + line + b"\n" + RFC_5424.encode())
    assert [entry["host"] for _, entry, *_ in decoded.entries] == ["mymachine", "mymachine.example.com"]
    assert [(bad.number, bad.reason) for bad in decoded.bad] == [(1, reason)]
    assert "input.format = text" in decoded.bad[0].message or "UTF-8" in decoded.bad[0].message


def written(entry: dict[str, Any], *, is_5424: bool) -> str:
    """Write an entry as the line that it was."""
    priority = f"<{entry['facility'] * 8 + entry['severity']}>" if "facility" in entry else ""
    message = f" {entry['message']}" if "message" in entry else ""
    if is_5424:
        words = " ".join(entry.get(name, "-") for name in ("time", "host", "app", "pid", "msgid"))
        return f"{priority}1 {words} {''.join(map(element, entry.get('data', {}).items())) or '-'}{message}"
    pid = f"[{entry['pid']}]" if "pid" in entry else ""
    tag = f" {entry['app']}{pid}:" if "app" in entry else ""
    return f"{priority}{entry['time']} {entry['host']}{tag}{message}"


def element(named: tuple[str, dict[str, Any]]) -> str:
    name, parameters = named
    several = {key: found if type(found) is list else [found] for key, found in parameters.items()}
    return f"[{name}" + "".join(f' {key}="{value}"' for key, values in several.items() for value in values) + "]"


pieces = st.sampled_from(
    [*RFC_3164.split(" "), *RFC_5424.split(" "), " ", '"', "\\", "[", "]", "=", ":", "-", "\u2028"]
)
hosts = st.sampled_from(["Oct  1 00:00:00 h", "<13>2026-01-01T00:00:00Z ::1", "<13>1 - - - - -", RFC_3164, RFC_5424])


@times_as_many(4)
@given(hosts, st.lists(pieces | st.text(max_size=2), max_size=8), st.integers(0, 200), st.sampled_from(["", " "]))
def test_any_lines_are_what_the_second_opinion_says_and_nothing_of_them_is_lost(
    begin: str, some: list[str], at: int, space: str
) -> None:
    line = f"{begin[:at]}{space}{''.join(some)}{begin[at:]}".replace("\n", "")
    for _, entry, *_ in decode(line.encode(errors="replace")).entries:
        is_5424 = re.match(r"<\d+>1 ", line) is not None
        assert written(entry, is_5424=is_5424) == line.encode(errors="replace").decode().removesuffix("\r")


@pytest.mark.parametrize("part", [b'"', b"\\", b"[a ", b'[a b="c"]', b' b="c"', b"- ", b"[", b"<1>", b":", b"\0"])
@pytest.mark.parametrize("begin", [RFC_3164, RFC_5424, RFC_5424.partition("[")[0] + "[a", "<34>1 - - - - - "])
def test_hostile_line_is_read_in_linear_time(begin: str, part: bytes) -> None:
    """Two lines of 100 kB."""
    started = time.process_time()
    decode(begin.encode() + part * (100_000 // len(part)) + b"\n" + part * (100_000 // len(part)))
    assert time.process_time() - started < 2


def test_time_without_a_year_is_of_the_record_s_year() -> None:
    """tests/unit/partitioning/test_event_time.py has the turn of a year."""
    record = SourceRecord(TopicPartition("app", 0), 0, 1_791_756_856_000, None, RFC_3164.encode(), ())
    rows, _ = recorded([record], settings(input=RULES, user=UserSettings(paths=("host",))), is_fast=False)
    assert rows[0, 0].key == ("mymachine", "2026-10-11", 22)
