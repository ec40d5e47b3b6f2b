"""Hostile and broken records on the real path: the worker goes on, good entries come out, bad ones are dead letters.

Many cases share a worker and a topic. Each case says what becomes of each of its entries; that nothing else came
out, and that the audit agrees, is checked for all of them together.
"""

import gzip
import json
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any, NamedTuple

import pytest

from log_partitioner import zstd
from tests.integration.harness import Deploy, Deployment, Report
from tests.integration.one_worker import WORKER, run_through
from tests.integration.readback import (
    Parse,
    ReadObject,
    Rejected,
    Row,
    difference,
    parse_keeping,
    parse_rounding,
    read_dead_letters,
    read_objects,
)
from tests.stack.kafka_helper import KafkaHelper, ToProduce
from tests.stack.names import Names
from tests.stack.s3_helper import S3Helper

PARTITIONS = 3
RECORD_BYTES_MAX = 8_000_000
ENTRIES_MAX = 100_000
DEPTH_MAX = 100
FIELDS_MAX = 1000
TIME, TIME_US, PLACE = "2024-03-04T05:06:07Z", 1_709_528_767_000_000, ("2024-03-04", 5)
STAMP_MS = int(time.time()) * 1000 + 123
_OBJECT = re.compile(r"logs/user=(?P<user>[A-Za-z0-9_%~-]+)/date=\d{4}-\d\d-\d\d/hour=\d\d/[A-Za-z0-9-]+\.avro\Z")

Entry = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A record, and what must become of its entries: index -> entry, and reason -> indexes (None: all)."""

    name: str
    value: bytes | None
    deliverable: Mapping[int, Entry] = field(default_factory=dict)
    dead: Mapping[str, tuple[int, ...] | None] = field(default_factory=dict)
    time_us: int = TIME_US
    place: tuple[str, int] = PLACE
    key: bytes | None = None
    user: str | None = None
    """None: what stands under `user`."""
    id: str | None = None
    headers: Mapping[str, bytes] = field(default_factory=dict)
    is_stored_apart: bool = False


def entry_of(user: Any, **fields: Any) -> Entry:
    """Make an entry with user and time."""
    return {"user": user, "time": TIME, **fields}


def text_of(value: Any) -> bytes:
    """Write JSON as it is sent, nothing escaped."""
    return json.dumps(value, ensure_ascii=False).encode()


def alive(name: str, value: Any, **kwargs: Any) -> Case:
    """One entry, given as an object or as text, that comes out as it is."""
    text = value if isinstance(value, bytes) else text_of(value)
    return Case(name, text, deliverable={0: parse_rounding(text)}, **kwargs)


def dead(name: str, value: bytes, reason: str, indexes: tuple[int, ...] | None = None, **kwargs: Any) -> Case:
    """One record in which nothing is good."""
    return Case(name, value, dead={reason: indexes}, **kwargs)


def text_with(user: str, value: bytes) -> bytes:
    """Write an entry with the text of a value, whatever that is, under `x`."""
    return b'{"user":%b,"time":"%b","x":%b}' % (text_of(user), TIME.encode(), value)


def nested(levels: int, opening: bytes = b"[", closing: bytes = b"]") -> bytes:
    """Write a value of so many levels."""
    return opening * levels + (b"" if opening == b"[" else b"1") + closing * levels


# Users.

USERS = {
    "parent directory": "../../x",
    "absolute path": "/etc/x",
    "backslashes": "..\\..\\x",
    "slash": "a/b",
    "slash, encoded": "a%2Fb",
    "encoded dots": "%2e%2e",
    "dot": ".",
    "two dots": "..",
    "tilde": "~root",
    "NUL": "a\0b",
    "only NUL": "\0",
    "right to left": "\u202egpj.exe",
    "zero width": "an\u200bn",
    "without zero width": "ann",
    "composed": "\u00e9",
    "decomposed": "e\u0301",
    "lower case": "case",
    "upper case": "CASE",
    "device": "CON",
    "leading dash": "-rf",
    "two dashes": "--",
    "space": " ",
    "line feed": "a\nb\r\n",
    "hive": "user=x/date=2020-01-01",
    "beyond the basic plane": "\U0001f600",
    "noncharacter": "\uffff",
    "colons": "arn:aws:iam::123456789012:user/x",
    "long": "x" * 4096,
    "long twin": "x" * 4095 + "y",
    "long and not ASCII": "\u00fc" * 4096,
    "number": 42,
    "number as text": "42",
    "huge number": 10**300,
}
NO_USERS = {
    "empty": "",
    "dash": "-",
    "null": None,
    "float": 1.5,
    "boolean": True,
    "object": {"a": 1},
    "array": ["a"],
    "10 KB": "u" * 10_240,
    "4,097 characters": "u" * 4097,
}


def _users() -> Iterator[Case]:
    for name, user in USERS.items():
        yield alive(f"user: {name}", entry_of(user, x=name))
    for name, user in NO_USERS.items():
        yield dead(f"no user: {name}", text_of(entry_of(user)), "no_user", (0,))
    yield dead("no user: absent", text_of({"time": TIME}), "no_user", (0,))


# Values.

NUMBERS = {
    "1e400": b"1e400",
    "-1e400": b"-1E+400",
    "beyond the doubles without exponent": b"9" * 400 + b".5",
    "1e-400": b"1e-400",
    "smallest double": b"5e-324",
    "largest double": b"1.7976931348623157e308",
    "minus zero": b"-0.0",
    "exponent without end": b"1e-99999999999999999999",
    "zero with an exponent without end": b"0.0e99999999999999999999",
    "exponent of 10,000 digits": b"1e-" + b"1" * 10_000,
    "many decimals": b"3." + b"1415926535" * 10,
    "100,000 decimals": b"0." + b"7" * 100_000,
    "5,000 digits": b"7" * 5000,
    "-5,000 digits": b"-" + b"8" * 5000,
    "100,000 digits": b"6" * 100_000,
    "4,300 digits": b"5" * 4300,
    "int64 max": b"9223372036854775807",
    "int64 max + 1": b"9223372036854775808",
    "int64 min": b"-9223372036854775808",
    "int64 min - 1": b"-9223372036854775809",
    "uint64 max": b"18446744073709551615",
    "uint64 max + 1": b"18446744073709551616",
    "2^53 + 1": b"9007199254740993",
    "2^53 beside a fraction": b"[9007199254740993,0.5]",
    "2^53 within a double's reach": b"[9007199254740992,0.5]",
}
NOT_NUMBERS = {"NaN": b"NaN", "Infinity": b"Infinity", "-Infinity": b"-Infinity", "leading zero": b"01", "hex": b"0x1"}
INVALID_UTF8 = {
    "stray bytes": b"\xff\xfe",
    "overlong": b"\xc0\x80",
    "surrogate": b"\xed\xa0\x80",
    "cut": b"\xe2\x82",
    "too large": b"\xf5\x80\x80\x80",
}
LONE_SURROGATES = {
    "high": rb"\ud800",
    "low": rb"\udc00 x",
    "reversed": rb"\ude00\ud83d",
    "high twice": rb"\uD83D\uD83D\uDE00",
}


def _values() -> Iterator[Case]:
    for name, text in NUMBERS.items():
        yield alive(f"number: {name}", text_with(f"number: {name}", text))
        yield alive(f"number in a column of others: {name}", text_with("numbers", text))
    for name, text in NOT_NUMBERS.items():
        yield dead(f"no number: {name}", text_with("x", text), "malformed")
    for name, text in INVALID_UTF8.items():
        yield dead(f"UTF-8: {name}", text_with("x", b'"' + text + b'"'), "invalid_unicode")
        yield dead(f"UTF-8 in a key: {name}", text_with("x", b'{"' + text + b'":1}'), "invalid_unicode")
    for name, text in LONE_SURROGATES.items():
        yield dead(f"lone surrogate: {name}", text_with("x", b'"' + text + b'"'), "invalid_unicode")
        yield dead(f"lone surrogate in a key: {name}", text_with("x", b'{"' + text + b'":1}'), "invalid_unicode")
    yield dead("lone surrogate in the user", rb'{"user":"\ud800","time":"' + TIME.encode() + b'"}', "invalid_unicode")
    yield alive("surrogate pair", text_with("pairs", rb'"\ud83d\ude00 \uD83D\uDE00"'))
    yield alive("escapes", text_with("escapes", rb'"\u0000\b\f\n\r\t\/\\\"\u00e9\u202e"'))
    yield alive("noncharacters", text_with("escapes", rb'"\uffff\ufffe\ufdd0"'))
    yield alive("JSON in a string", entry_of("text", x='{"a":[1,2,{"b":null}]}'))
    yield alive("a megabyte in a string", entry_of("text", x="\u20ac" * 300_000))
    yield alive("nulls and empties", entry_of("empties", a=None, b={}, c=[], d=[None], e=[[]], f={"g": None}, h=""))
    yield alive(
        "empties with values", entry_of("empties", a=1, b={"x": 1}, c=["x"], d=[2], e=[["y"]], f={"g": 2}, h="")
    )
    yield alive(
        "duplicate keys", b'{"user":"first","user":"last","time":0,"time":"%b","x":1,"x":"two"}' % TIME.encode()
    )
    yield alive("duplicate keys, nested", text_with("duplicates", b'{"a":1,"a":{"b":1,"b":[{"c":1,"c":2}]}}'))
    yield alive("duplicate key, then null", text_with("duplicates", b'{"a":1,"a":null}'))


def _nesting() -> Iterator[Case]:
    for opening, closing, name in ((b"[", b"]", "arrays"), (b'{"a":', b"}", "objects"), (b'[{"a":', b"}]", "both")):
        step = opening.count(b"[") + opening.count(b"{")
        most = (DEPTH_MAX - 1) // step
        yield alive(f"{DEPTH_MAX} levels of {name}", text_with(f"deep {name}", nested(most, opening, closing)))
        yield dead(
            f"more than {DEPTH_MAX} levels of {name}",
            text_with("x", nested(most + 1, opening, closing)),
            "too_deep",
            (0,),
        )
        yield dead(f"100,000 levels of {name}", text_with("x", nested(100_000, opening, closing)), "too_deep")
    yield alive("20 levels, most as text", text_with("deep arrays", nested(20)))
    yield dead("100,000 open brackets", b"[" * 100_000, "malformed")
    yield dead("100,000 open objects", b'{"a":' * 100_000, "malformed")
    yield dead("100,000 empty arrays", b"[" * 100_000 + b"]" * 100_000, "too_deep", (0,))


NAMES = [
    *("", " ", "a-b", "a_b", "a_x2Db", "A_B", "a.b", "a b", "1a", "_1a", "__1a", "class", "None", "\u00e9", "e\u0301"),
    *(
        "\U0001f600",
        "a\0b",
        "_meta",
        "_META",
        "_meta_2",
        "user ",
        "User",
        "USER",
        "r_x",
        "entry",
        "x" * 5000,
        "{}",
        "'",
    ),
    *("a'b\"c\\", "\n", "%s", "${x}", "__proto__", "_2", "2", "02", "\u0661", "\u1e9e", "\u00df", "ss", "\u0130", "i"),
]


def _names() -> Iterator[Case]:
    yield alive("odd names", entry_of("names", **{name: number for number, name in enumerate(NAMES)}))
    yield alive("odd names, nested", entry_of("names", x={name: [{name: number}] for number, name in enumerate(NAMES)}))
    for number in range(80):  # enough for whatever the worker does only after many rows
        one, other = NAMES[number % len(NAMES)], NAMES[(7 * number + 3) % len(NAMES)]
        yield alive(f"some odd names {number}", entry_of("names one by one", **{one: number, other: {one: number}}))
    many = {f"key {number}": number for number in range(10_000)}
    yield alive("10,000 keys in an object", entry_of("keys", x=many))
    yield alive("10,000 keys in an object among others", entry_of("keys", x={"key 1": "text", "other": [1]}))
    yield dead("10,000 keys in an entry", text_of(entry_of("keys", **many)), "too_many_fields", (0,))
    deep = {f"a{one}": {f"b{other}": {"c": 1} for other in range(30)} for one in range(30)}
    yield alive("more fields than a schema may have", entry_of("keys", x=deep, y={"z": 1}))
    yield alive(
        "names of a kilobyte", entry_of("long names", x={f"{number} " + "n" * 1000: 1 for number in range(300)})
    )


def _growth() -> Iterator[Case]:
    for number in range(3000):
        yield alive(f"new key {number}", entry_of("explosion", **{f"key {number}": number, "same": number}))
    for number in range(1000):
        yield alive(f"new nested key {number}", entry_of("nested explosion", x={f"key {number}": number}))
    kinds = [
        *(1, -1, 0.5, True, False, None, "text", "1", "null", "", {}, {"a": 1}, {"a": "b"}, {"b": {"c": []}}, [], [1]),
        *([None], ["a", 1], [[]], [{}], 2**53, 2**53 + 1, 2**62, -(2**63), 2**63, 10**30, 1e300, 0, "\u20ac"),
    ]
    choose = random.Random(3)
    for number in range(200):
        x, y = choose.choice(kinds), choose.choice(kinds)
        yield alive(f"flapping {number}", entry_of(f"flapping {number % 3}", x=x, y=[y, x], z={"x": x, str(y)[:2]: y}))


# Times.


def _times() -> Iterator[Case]:
    sent = {"time_us": STAMP_MS * 1000, "place": _place_of(STAMP_MS * 1000)}
    for absurd in ("9999-12-31T23:59:59-14:00", "yesterday", "9" * 5000, 10**30, 1e300, None, STAMP_MS + 86_400_001):
        yield alive(f"absurd time: {absurd!r:.40}", {"user": "absurd times", "time": absurd}, **sent)
    value = b'{"user":"absurd times","time":%b,"timestamp":"%b"}' % (b"7" * 5000, TIME.encode())
    yield alive("absurd time before a good one", value, **sent)
    yield alive("no time before a good one", {"user": "times", "time": "soon", "timestamp": TIME})
    yield alive("1e400 before a good time", b'{"user":"times","time":1e400,"timestamp":"%b"}' % TIME.encode())
    for time_text, time_us in (("2024-03-04T10:36:07.000000+0530", TIME_US), (1709528767.25, TIME_US + 250_000)):
        where = {"time_us": time_us, "place": _place_of(time_us)}
        yield alive(f"time: {time_text!r}", {"user": "times", "time": time_text}, **where)


def _place_of(time_us: int) -> tuple[str, int]:
    moment = time.gmtime(time_us // 1_000_000)
    return f"{moment.tm_year}-{moment.tm_mon:02}-{moment.tm_mday:02}", moment.tm_hour


# Compression.


def _compression() -> Iterator[Case]:
    good = entry_of("compressed", x="y")
    text = text_of(good)
    broken = bytearray(gzip.compress(text, mtime=0))
    broken[-6] ^= 0xFF
    yield Case("gzip to the limit", gzip.compress(text.ljust(RECORD_BYTES_MAX)), deliverable={0: good})
    yield dead("zstd beyond the limit", zstd.compress(text.ljust(RECORD_BYTES_MAX + 1)), "record_too_large")
    yield dead("gzip bomb", gzip.compress(bytes(16_000_000)) * 40, "record_too_large")
    yield dead("gzip: wrong check sum", bytes(broken), "decompression")
    yield Case("zstd: several frames", zstd.compress(text[:9]) + zstd.compress(text[9:]), deliverable={0: good})


# Records: none, one or many entries, and bad ones among good ones.

BAD = {
    "no user": (b'{"time":"2024-03-04T05:06:07Z"}', "no_user"),
    "cut": (b'{"user":"x","a":}', "malformed"),
    "without quotes": (b'{user:"x"}', "malformed"),
    "NaN": (b'{"user":"x","a":NaN}', "malformed"),
    "line feed in a string": (b'{"user":"x","a":"\x0b"}', "malformed"),
    "nothing": (b" ", "malformed"),
    "comment": (b'/* {"user":"x"} */', "malformed"),
    "stray bytes": (b'{"user":"x","a":"\xff"}', "invalid_unicode"),
    "lone surrogate": (rb'{"user":"x","a":"\udfff"}', "invalid_unicode"),
    "150 levels": (b'{"user":"x","a":' + nested(150) + b"}", "too_deep"),
    "2,000 levels": (b'{"user":"x","a":' + nested(2000) + b"}", "too_deep"),
    "number": (b"5", "not_an_object"),
    "text": (b'"text"', "not_an_object"),
    "null": (b"null", "not_an_object"),
    "array": (b'[{"user":"x"}]', "not_an_object"),
    "endless integer as entry": (b"7" * 5000, "not_an_object"),
    "too many fields": (text_of(entry_of("x", **{f"k{n}": n for n in range(FIELDS_MAX)})), "too_many_fields"),
}
GOOD = [entry_of(f"neighbour {number % 2}", n=number, text="]}{[,\"'\\ \u20ac") for number in range(6)]
_IN_LINES = {name: bad for name, bad in BAD.items() if name != "nothing"}


def _among_good(wrap: Any, bad: Mapping[str, tuple[bytes, str]]) -> Iterator[Case]:
    good = [text_of(entry) for entry in GOOD]
    for name, (text, reason) in bad.items():
        yield Case(
            f"one bad among good: {name}", wrap([*good[:3], text, *good[3:]]),
            deliverable={**dict(enumerate(GOOD[:3])), **dict(enumerate(GOOD[3:], start=4))}, dead={reason: (3,)},
        )  # fmt: skip
    texts, deliverable, deaths = [], {}, {}
    for number, (text, reason) in enumerate(bad.values()):
        deliverable[len(texts)] = GOOD[number % len(GOOD)]
        deaths.setdefault(reason, []).append(len(texts) + 1)
        texts += [good[number % len(GOOD)], text]
    dead_indexes = {reason: tuple(indexes) for reason, indexes in deaths.items()}
    yield Case("bad and good in turn", wrap(texts), deliverable=deliverable, dead=dead_indexes)


def _array(texts: list[bytes]) -> bytes:
    return b" [" + b" ,\n".join(texts) + b"] "


def _envelope(texts: list[bytes]) -> bytes:
    return b'{"host":"a\\"]}[{","entries":[' + b",".join(texts) + b'],"tags":{"entries":[1]}}'


def _records() -> Iterator[Case]:
    yield Case("no value", None)
    yield Case("empty value", b"")
    yield Case("empty array", b"[]")
    yield Case("empty array with spaces", b" [ \n ] ")
    yield Case("empty envelope", b'{"entries":[]}')
    yield dead("spaces", b"  \n", "malformed")
    yield dead("UTF-16", text_of(GOOD[0]).decode().encode("utf-16"), "invalid_unicode")
    yield dead("NUL behind it", text_of(GOOD[0]) + b"\0", "malformed")
    yield dead("a string without end in an envelope", b'{"entries":["' + b'\\"' * 400_000 + b"]}", "malformed")
    many = [entry_of("many", n=number) for number in range(ENTRIES_MAX)]
    packed = [text_of(entry) for entry in many]
    yield Case("100,000 entries", gzip.compress(_array(packed), 1), deliverable=dict(enumerate(many)))
    nobody = [b'{"x":"%b"}' % random.Random(number).randbytes(6).hex().encode() for number in range(ENTRIES_MAX)]
    yield dead(
        "100,000 entries, all dead", gzip.compress(_array(nobody)), "no_user", tuple(range(ENTRIES_MAX)),
        is_stored_apart=True,
    )  # fmt: skip
    yield dead("500,000 nothings", b"[" + b"," * 500_000 + b"]", "too_many_entries")
    for case in _among_good(_array, BAD):
        yield replace(case, name=f"array: {case.name}")
    for case in _among_good(_envelope, BAD):
        yield replace(case, name=f"envelope: {case.name}")
    yield dead("envelope: bad bytes", b'{"host":"\xff","entries":[%b]}' % text_of(GOOD[0]), "invalid_unicode")
    yield Case(
        "envelope: entries twice",
        b'{"entries":[5],"entries":[%b,6]}' % text_of(GOOD[0]),
        deliverable={0: GOOD[0]},
        dead={"not_an_object": (1,)},
    )
    yield dead(
        "key and headers as they are", b"no JSON \xff\0", "invalid_unicode",
        key=b"\xff\0 key", headers={"\u20ac name": b"\0\xff", "lp-reason": b"forged", "lp-object": b"forged"},
    )  # fmt: skip
    yield dead("an empty key, an empty header", b"[", "malformed", key=b"", headers={"": b"", "x": b""})


def _json_cases() -> list[Case]:
    groups = (_users, _values, _nesting, _names, _growth, _times, _compression, _records)
    return [case for group in groups for case in group()]


def _line_cases() -> Iterator[Case]:
    good = [text_of(entry) for entry in GOOD]
    for case in _among_good(b"\n".join, _IN_LINES):
        yield replace(case, name=f"lines: {case.name}")
    yield Case(
        "blank lines", b"\n \r\n\t\n" + good[0] + b"\r\n\n" + good[1] + b" \n\n", deliverable=dict(enumerate(GOOD[:2]))
    )
    yield Case("no line", b"\n\r\n \n")
    chain = {"source-topic-chain": b'[["first",3,12],["second",0,1]]'}
    yield Case("with a chain", good[0], deliverable={0: GOOD[0]}, headers=chain)
    yield Case("no value", None)
    yield Case("one line without end", good[0], deliverable={0: GOOD[0]})
    yield Case("lines in gzip", gzip.compress(b"\n".join(good)), deliverable=dict(enumerate(GOOD)))
    yield Case("an array over lines", b"[\n" + good[0] + b"\n]", deliverable={1: GOOD[0]}, dead={"malformed": (0, 2)})
    yield dead("two objects on a line", good[0] + good[1], "malformed", (0,))
    yield dead("separators that end no line", good[0] + b"\x0b" + good[1], "malformed", (0,))
    yield Case(
        "separators within text",
        text_of(entry_of("lines", x="\u2028\u2029\x85")),
        deliverable={0: entry_of("lines", x="\u2028\u2029\x85")},
    )


# User, time and id from elsewhere.


def _in_envelope(envelope: Entry, *entries: Any) -> bytes:
    return text_of({**envelope, "batch": {"events": 1}, "events": entries})


def _envelope_cases() -> Iterator[Case]:
    whole = {"client": {"user.name": "eve", "id": 7}, "sent": "2024-03-04 05:06:07", "id": "e1"}
    eve: dict[str, Any] = {"user": "eve", "id": "e1"}
    yield Case(
        "user, time and id of the envelope",
        _in_envelope(whole, {"n": 1}, "no entry", {}),
        {0: {"n": 1}, 2: {}},
        {"not_an_object": (1,)},
        **eve,
    )
    none = {"n": 3, "user": "-", "at": "no time", "id": None}
    yield Case("what is none in the entry", _in_envelope(whole, none), {0: none}, **eve)
    later: dict[str, Any] = {"time_us": TIME_US + 3_600_000_000, "place": (PLACE[0], 6)}
    own = {"n": 2, "user": "own", "at": later["time_us"], "id": 17}
    yield Case("user, time and id of the entry", _in_envelope(whole, own), {0: own}, id="17", **later)
    some = gzip.compress(_in_envelope({"client": {"id": 7}, "sent": 1709528767.5}, {"n": 4}))
    yield Case("a number as user", some, {0: {"n": 4}}, user="7", time_us=TIME_US + 500_000)
    some = _in_envelope({"sent": 1709528767.5}, {"n": 5}, {"user": "own"})
    yield Case("user of one", some, {1: {"user": "own"}}, {"no_user": (0,)}, time_us=TIME_US + 500_000)
    yield Case("no entries", _in_envelope({"client": 5}))
    alone = {"user": "alone", "at": 1709528767, "event": []}
    yield alive("an object without the field", alone)
    yield Case("an array", text_of([alone]), {0: alone})


def _elsewhere_cases() -> Iterator[Case]:
    before: dict[str, Any] = {"time_us": 1_709_489_699_000_000, "place": ("2024-03-03", 23)}
    midnight: dict[str, Any] = {"time_us": 1_709_489_700_000_000, "place": ("2024-03-04", 0)}  # in Kathmandu
    text = (
        b'{"x":[0.1,3.14159265358979323846,1e400,1e-5000,2.5],"y":12345678901234567890.5,"z":1.0e-9999999999999999999}'
    )
    headers = {"time": b"2024-03-03T18:14:59Z", "id": b"h-1", "user": b"not this"}
    exact, key = {0: parse_keeping(text)}, b'{"who":{"name":"kim","id":1}}'
    yield Case("user of the key", text, exact, key=key, headers=headers, user="kim", id="h-1", **before)
    text = b'{"x":[1,2],"y":0.30000000000000001,"z":9007199254740993}'
    headers = {"time": b"2024-03-03T13:15:00", "id": b"\xff", "user": b"of a header"}  # in New York
    exact, key = {0: parse_keeping(text)}, b'{"who":{"name":"","id":2}}'
    yield Case("user of a header", text, exact, key=key, headers=headers, user="of a header", **midnight)
    text, headers = b'[{"y":0.1},{"y":0.5}]', {"time": b"1709489700000000000"}
    both = {0: {"y": 0.1}, 1: {"y": 0.5}}
    yield Case("number as user", text, both, key=b'{"who":{"id":-3}}', headers=headers, user="-3", **midnight)
    yield dead("key that is no JSON", b'{"n":1}', "no_user", (0,), key=b"no JSON")
    yield dead("key of open brackets", b'{"n":1}', "no_user", (0,), key=b"[" * 100_000)


class Outcome:
    """The output of one worker for all cases."""

    def __init__(self, deployment: Deployment, cases: list[Case], parse: Parse) -> None:
        self.deployment = deployment
        self.cases = cases
        records = [
            ToProduce(
                value=case.value, key=case.key, headers=case.headers, timestamp_ms=STAMP_MS,
                partition=sum(case.name.encode()) % PARTITIONS,
            )
            for case in cases
        ]  # fmt: skip
        written = run_through(deployment, records)
        self.case_at = dict(zip(written, cases, strict=True))
        self.rows: dict[str, list[Row]] = {}
        self.letters: dict[str, list[Rejected]] = {}
        self.objects: list[ReadObject] = []
        for found in read_objects(deployment, parse=parse):
            self.objects.append(found)
            for row in found.rows:
                self.rows.setdefault(self.case_at[row.partition, row.offset].name, []).append(row)
        for letter in read_dead_letters(deployment):
            self.letters.setdefault(self.case_at[letter.partition, letter.offset].name, []).append(letter)

    @cached_property
    def report(self) -> Report:
        """Run the audit."""
        return self.deployment.audit("--require-caught-up")


class Kind(NamedTuple):
    """Cases that share a worker."""

    cases: list[Case]
    settings: Mapping[str, str]
    parse: Parse = parse_rounding


KINDS = {
    "json": Kind(
        _json_cases(),
        {
            "LOGP_LAYOUT": "file",  # so that every user has a place in the bucket
            "LOGP_INPUT__ENTRIES_PATH": "entries[]",
            "LOGP_INPUT__ENVELOPE": "drop",
            "LOGP_INPUT__RECORD_BYTES_MAX": str(RECORD_BYTES_MAX),
        },
    ),
    "lines": Kind(
        [*_line_cases()], {"LOGP_LAYOUT": "pack", "LOGP_INPUT__FORMAT": "ndjson", "LOGP_SPOOL__CODEC": "deflate"}
    ),
    "envelope": Kind(
        [*_envelope_cases()],
        {
            "LOGP_INPUT__ENTRIES_PATH": "events[]",
            "LOGP_INPUT__ENVELOPE": "drop",
            "LOGP_USER__PATHS": '["user", "envelope:client.user\\\\.name", "envelope:client.id"]',
            "LOGP_TIME__PATHS": '["at", "envelope:sent"]',
            "LOGP_ID__PATHS": '["id", "envelope:id"]',
            "LOGP_SPOOL__CODEC": "null",
        },
    ),
    "elsewhere": Kind(
        [*_elsewhere_cases()],
        {
            "LOGP_USER__PATHS": '["key:who.name", "header:user", "key:who.id"]',
            "LOGP_TIME__PATHS": '["header:time"]',
            "LOGP_TIME__ZONE": "America/New_York",
            "LOGP_ID__PATHS": '["header:id"]',
            "LOGP_PARTITION__ZONE": "Asia/Kathmandu",
            "LOGP_INPUT__INEXACT_NUMBERS": "text",
        },
        parse_keeping,
    ),
}


@pytest.fixture(scope="module")
def outcomes(
    kafka: KafkaHelper, s3: S3Helper, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], Outcome]]:
    """The outcome of each kind, made when it is first asked for."""
    with ExitStack() as stack:

        @cache
        def outcome_of(name: str) -> Outcome:
            cases, settings, parse = KINDS[name]
            assert not [name for name, times in Counter(case.name for case in cases).items() if times > 1]
            made = Deployment(
                kafka=kafka, s3=s3, names=Names(f"bad input {name}"), root=tmp_path_factory.mktemp(name),
                partitions=PARTITIONS, settings=settings,
            )  # fmt: skip
            return Outcome(stack.enter_context(made), cases, parse)

        yield outcome_of


@pytest.fixture(scope="module")
def outcome(outcomes: Callable[[str], Outcome]) -> Outcome:
    """All cases of JSON records, through one worker."""
    return outcomes("json")


@pytest.mark.parametrize("kind", KINDS)
def test_records_give_what_is_good_and_reject_what_is_not(kind: str, outcomes: Callable[[str], Outcome]) -> None:
    """Each case has exactly its deliverable entries in rows, equal, and exactly its dead letters."""
    outcome = outcomes(kind)
    problems = [problem for case in outcome.cases for problem in _problems(case, outcome)]
    assert not problems, f"{len(problems)} problems:\n" + "\n".join(problems[:40])
    codec = KINDS[kind].settings.get("LOGP_SPOOL__CODEC", "zstandard")
    assert {found.codec for found in outcome.objects} == {codec}


def _problems(case: Case, outcome: Outcome) -> Iterator[str]:
    rows = {row.index: row for row in outcome.rows.get(case.name, [])}
    times = Counter(row.index for row in outcome.rows.get(case.name, []))
    if set(times) != set(case.deliverable) or set(times.values()) - {1}:
        yield f"{case.name}: rows {str(dict(times))[:100]}, expected {str(sorted(case.deliverable))[:100]}"
    for index, entry in case.deliverable.items():
        row = rows.get(index)
        if row is None:
            continue
        text = difference(entry, row.entry)
        if text is not None:
            yield f"{case.name}: entry {index}{text}"
        user = case.user or str(entry["user"])
        if (row.user, row.id, row.event_time_us, row.timestamp_ms) != (user, case.id, case.time_us, STAMP_MS):
            yield f"{case.name}: entry {index} has {row._replace(entry={})}"
    letters = outcome.letters.get(case.name, [])
    found = sorted((letter.reason, letter.indexes) for letter in letters)
    if found != sorted(case.dead.items()):
        yield f"{case.name}: dead letters {found}, expected {sorted(case.dead.items())}"
    for letter in letters:
        headers = list(case.headers.items())
        value = letter.value
        if case.is_stored_apart and letter.object_key is not None:
            value = outcome.deployment.s3.read(outcome.deployment.bucket, letter.object_key)
        if (value, letter.key, letter.headers) != (case.value, case.key, headers):
            yield f"{case.name}: the dead letter is not the record: {letter.key!r} {letter.headers} {letter.object_key}"


@pytest.mark.parametrize("kind", KINDS)
def test_entries_stand_under_their_user_date_and_hour(kind: str, outcomes: Callable[[str], Outcome]) -> None:
    """The reference of each row names the entry's PartitionKey; so does the key of an object that has one user."""
    outcome = outcomes(kind)
    for found in outcome.objects:
        user, date, hour = found.reference.partition_key
        for row in found.rows:
            case = outcome.case_at[row.partition, row.offset]
            assert (user, date, hour) == (row.user, *case.place), case.name
        name = found.reference.location.object
        assert "/user=" not in name or f"/date={date}/hour={hour:02}/" in name


def test_users_have_safe_paths_of_their_own(outcome: Outcome) -> None:
    """No user leaves its place in the bucket, and no two users share one, whatever they are called."""
    users: dict[str, str] = {}
    for found in outcome.objects:
        match = _OBJECT.match(found.reference.location.object)
        assert match, found.reference.location.object
        assert len(match["user"]) <= 100
        assert users.setdefault(match["user"], found.reference.partition_key.user) == found.reference.partition_key.user
    assert len({path.lower() for path in users}) >= len(set(map(str, USERS.values()))) - 1  # `case` and `CASE`


def test_new_keys_without_end_bound_each_schema(outcome: Outcome) -> None:
    """3,000 keys make several files, none with more fields than allowed; nested keys become a map."""
    by_user: dict[str, list[ReadObject]] = {}
    for found in outcome.objects:
        by_user.setdefault(found.reference.partition_key.user, []).append(found)
    exploded = by_user["explosion"]
    assert len(exploded) > 3000 // FIELDS_MAX
    assert all(len(json.loads(found.schema_text)["fields"]) <= FIELDS_MAX + 1 for found in exploded)
    assert sum(found.reference.entries for found in exploded) == 3000
    (nested_keys,) = by_user["nested explosion"]
    x = next(column for column in json.loads(nested_keys.schema_text)["fields"] if column["name"] == "x")
    assert x["type"][1]["type"] == "map"


def test_worker_never_stopped(outcome: Outcome) -> None:
    """One start, no error, no discarded batch, however hostile the records are."""
    events = outcome.deployment.events(WORKER)
    assert [event["event"] for event in events].count("worker_started") == 1
    assert not [event for event in events if event["level"] in ("error", "critical")]
    assert outcome.deployment.count("batch_discarded", WORKER) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_audit_agrees(kind: str, outcomes: Callable[[str], Outcome]) -> None:
    """The audit, which has rules of its own, comes to the same result."""
    report = outcomes(kind).report
    assert report.exit_code == 0, report.text


def test_record_too_large_for_the_dead_letters_is_stored_as_an_object(
    kafka: KafkaHelper, s3: S3Helper, names: Names, deploy: Deploy
) -> None:
    """The dead letter names the object that holds the record's bytes; key and headers stay with it if they fit."""
    topic = kafka.create_topic(names.topic("small-dead"), config={"max.message.bytes": "150000"})
    settings = {"LOGP_KAFKA__DEAD_LETTERS_TOPIC": topic, "LOGP_KAFKA__MESSAGE_BYTES_MAX": "120000"}
    deployment = deploy(settings=settings)
    deployment.dead_letters_topic = topic
    records = [
        ToProduce(value=UNFIT, key=b"large", headers={"trace": b"\0\xff"}),
        ToProduce(value=b"{", key=b"k" * 700_000),
        *(ToProduce(value=UNFIT[:20_000], key=b"small %d" % number) for number in range(20)),
        ToProduce(value=text_of(GOOD[0])),
        ToProduce(value=text_of(WIDE)),
    ]
    run_through(deployment, records, timeout_s=40)
    letters = {letter.key: letter for letter in read_dead_letters(deployment)}
    assert len(letters) == 22
    assert letters[None].object_key is not None
    assert letters[b"small 7"].value == UNFIT[:20_000]
    stored = letters[b"large"]
    assert stored.object_key is not None
    assert s3.read(deployment.bucket, stored.object_key) == UNFIT
    assert (stored.value, stored.headers) == (None, [("trace", b"\0\xff")])
    (wide,) = [found for found in read_objects(deployment) if found.rows[0].entry == WIDE]
    assert wide.reference.schema.text is None
    deployment.require_clean()


WIDE = entry_of("wide", **{f"a field with a long name {number}": number for number in range(900)})
UNFIT = random.Random(1).randbytes(400_000)  # no JSON, and no compression makes it fit
