"""Legal but odd entries: cases that a careful reader of JSON must still get right.

Each function changes one entry in place; `ODDITIES` names them all. Text that only raw JSON can hold (duplicate keys,
long number literals) is made by `RAW_ODDITIES` from the encoded entry.
"""

from collections.abc import Callable
from random import Random

Entry = dict[str, object]


def _string_for_integer(rng: Random, entry: Entry) -> None:
    entry["status"] = f"{rng.randrange(100, 600)} "


def _object_for_scalar(rng: Random, entry: Entry) -> None:
    entry["path"] = {"raw": "/", "depth": rng.randrange(9)}


def _scalar_for_object(rng: Random, entry: Entry) -> None:
    entry["geo"] = rng.choice(("unknown", 0, False, []))


def _array_for_object(rng: Random, entry: Entry) -> None:
    entry["request"] = [{"method": "GET"}, {"method": 7, "bytes": rng.randrange(9)}]


def _float_for_integer(rng: Random, entry: Entry) -> None:
    entry["account"] = rng.randrange(1 << 40) + 0.5


def _beyond_2_53(rng: Random, entry: Entry) -> None:
    entry["account"] = rng.choice((1, -1)) * ((1 << 53) + 1 + rng.getrandbits(50))


def _beyond_2_53_and_float(rng: Random, entry: Entry) -> None:
    entry["keywords"] = -9_214_364_837_600_034_816 if rng.getrandbits(1) else 0.5


def _beyond_2_63(rng: Random, entry: Entry) -> None:
    entry["account"] = rng.choice((1 << 63, -(1 << 63) - 1, (1 << 64) + rng.getrandbits(9), 1 << 70))


def _extreme_numbers(rng: Random, entry: Entry) -> None:
    entry["ratio"] = rng.choice((1e308, 5e-324, -0.0, 0.1, 1 << 53, -(1 << 53), (1 << 63) - 1, -(1 << 63)))


def _odd_keys(rng: Random, entry: Entry) -> None:
    entry |= {
        "hg.nginx.org": 1,
        "trac-backend": "a",
        "1xx": rng.randrange(9),
        "with space": True,
        "\u00fcmlaut": 1,
    }
    entry |= {"": "empty key", "$ref": "#/a", "a.b": {"c.d": 1}, "a": {"b": 2}, "x" * 120: 1, "\U0001f511": 1}


def _keys_by_case(rng: Random, entry: Entry) -> None:
    entry |= {"MaxResults": rng.randrange(9), "maxResults": "9", "a-b": 1, "a_b": "two", "a_x2Db": 3.5}


def _own_meta(rng: Random, entry: Entry) -> None:
    entry["_meta"] = rng.choice(({"user": "somebody else", "offset": -1}, "text", 7))


def _many_keys(rng: Random, entry: Entry) -> None:
    entry["counters"] = {f"host-{rng.getrandbits(24):06x}": number for number in range(30)}


def _empty_containers(rng: Random, entry: Entry) -> None:
    entry |= {"labels": {}, "items": [], "nested": {"a": {}, "b": [[]], "c": [{}]}}
    if not rng.getrandbits(2):
        entry |= {"labels": {"a": 1}, "items": [{"sku": "x"}]}


def _nulls(rng: Random, entry: Entry) -> None:
    entry |= {"referrer": None, "holes": [None, rng.randrange(9), None], "deep": {"a": None}}


def _deep(rng: Random, entry: Entry) -> None:
    value: object = rng.randrange(9)
    for level in range(rng.choice((6, 12, 20, 40))):
        value = {f"l{level}": value} if level % 2 else [value]
    entry["tree"] = value


def _mixed_array(rng: Random, entry: Entry) -> None:
    entry["steps"] = [1, "two", 3.5, None, {"a": 1}, [4], rng.getrandbits(1) == 1]


def _unicode(rng: Random, entry: Entry) -> None:
    entry["message"] = rng.choice(
        (
            "na\u00efve \U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467",
            "\u202eright to left",
            "nul \x00 bell \x07",
        )
    )


def _json_in_string(rng: Random, entry: Entry) -> None:
    entry["message"] = f'{{"a": {{"b": [{rng.randrange(9)}, null]}}, "user": "not me"}}'


def _long_message(rng: Random, entry: Entry) -> None:
    line = "  at com.example.Service.call(Service.java:42)\n"
    entry["message"] = 'java.lang.IllegalStateException: "\\"\r\n' + line * rng.choice((20, 100, 300))


def _user_not_text(rng: Random, entry: Entry) -> None:
    entry["user"] = rng.choice(({"name": "ann"}, ["ann"], True, 1.5))


ODDITIES: tuple[Callable[[Random, Entry], None], ...] = (
    _object_for_scalar,
    _scalar_for_object,
    _array_for_object,
    _float_for_integer,
    _beyond_2_53,
    _beyond_2_53_and_float,
    _beyond_2_63,
    _extreme_numbers,
    _odd_keys,
    _keys_by_case,
    _own_meta,
    _many_keys,
    _empty_containers,
    _nulls,
    _deep,
    _mixed_array,
    _unicode,
    _json_in_string,
    _long_message,
    _user_not_text,
)
RARE_TYPE = _string_for_integer

# Appended to an entry before its closing brace.
RAW_ODDITIES: tuple[bytes, ...] = (
    b',"level":"again"}',  # a duplicate key: the last one counts
    b',"precise":0.12345678901234567890123}',
    b',"padded":1.50,"exponent":1E+2,"negative":-0}',
    b',"escaped":"\\u00e9\\ud83d\\ude00\\/","k\\u0065y":1}',
    b' , "spaced" : [ 1 ,\t2 ]\r\n}',
)
