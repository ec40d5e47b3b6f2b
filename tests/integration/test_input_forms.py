"""Every form that input may have and every place where user, time and id may be, with the settings that say so.

Each form is a deployment of its own: its records go through a worker, rows and dead letters are compared with what
the form says, and the audit runs with the same settings.
"""

import gzip
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from log_partitioner import zstd
from log_partitioner.formats.model import CHAIN_HEADER
from tests.integration.harness import Deployment
from tests.integration.one_worker import run_through
from tests.integration.readback import Row, difference, parse_keeping, parse_rounding, read_dead_letters, read_objects
from tests.stack.kafka_helper import KafkaHelper, ToProduce
from tests.stack.names import Names
from tests.stack.s3_helper import S3Helper

STAMP_MS = int(time.time()) * 1000 + 7

Entry = dict[str, Any]


@dataclass(frozen=True)
class Alive:
    """An entry that comes out: its user, time, date and hour, id."""

    entry: Entry
    user: str
    at: str
    date: str
    hour: int
    id: str | None = None
    root: tuple[str, int, int, int | None] | None = None


@dataclass(frozen=True)
class Dead:
    """An entry that does not."""

    reason: str


@dataclass(frozen=True)
class Sent:
    """A record, and what becomes of its entries, in their order."""

    value: bytes | None
    becomes: tuple[Alive | Dead, ...] = ()
    key: bytes | None = None
    headers: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class Form:
    """Settings, records, and what their objects and references must be."""

    name: str
    settings: Mapping[str, str]
    records: tuple[Sent, ...]
    codec: str = "zstandard"


def json_of(value: Any) -> bytes:
    """Write JSON."""
    return json.dumps(value, ensure_ascii=False).encode()


def lines_of(*entries: Entry) -> bytes:
    """Write one entry per line."""
    return b"\n".join(map(json_of, entries)) + b"\n"


ANN = {"user": "ann", "time": "2024-03-04T05:59:59.999999Z", "n": 1, "tags": ["a", None], "more": {"x": 0.5}}
BEN = {"user": "ben \u00fc/", "time": "2024-03-04T06:00:00Z", "n": 2**60, "more": {"y": "\u20ac"}}
ANN_ALIVE = Alive(ANN, "ann", "2024-03-04T05:59:59.999999Z", "2024-03-04", 5)
BEN_ALIVE = Alive(BEN, "ben \u00fc/", "2024-03-04T06:00:00Z", "2024-03-04", 6)
BOTH_ALIVE = (ANN_ALIVE, BEN_ALIVE)

NDJSON = Form(
    "ndjson, compressed values, deflate",
    {
        "LOGP_INPUT__FORMAT": "ndjson",
        "LOGP_SPOOL__CODEC": "deflate",
    },
    (
        Sent(lines_of(ANN, BEN), BOTH_ALIVE),
        Sent(gzip.compress(lines_of(ANN, BEN)), BOTH_ALIVE),
        Sent(zstd.compress(lines_of(ANN, BEN)), BOTH_ALIVE),
        Sent(gzip.compress(lines_of(ANN)) + gzip.compress(lines_of(BEN)), BOTH_ALIVE),
        Sent(json_of([ANN, BEN]), (Dead("not_an_object"),)),
        Sent(b"\r\n".join([json_of(ANN), b"", b"{]", json_of(BEN)]), (ANN_ALIVE, Dead("malformed"), BEN_ALIVE)),
        Sent(None),
        Sent(
            lines_of(ANN),
            (Alive(ANN, "ann", "2024-03-04T05:59:59.999999Z", "2024-03-04", 5, root=("first", 3, 12, None)),),
            headers={CHAIN_HEADER: b'[["first",3,12],["second",0,1]]'},
        ),
        Sent(lines_of(BEN), (BEN_ALIVE,), headers={CHAIN_HEADER: b"neither JSON nor a list"}),
    ),
    codec="deflate",
)


def _in_envelope(envelope: Entry, *entries: Any) -> bytes:
    return json_of({**envelope, "batch": {"events": 1}, "events": list(entries)})


ENVELOPE = Form(
    "envelope with user, time and id, no compression",
    {
        "LOGP_INPUT__ENTRIES_FIELD": "events",
        "LOGP_USER__PATHS": '["user", "envelope:client.user\\\\.name", "envelope:client.id"]',
        "LOGP_TIME__PATHS": '["at", "envelope:sent"]',
        "LOGP_ID__PATHS": '["id", "envelope:id"]',
        "LOGP_SPOOL__CODEC": "null",
    },
    (
        Sent(
            _in_envelope(
                {"client": {"user.name": "eve", "id": 7}, "sent": "2024-03-04 05:06:07", "id": "e1"},
                {"n": 1},
                {"n": 2, "user": "own", "at": 1_709_532_367_000, "id": 17},
                {"n": 3, "user": "-", "at": "no time", "id": None},
                "no entry",
                {},
            ),
            (
                Alive({"n": 1}, "eve", "2024-03-04T05:06:07Z", "2024-03-04", 5, "e1"),
                Alive(
                    {"n": 2, "user": "own", "at": 1_709_532_367_000, "id": 17},
                    *("own", "2024-03-04T06:06:07Z", "2024-03-04", 6, "17"),
                ),
                Alive(
                    {"n": 3, "user": "-", "at": "no time"}, "eve", "2024-03-04T05:06:07Z", "2024-03-04", 5, "e1"
                ),
                Dead("not_an_object"),
                Alive({}, "eve", "2024-03-04T05:06:07Z", "2024-03-04", 5, "e1"),
            ),
        ),
        Sent(
            gzip.compress(_in_envelope({"client": {"id": 7}, "sent": 1709528767.5}, {"n": 4})),
            (Alive({"n": 4}, "7", "2024-03-04T05:06:07.5Z", "2024-03-04", 5),),
        ),
        Sent(_in_envelope({"sent": 1709528767.5}, {"n": 5}, {"user": "own"}), (
            Dead("no_user"),
            Alive({"user": "own"}, "own", "2024-03-04T05:06:07.5Z", "2024-03-04", 5),
        )),
        Sent(_in_envelope({"client": 5}), ()),
        Sent(json_of({"user": "alone", "at": 1709528767, "event": []}), (
            Alive({"user": "alone", "at": 1709528767, "event": []}, "alone", "2024-03-04T05:06:07Z", "2024-03-04", 5),
        )),
        Sent(json_of([{"user": "list", "at": 1709528767}]), (
            Alive({"user": "list", "at": 1709528767}, "list", "2024-03-04T05:06:07Z", "2024-03-04", 5),
        )),
    ),
    codec="null",
)  # fmt: skip

RECORD_KEY = Form(
    "user from the record key, a name for those without, no entry without a time",
    {
        "LOGP_USER__PATHS": '["key"]',
        "LOGP_USER__NO_VALUES": '["", "null"]',
        "LOGP_USER__MISSING_NAME": "nobody/at all",
        "LOGP_TIME__MISSING": "dead-letter",
        "LOGP_TIME__EPOCH_UNIT": "s",
        "LOGP_TIME__PATHS": '["time"]',
    },
    (
        Sent(json_of({"n": 1, "time": 1709528767}), key=b"k\xc3\xa9y", becomes=(
            Alive({"n": 1, "time": 1709528767}, "k\u00e9y", "2024-03-04T05:06:07Z", "2024-03-04", 5),
        )),
        Sent(json_of([{"n": 2, "time": "1709528767.25"}, {"n": 3}, {"n": 4, "time": "soon"}]), key=b"-", becomes=(
            Alive({"n": 2, "time": "1709528767.25"}, "-", "2024-03-04T05:06:07.25Z", "2024-03-04", 5),
            Dead("no_event_time"),
            Dead("no_event_time"),
        )),
        *(
            Sent(json_of({"n": 5, "time": 1709528767}), key=key, becomes=(
                Alive({"n": 5, "time": 1709528767}, "nobody/at all", "2024-03-04T05:06:07Z", "2024-03-04", 5),
            ))
            for key in (None, b"", b"null", b"\xff not UTF-8")
        ),
        *(
            Sent(json_of({"time": absurd}), key=b"k", becomes=(Dead("no_event_time"),))
            for absurd in (1e305, -1e305, 1.5e300, 10**40, 0, -5, 946_684_799, 1_709_528_767_000, True, None, "1e9")
        ),
    ),
)  # fmt: skip

JSON_KEY = Form(
    "user from a JSON key, time and id from headers, exact numbers, hours of Kathmandu",
    {
        "LOGP_USER__PATHS": '["key:who.name", "header:user", "key:who.id"]',
        "LOGP_TIME__PATHS": '["header:time"]',
        "LOGP_TIME__ZONE": "America/New_York",
        "LOGP_ID__PATHS": '["header:id"]',
        "LOGP_PARTITION__ZONE": "Asia/Kathmandu",
        "LOGP_INPUT__INEXACT_NUMBERS": "text",
    },
    (
        Sent(
            b'{"x":[0.1,3.14159265358979323846,1e400,1e-5000,2.5],"y":12345678901234567890.5,"z":1.0e-99999999999999999999}',
            key=b'{"who":{"name":"kim","id":1}}',
            headers={"time": b"2024-03-03T18:14:59Z", "id": b"h-1", "user": b"not this"},
            becomes=(Alive({}, "kim", "2024-03-03T18:14:59Z", "2024-03-03", 23, "h-1"),),
        ),
        Sent(
            b'{"x":[1,2],"y":0.30000000000000001,"z":9007199254740993}',
            key=b'{"who":{"name":"","id":2}}',
            headers={"time": b"2024-03-03T13:15:00", "id": b"\xff", "user": b"from a header"},
            becomes=(Alive({}, "from a header", "2024-03-03T18:15:00Z", "2024-03-04", 0),),
        ),
        Sent(
            b'[{"y":0.1},{"y":0.5}]',
            key=b'{"who":{"id":-3}}',
            headers={"time": b"1709489700000000000"},
            becomes=(
                Alive({}, "-3", "2024-03-03T18:15:00Z", "2024-03-04", 0),
                Alive({}, "-3", "2024-03-03T18:15:00Z", "2024-03-04", 0),
            ),
        ),
        Sent(b'{"n":1}', key=b"no JSON", becomes=(Dead("no_user"),)),
        Sent(b'{"n":1}', key=b"[" * 100_000, becomes=(Dead("no_user"),)),
    ),
)  # fmt: skip

SUMMER_TIME = Form(
    "dates and hours of a zone with summer time",
    {"LOGP_PARTITION__ZONE": "Europe/Berlin", "LOGP_TIME__ZONE": "Europe/Berlin"},
    tuple(
        Sent(json_of({"user": "zoe", "time": text}), (Alive({"user": "zoe", "time": text}, "zoe", at, date, hour),))
        for text, at, date, hour in (
            ("2024-10-26T21:59:59Z", "2024-10-26T21:59:59Z", "2024-10-26", 23),
            ("2024-10-26T22:00:00Z", "2024-10-26T22:00:00Z", "2024-10-27", 0),
            ("2024-10-27T00:30:00Z", "2024-10-27T00:30:00Z", "2024-10-27", 2),
            ("2024-10-27T01:30:00Z", "2024-10-27T01:30:00Z", "2024-10-27", 2),
            ("2024-10-27T02:30:00", "2024-10-27T00:30:00Z", "2024-10-27", 2),
            ("2024-10-27T03:00:00", "2024-10-27T02:00:00Z", "2024-10-27", 3),
            ("2024-03-31T01:59:59", "2024-03-31T00:59:59Z", "2024-03-31", 1),
            ("2024-03-31T03:00:00", "2024-03-31T01:00:00Z", "2024-03-31", 3),
            ("2024-07-01T00:00:00+02:00", "2024-06-30T22:00:00Z", "2024-07-01", 0),
        )
    ),
)

FORMS = (NDJSON, ENVELOPE, RECORD_KEY, JSON_KEY, SUMMER_TIME)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_input_comes_out_as_its_settings_say(
    form: Form, kafka: KafkaHelper, s3: S3Helper, names: Names, tmp_path: Path
) -> None:
    """Rows, dead letters, codec and schema of each form are what it says, and the audit agrees."""
    with Deployment(kafka=kafka, s3=s3, names=names, root=tmp_path, partitions=2, settings=form.settings) as deployment:
        records = [
            ToProduce(value=sent.value, key=sent.key, headers=sent.headers, timestamp_ms=STAMP_MS, partition=0)
            for sent in form.records
        ]
        run_through(deployment, records)  # one partition: the offset is the number of the record
        rows: dict[tuple[int, int], Row] = {}
        is_exact = form is JSON_KEY
        for found in read_objects(deployment, parse=parse_keeping if is_exact else parse_rounding):
            assert found.codec == form.codec
            assert found.reference.schema.text is not None
            partition = found.reference.partition_key
            for row in found.rows:
                assert (row.offset, row.index) not in rows
                rows[row.offset, row.index] = row
                alive = form.records[row.offset].becomes[row.index]
                assert isinstance(alive, Alive)
                assert (partition.user, partition.date, partition.hour) == (alive.user, alive.date, alive.hour)
        for number, sent in enumerate(form.records):
            for index, becomes in enumerate(sent.becomes):
                row = rows.pop((number, index), None)
                assert (row is None) == isinstance(becomes, Dead), f"{sent}: {row}"
                if row is not None and isinstance(becomes, Alive):
                    _check(row, becomes, sent, index, is_exact=is_exact)
        assert not rows
        assert _dead_letters(deployment) == _expected_dead_letters(form)
        deployment.require_clean()


def _check(row: Row, alive: Alive, sent: Sent, index: int, *, is_exact: bool) -> None:
    entry: Any = alive.entry
    if is_exact:
        entries = parse_keeping(sent.value or b"")
        entry = entries[index] if isinstance(entries, list) else entries
    assert difference(entry, row.entry) is None
    at_us = round(datetime.fromisoformat(alive.at).timestamp() * 1_000_000)
    assert (row.user, row.event_time_us, row.id, row.root) == (alive.user, at_us, alive.id, alive.root)
    assert row.timestamp_ms == STAMP_MS


def _dead_letters(deployment: Deployment) -> list[tuple[int, str, tuple[int, ...] | None]]:
    return sorted((letter.offset, letter.reason, letter.indexes) for letter in read_dead_letters(deployment))


def _expected_dead_letters(form: Form) -> list[tuple[int, str, tuple[int, ...]]]:
    expected: dict[tuple[int, str], list[int]] = {}
    for number, sent in enumerate(form.records):
        for index, becomes in enumerate(sent.becomes):
            if isinstance(becomes, Dead):
                expected.setdefault((number, becomes.reason), []).append(index)
    return sorted((number, reason, tuple(indexes)) for (number, reason), indexes in expected.items())
