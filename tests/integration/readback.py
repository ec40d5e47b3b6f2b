"""The output, read by the tests' own code: objects and dead letters -> entries as they went in.

Stands apart from the worker's code and from the audit's: it knows the published formats (DESIGN 3.2, 3.4, 3.5,
3.7) and reads them with fastavro and the standard library. `difference` is Equal (DESIGN 3.2).
"""

import io
import json
import math
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import quote

import fastavro
import urllib3
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from confluent_kafka import Message

from log_partitioner.formats.reference import Location, Reference
from tests.integration.harness import Deployment
from tests.property.avro_reading import entry_fields, to_entry
from tools.local.s3 import S3Endpoint

META = "_meta"
THREADS = 4
AHEAD = 4 * THREADS
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_INT_CHARS_MAX = 4300  # what int() converts

JsonObject = dict[str, Any]
Parse = Callable[[str], Any]


class Row(NamedTuple):
    """One row: where it came from, and the entry by its original names, without its nulls."""

    user: str
    event_time_us: int
    id: str | None
    topic: str
    partition: int
    offset: int
    index: int
    timestamp_ms: int
    root: tuple[str, int, int, int | None] | None
    entry: JsonObject


class ReadObject(NamedTuple):
    """The rows that one reference names, with the schema of their object as text."""

    reference: Reference
    schema_text: str
    codec: str
    rows: list[Row]


class Rejected(NamedTuple):
    """A dead letter: `indexes` is None if it says `all`; `headers` are those before ours."""

    reason: str
    partition: int
    offset: int
    indexes: tuple[int, ...] | None
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    object_key: str | None


class Literal(str):
    """A number that neither int, float nor Decimal holds."""

    __slots__ = ()


# Objects.


def read_objects(deployment: Deployment, *, parse: Parse | None = None) -> Iterator[ReadObject]:
    """Read what the committed references name, a few at a time; their order is that of the references."""
    parse = parse or parse_rounding
    references = deployment.references()
    objects = _Objects(deployment.s3.endpoint)
    with ThreadPoolExecutor(THREADS) as pool:
        waiting = deque(pool.submit(objects.read, reference.location) for reference in references[:AHEAD])
        for number, reference in enumerate(references):
            data = waiting.popleft().result()
            if number + AHEAD < len(references):
                waiting.append(pool.submit(objects.read, references[number + AHEAD].location))
            schema_text, codec, rows = read_container(data, parse)
            yield ReadObject(reference, schema_text, codec, rows)


class _Objects:
    """Reads objects with less than half of the work that boto3 makes of it; keeps the last: packs are shared."""

    def __init__(self, endpoint: S3Endpoint) -> None:
        self._url = endpoint.url
        self._pool = urllib3.PoolManager(maxsize=THREADS)
        self._get = lru_cache(maxsize=2 * AHEAD)(self._read)
        self._auth = S3SigV4Auth(Credentials(endpoint.access_key, endpoint.secret_key), "s3", endpoint.region)

    def read(self, location: Location) -> bytes:
        """Read the byte ranges of a reference."""
        data = self._get(location.bucket, location.object)
        return b"".join(data[start : start + length] for start, length in location.ranges)

    def _read(self, bucket: str, key: str) -> bytes:
        request = AWSRequest("GET", f"{self._url}/{quote(bucket)}/{quote(key)}")
        self._auth.add_auth(request)
        answer = self._pool.request("GET", request.url, headers=dict(request.headers))
        assert answer.status == 200, f"{key}: {answer.status} {answer.data[:200]!r}"
        return answer.data


def read_container(data: bytes, parse: Parse) -> tuple[str, str, list[Row]]:
    """Read an Avro container file, and JSON in it by `parse`; returns schema text, codec and rows."""
    reader = fastavro.reader(io.BytesIO(data))
    schema_text = reader.metadata["avro.schema"]
    fields = entry_fields(json.loads(schema_text))
    return schema_text, reader.codec, [_row(found, fields, parse) for found in reader]


def _row(found: JsonObject, fields: list[JsonObject], parse: Parse) -> Row:
    meta = found.pop(META)
    root = meta["root"]
    return Row(
        meta["user"],
        (meta["event_time"] - _EPOCH) // _MICROSECOND,
        meta["id"],
        meta["topic"],
        meta["partition"],
        meta["offset"],
        meta["index"],
        (meta["timestamp"] - _EPOCH) // _MICROSECOND // 1000,
        None if root is None else (root["topic"], root["partition"], root["offset"], root["index"]),
        {name: value for name, value in to_entry(fields, found, parse).items() if value is not None},
    )


# Dead letters.


def read_dead_letters(deployment: Deployment) -> list[Rejected]:
    """Read the committed dead letters."""
    return [_rejected(message) for message in deployment.dead_letters()]


def _rejected(message: Message) -> Rejected:
    headers = list(message.headers() or ())
    first = max(number for number, (name, _) in enumerate(headers) if name == "lp-reason")  # a record may have its own
    ours = {name: (value or b"").decode() for name, value in headers[first:]}
    indexes = ours["lp-indexes"]
    return Rejected(
        reason=ours["lp-reason"],
        partition=int(ours["lp-partition"]),
        offset=int(ours["lp-offset"]),
        indexes=None if indexes == "all" else tuple(map(int, indexes.split(","))),
        key=message.key(),
        value=message.value(),
        headers=headers[:first],
        object_key=ours.get("lp-object"),
    )


# JSON.


def parse_rounding(text: str | bytes) -> Any:
    """Parse JSON; numbers that a double does not hold are rounded, those beyond the doubles are exact."""
    return json.loads(text, parse_float=_rounded, parse_int=_integer)


def parse_keeping(text: str | bytes) -> Any:
    """Parse JSON; numbers that a double does not hold are exact."""
    return json.loads(text, parse_float=_kept, parse_int=_integer)


def _integer(text: str) -> int | Decimal:
    return int(text) if len(text) <= _INT_CHARS_MAX else Decimal(text)


def _rounded(text: str) -> float | Decimal | Literal:
    value = float(text)
    return _number(text) if math.isinf(value) else value


def _kept(text: str) -> float | Decimal | Literal:
    value, number = float(text), _number(text)
    return value if number == Decimal(repr(value)) else number


def _number(text: str) -> Decimal | Literal:
    try:
        return Decimal(text)
    except InvalidOperation:
        return Literal(text)


# Equal.

_NUMBERS = (int, float, Decimal)


def difference(expected: Any, actual: Any, path: str = "") -> str | None:
    """Say where two values first differ, or None if they are equal: absent = null, numbers by value."""
    kind = type(expected)
    if kind is dict and type(actual) is dict:
        return _object_difference(expected, actual, path)
    if kind is list and type(actual) is list:
        if len(expected) != len(actual):
            return f"{path}: {len(expected)} items became {len(actual)}"
        parts = zip(expected, actual, strict=True)
        found = (difference(one, other, f"{path}[{number}]") for number, (one, other) in enumerate(parts))
        return next(filter(None, found), None)
    if expected == actual and (kind is type(actual) or (kind in _NUMBERS and type(actual) in _NUMBERS)):
        return None
    return f"{path}: {_shown(expected)} became {_shown(actual)}"


def _object_difference(expected: JsonObject, actual: JsonObject, path: str) -> str | None:
    found = 0
    for name, value in expected.items():
        other = actual.get(name)
        if value is None and other is None:
            continue
        found += 1
        if type(value) is str and value == other:
            continue  # most are
        text = difference(value, other, f"{path}.{name}")
        if text is not None:
            return text
    if found == len(actual):
        return None
    added = [name for name, value in actual.items() if value is not None and name not in expected]
    return f"{path}: has {_shown(added)}, too" if added else None


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:60]}... ({len(text)} characters)"
