"""Real logs as a test knows them: how they become records, and what must be found of them downstream.

User, date and hour that an entry should have are computed here, by rules written from the data's own descriptions.
"""

import calendar
import json
import random
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from log_partitioner import zstd
from tests.integration.harness import Deployment
from tests.integration.readback import Row, difference, read_dead_letters
from tests.stack.kafka_helper import ToProduce
from tests.stack.real_logs import real_log_sets

PARTITIONS = 4
ENTRIES_PER_RECORD_MAX = 50
RECORD_BYTES_MAX = 800_000  # below the broker's default message.max.bytes
_ISO = re.compile(r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:?\d\d)?\Z", re.ASCII)
_ACCESS = re.compile(
    r'(?P<client>\S+) (?P<ident>\S+) (?P<auth>\S+) \[(?P<time>[^\]]+)\] "(?P<request>(?:[^"\\]|\\.)*)" '
    r'(?P<status>\d{3}) (?P<bytes>\S+) "(?P<referrer>(?:[^"\\]|\\.)*)" "(?P<agent>.*?)"?\Z'
)
AS_TEXT = {
    "LOGP_INPUT__FORMAT": "text",
    "LOGP_INPUT__PATTERN": _ACCESS.pattern.removesuffix(r"\Z"),
    "LOGP_TIME__PATHS": "time",
}
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


@dataclass(frozen=True)
class Rules:
    """The paths of user, time and id in a file's entries; a path is a tuple of keys."""

    user: tuple[tuple[str, ...], ...]
    time: tuple[tuple[str, ...], ...]
    id: tuple[tuple[str, ...], ...] = ()
    entries: int = 0
    dead: int = 0

    def settings(self) -> dict[str, str]:
        """The same for the worker."""
        paths = {"USER": self.user, "TIME": self.time, "ID": self.id}
        return {
            f"LOGP_{name}__PATHS": json.dumps([".".join(key.replace(".", "\\.") for key in path) for path in some])
            for name, some in paths.items()
        }


_CLOUD_USER = (("userIdentity", "arn"), ("userIdentity", "invokedBy"))
_AT_TIMESTAMP = (("@timestamp",),)
RULES = {
    "cloudtrail-invictus-2023-07-10": Rules(_CLOUD_USER, (("eventTime",),), (("eventID",),), entries=2_900),
    "cloudtrail-stratus-red-team": Rules(_CLOUD_USER, (("eventTime",),), (("eventID",),), entries=310),
    "cloudtrail-otrf-2020-09-14": Rules(_CLOUD_USER, _AT_TIMESTAMP, (("eventID",),), entries=103),
    "apache_logs": Rules((("client",),), _AT_TIMESTAMP, entries=10_000),
    "nginxplus_json_logs": Rules((("address",),), (("timestamp",),), entries=500),
    "eve": Rules((("src_ip",),), (("timestamp",),), entries=5_000, dead=90),
    "wikiticker-2015-09-12": Rules((("user",),), (("time",),), entries=39_199),
    "winlogbeat-2019": Rules((("computer_name",),), _AT_TIMESTAMP, (("record_number",),), entries=28_473),
    "nxlog-2020": Rules((("Hostname",),), _AT_TIMESTAMP, (("RecordNumber",),), entries=114_657),
    "timecreated-2020-2023": Rules((("Hostname",),), (("@timestamp",), ("TimeCreated",)), entries=125_119),
    "sentinel-2021-2022": Rules((("Computer",), ("DeviceName",)), (("TimeGenerated",),), entries=726),
}


def name_of(file: Path) -> str:
    """Return the name under which `RULES` has a file."""
    return file.name.partition(".")[0]


def real_log_files() -> list[Path]:
    """All files of all sets."""
    return [file for directory in real_log_sets() for file in sorted(directory.glob("*.zst"))]


class RealLog:
    """The entries of one file, the records they went in with, and which of them have been found.

    `texts` are the lines of an access log that the entries were made of, if these go in; they have no ISO time.
    """

    def __init__(self, lines: list[bytes], rules: Rules, texts: list[bytes] | None = None) -> None:
        self._lines = lines
        self._texts = texts
        self._rules = rules
        self._stamp_ms = int(time.time() * 1000)
        self._first_of_record = list(_cut(lines))
        self._record_at: dict[tuple[int, int], int] = {}
        self._times_found = bytearray(len(lines))
        self._place_of: dict[str, tuple[str, int]] = {}

    def records(self) -> Iterator[ToProduce]:
        """Arrays of entries, or lines, spread over the partitions; a single entry stands without an array."""
        ends = [*self._first_of_record[1:], len(self._lines)]
        for number, (first, end) in enumerate(zip(self._first_of_record, ends, strict=True)):
            some = self._lines[first:end]
            value = some[0] if len(some) == 1 else b"[" + b",".join(some) + b"]"
            if self._texts is not None:
                value = b"\n".join(self._texts[first:end])
            yield ToProduce(value=value, partition=number % PARTITIONS, timestamp_ms=self._stamp_ms)

    def note_places(self, written: list[tuple[int, int]]) -> None:
        """Learn where the records went, in their order."""
        self._record_at = {place: number for number, place in enumerate(written)}

    def check_reference(self, partition: Any, entries: int, rows: list[Row]) -> None:
        """Check the rows of one reference."""
        assert len(rows) == entries
        for row in rows:
            number, entry = self.check_entry((row.partition, row.offset, row.index), row.entry)
            user = _first(entry, self._rules.user, _as_user)
            assert user == row.user == partition.user, f"entry {number} is of {user!r}, stands under {partition}"
            time_us = self._time_of(entry)
            assert time_us == row.event_time_us, f"entry {number} is of {time_us}, not {row.event_time_us}"
            date, hour = self._date_and_hour(time_us)
            assert (date, hour) == (partition.date, partition.hour), (
                f"entry {number} is of {date} {hour}, not {partition}"
            )
            assert _first(entry, self._rules.id, _as_id) == row.id

    def check_entry(self, place: tuple[int, int, int], found: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Check the values of one entry that was found, by (partition, offset, index); gives its number and itself."""
        number = self._take(*place)
        entry: dict[str, Any] = json.loads(self._lines[number])
        text = difference(entry if self._texts is None else _without_iso(entry), found)
        assert text is None, f"entry {number}{text}"
        return number, entry

    def check_dead_letters(self, deployment: Deployment) -> None:
        """Check that the dead are those without a user, each with its record untouched."""
        values = dict(zip(self._record_at, (record.value for record in self.records()), strict=True))
        dead = 0
        for letter in read_dead_letters(deployment):
            assert letter.reason == "no_user", letter
            assert letter.value == values[letter.partition, letter.offset]
            assert letter.indexes
            for index in letter.indexes:
                number = self._take(letter.partition, letter.offset, index)
                assert _first(json.loads(self._lines[number]), self._rules.user, _as_user) is None
                dead += 1
        assert dead >= self._rules.dead

    def check_nothing_is_missing(self) -> None:
        """Check that each entry was found once."""
        missing = [number for number, times in enumerate(self._times_found) if times != 1]
        assert not missing, f"{len(missing)} of {len(self._lines)} entries not found once, such as {missing[:5]}"

    def _take(self, partition: int, offset: int, index: int) -> int:
        record = self._record_at[partition, offset]
        number = self._first_of_record[record] + index
        ends = self._first_of_record[record + 1] if record + 1 < len(self._first_of_record) else len(self._lines)
        assert number < ends, f"record {record} has no entry {index}"
        self._times_found[number] += 1
        assert self._times_found[number] == 1, f"entry {number} comes out again"
        return number

    def _time_of(self, entry: dict[str, Any]) -> int:
        found = _first(entry, self._rules.time, _micros)
        return self._stamp_ms * 1000 if found is None else found

    def _date_and_hour(self, time_us: int) -> tuple[str, int]:
        moment = time.gmtime(time_us // 1_000_000)
        return f"{moment.tm_year}-{moment.tm_mon:02}-{moment.tm_mday:02}", moment.tm_hour


def _cut(lines: list[bytes]) -> Iterator[int]:
    """Give the first line of each record: 1 to 50 entries, as many as fit."""
    choose = random.Random(5)
    at = 0
    while at < len(lines):
        yield at
        room, count = RECORD_BYTES_MAX, choose.choice((1, 2, 10, ENTRIES_PER_RECORD_MAX))
        end = at
        while end < len(lines) and end - at < count and (end == at or len(lines[end]) < room):
            room -= len(lines[end]) + 1
            end += 1
        at = end


def lines_of(file: Path) -> list[bytes]:
    """Read a file's entries, each the JSON text of an object."""
    lines = texts_of(file)
    return [_access_entry(line) for line in lines] if file.name.endswith(".raw.log.zst") else lines


def texts_of(file: Path) -> list[bytes]:
    """Read a file's lines as they stand there."""
    with zstd.open_file(file, "rb", options=zstd.WINDOW_LOG_MAX) as opened:
        lines: list[bytes] = opened.read().splitlines()
    return lines


def _access_entry(line: bytes) -> bytes:
    """Make an entry of a line of an access log: its parts as they stand, and the time as ISO-8601."""
    match = _ACCESS.match(line.decode())
    assert match, line
    day, month, year, clock, zone = re.split(r"[/: ]", match["time"], maxsplit=3)[:3] + match["time"].split(":", 1)[
        1
    ].split(" ")
    iso = f"{year}-{_MONTHS.index(month) + 1:02}-{day}T{clock}{zone}"
    return json.dumps({"@timestamp": iso, **match.groupdict()}, ensure_ascii=False).encode()


def _without_iso(entry: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in entry.items() if name != "@timestamp"}


def _first(entry: dict[str, Any], paths: tuple[tuple[str, ...], ...], read: Callable[[Any], Any]) -> Any:
    for path in paths:
        value: Any = entry
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        found = None if value is None else read(value)
        if found is not None:
            return found
    return None


def _as_user(value: Any) -> str | None:
    user = _as_id(value)
    return None if user in ("", "-") else user


def _as_id(value: Any) -> str | None:
    return value if isinstance(value, str) else str(value) if type(value) is int else None


def _micros(value: Any) -> int | None:
    """Read a time: epoch milliseconds, or ISO-8601, which is UTC if it names no zone."""
    if isinstance(value, int):
        return value * 1000
    match = _ISO.match(value)
    if not match:
        return None
    year, month, day, hour, minute, second = (int(match[number]) for number in range(1, 7))
    seconds = calendar.timegm((year, month, day, hour, minute, second))
    zone = (match[8] or "Z").replace(":", "")
    if zone != "Z":
        seconds -= int(zone[0] + "1") * (int(zone[1:3]) * 3600 + int(zone[3:]) * 60)
    return seconds * 1_000_000 + int((match[7] or "0").ljust(6, "0")[:6])
