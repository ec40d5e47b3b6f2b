"""Lines of web servers (docs/INPUTS.md): what each part is named, what is a number, which lines are dead."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.real import DATA
from log_partitioner import zstd
from log_partitioner.config.settings import InputSettings
from log_partitioner.formats.dead_letter import Reason
from log_partitioner.input.decode import RecordContent, RecordDecoder
from tests.fakes.lanes import decode_alike
from tests.strategies import times_as_many

RULES = InputSettings(format="access-log")
COMMON = '127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /a.gif HTTP/1.0" 200 2326'
ENTRY = {
    "client": "127.0.0.1", "ident": "-", "user": "frank", "time": "10/Oct/2000:13:55:36 -0700",
    "request": "GET /a.gif HTTP/1.0", "status": 200, "bytes": 2326,
}  # fmt: skip
COMBINED = {"referer": "http://x/", "agent": "Mozilla/4.08"}


def decode(value: bytes) -> RecordContent:
    """Decode lines; the second opinion says the same."""
    return decode_alike(value, RULES)


@pytest.mark.parametrize(
    ("line", "entry"),
    [
        (COMMON, ENTRY),
        (COMMON + "\r", ENTRY),
        (COMMON.replace("2326", "-"), {name: value for name, value in ENTRY.items() if name != "bytes"}),
        (COMMON + ' "http://x/" "Mozilla/4.08"', ENTRY | COMBINED),
        (COMMON + ' "http://x/" "Mozilla/4.08', ENTRY | COMBINED),
        (COMMON + ' "http://x/" "Mozilla/4.08" "10.0.0.1" 0.003', ENTRY | COMBINED | {"more": '"10.0.0.1" 0.003'}),
        (COMMON + " 12", ENTRY | {"more": "12"}),
        (COMMON + " ", ENTRY | {"more": ""}),
        (COMMON + ' "http://x/" "Mozilla/4.08" ', ENTRY | COMBINED | {"more": ""}),
        (COMMON + ' "http://x/" "Mozilla/4.08"x', ENTRY | {"more": '"http://x/" "Mozilla/4.08"x'}),
        (COMMON.replace("GET", r"G\"\x16T"), ENTRY | {"request": r"G\"\x16T /a.gif HTTP/1.0"}),
        (COMMON.replace("frank", "müller"), ENTRY | {"user": "müller"}),
    ],
)
def test_line_is_an_entry_with_a_text_that_says_the_same(line: str, entry: Any) -> None:
    ((_, found, text, _),) = decode(line.encode()).entries
    assert found == json.loads(text) == entry


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"user": "ann"}', Reason.MALFORMED),
        (COMMON.replace(" 200 ", " ").encode(), Reason.MALFORMED),
        (COMMON.replace("2326", "9" * 19).encode(), Reason.MALFORMED),
        (COMMON.replace("frank", "\udcff").encode(errors="surrogateescape"), Reason.INVALID_UNICODE),
    ],
)
def test_line_of_another_kind_is_dead_and_costs_its_neighbours_nothing(line: bytes, reason: Reason) -> None:
    decoded = decode(COMMON.encode() + b"\n\n" + line + b"\n" + COMMON.encode())
    assert [index for index, *_ in decoded.entries] == [0, 2]
    assert [(bad.number, bad.reason) for bad in decoded.bad] == [(1, reason)]


pieces = st.sampled_from([*COMMON.split(" "), " ", '"', "\\", "[", "]", "-", "200", "\u2028", "\t", '"-"', "\n"])


@times_as_many(4)
@given(st.lists(pieces | st.text(max_size=2), max_size=12), st.integers(0, len(COMMON)), st.booleans())
def test_any_lines_are_what_the_second_opinion_says(some: list[str], at: int, is_behind: bool) -> None:  # noqa: FBT001
    text = "".join(some)
    line = f"{COMMON}{text}" if is_behind else f"{COMMON[:at]}{text}{COMMON[at:]}"
    decode(line.encode(errors="replace"))


@pytest.mark.parametrize("part", [b'"', b"\\", b' "', b'\\"', b"- ", b"[", b"1", b' "" ""'])
def test_hostile_line_is_read_in_linear_time(part: bytes) -> None:
    begin = time.process_time()
    RecordDecoder(RULES).decode(COMMON.encode() + b" " + part * 1_000_000)
    RecordDecoder(RULES).decode(part * 1_000_000)
    assert time.process_time() - begin < 10


REAL = DATA / "http-access" / "apache_logs.raw.log.zst"


@pytest.mark.skipif(not REAL.exists(), reason="real logs are absent: http-access")
def test_real_log_is_a_row_per_line_that_holds_all_of_it() -> None:
    content = zstd.decompress(REAL.read_bytes())
    lines = content.decode().splitlines()
    decoded = decode(content)
    assert not decoded.bad
    assert len(decoded.entries) == len(lines) == 10_000
    for line, (_, entry, *_) in zip(lines, decoded.entries, strict=True):
        texts = {name: str(value) for name, value in ({"bytes": "-"} | entry).items()}
        twin = '{client} {ident} {user} [{time}] "{request}" {status} {bytes} "{referer}" "{agent}"'.format(**texts)
        assert line in (twin, twin[:-1])
        assert re.fullmatch(r"[0-9]{3}", texts["status"])
