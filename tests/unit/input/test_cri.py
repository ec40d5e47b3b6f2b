"""Lines of containers (docs/INPUTS.md): members of a line, JSON in its message, lines that are dead."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.real import DATA
from log_partitioner import zstd
from log_partitioner.config.settings import IdSettings, InputSettings, UserSettings
from log_partitioner.formats.dead_letter import Reason
from log_partitioner.formats.model import SourceRecord, TopicPartition
from log_partitioner.input.decode import RecordContent
from tests.fakes.lanes import decode_alike, recorded, settings
from tests.strategies import times_as_many

RULES = InputSettings(format="cri")
LINE = "2016-10-06T00:17:09.669794202Z stdout F message"
ENTRY = {"time": "2016-10-06T00:17:09.669794202Z", "stream": "stdout", "tag": "F", "message": "message"}


def decode(value: bytes) -> RecordContent:
    """Decode lines; the second opinion says the same."""
    return decode_alike(value, RULES)


def written(entry: dict[str, Any]) -> str:
    """Write an entry as the line that it was."""
    return " ".join(entry[name] for name in ("time", "stream", "tag", "message") if name in entry)


@pytest.mark.parametrize(
    ("line", "entry"),
    [
        (LINE, ENTRY),
        (LINE + "\r", ENTRY),
        (LINE.replace(" F", " P"), ENTRY | {"tag": "P"}),
        (LINE.replace(" F", " F:a:b"), ENTRY | {"tag": "F:a:b"}),
        (LINE.replace("stdout", "stderr"), ENTRY | {"stream": "stderr"}),
        (LINE.replace("message", " a  b "), ENTRY | {"message": " a  b "}),
        (LINE.replace("message", ""), ENTRY | {"message": ""}),
        (LINE.replace(" message", ""), {name: value for name, value in ENTRY.items() if name != "message"}),
    ],
)
def test_line_is_an_entry_with_a_text_that_says_the_same(line: str, entry: Any) -> None:
    """Partial lines (P) are entries of their own."""
    ((_, found, text, _),) = decode(line.encode()).entries
    assert found == json.loads(text) == entry


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"log": "message", "stream": "stdout"}', Reason.MALFORMED),
        (LINE.replace("stdout", "stdin").encode(), Reason.MALFORMED),
        (LINE.replace(" F", " X").encode(), Reason.MALFORMED),
        (LINE.replace(" F", " FP").encode(), Reason.MALFORMED),
        (LINE.replace(" F", "  F").encode(), Reason.MALFORMED),
        (b" " + LINE.encode(), Reason.MALFORMED),
        (LINE.encode() + b"\xff", Reason.INVALID_UNICODE),
    ],
)
def test_line_of_another_kind_is_dead_and_costs_its_neighbours_nothing(line: bytes, reason: Reason) -> None:
    decoded = decode(LINE.encode() + b"\n\n" + line + b"\n" + LINE.encode())
    assert [index for index, *_ in decoded.entries] == [0, 2]
    assert [(bad.number, bad.reason) for bad in decoded.bad] == [(1, reason)]
    assert "input.format = text" in decoded.bad[0].message or "UTF-8" in decoded.bad[0].message


pieces = st.sampled_from([*LINE.split(" "), "P", " ", ":", "\u2028", "\t", "\n"]) | st.text(max_size=2)


@times_as_many(4)
@given(st.lists(pieces, max_size=8), st.integers(0, len(LINE)))
def test_any_lines_are_what_the_second_opinion_says_and_nothing_of_them_is_lost(some: list[str], at: int) -> None:
    text = f"{LINE[:at]}{''.join(some)}{LINE[at:]}".encode(errors="replace").decode()
    lines = [line for line in text.split("\n") if line.strip(" \t\r")]
    for index, entry, *_ in decode(text.encode()).entries:
        assert written(entry) == lines[index].removesuffix("\r")


@pytest.mark.parametrize("part", [b" ", b"F ", b":", b"stdout ", b"\0"])
def test_hostile_line_is_read_in_linear_time(part: bytes) -> None:
    begin = time.process_time()
    decode(LINE.encode() + part * 100_000 + b"\n" + part * 100_000)
    assert time.process_time() - begin < 2


def test_path_goes_on_in_the_json_that_is_a_message() -> None:
    value = LINE.replace("message", '{"user": {"id": "ann"}, "id": 7}').encode()
    record = SourceRecord(TopicPartition("app", 0), 0, None, None, value, ())
    given_settings = settings(
        input=RULES, user=UserSettings(paths=("message::user.id",)), id=IdSettings(paths=("message::id",))
    )
    rows, _ = recorded([record], given_settings, is_fast=False)
    assert (rows[0, 0].key, rows[0, 0].id) == (("ann", "2016-10-06", 0), "7")


REAL = DATA / "nginx-status" / "nginxplus_json_logs.ndjson.zst"


@pytest.mark.skipif(not REAL.exists(), reason="real logs are absent: nginx-status")
def test_real_log_in_lines_of_a_container_is_a_row_per_line_that_holds_all_of_it() -> None:
    lines = zstd.decompress(REAL.read_bytes()).decode().splitlines()
    decoded = decode("\n".join(LINE.replace("message", line) for line in lines).encode())
    assert not decoded.bad
    assert lines == [entry["message"] for _, entry, *_ in decoded.entries]
