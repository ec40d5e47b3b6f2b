"""The statements of a reference against its rows: each difference in words. Pure.

Owns which statements of a reference are compared, and when its exact schema fits its rows.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_to_bytes

from log_partitioner.proof.oracle.expected_schema import Record
from log_partitioner_pipeline.rows import fingerprint_of

if TYPE_CHECKING:
    from log_partitioner.formats.reference import Reference
    from log_partitioner.proof.oracle.published_schema import PublishedSchema

Row = dict[str, Any]

_HOUR_IN_KEY = re.compile(r"/pack/date=([^/]+)/hour=(\d+)/[^/]+$")
_PLACE_IN_KEY = re.compile(r"/user=([^/]+)/date=([^/]+)/hour=(\d+)/[^/]+$")


def wrong_places(reference: Reference, schema_text: str) -> Iterator[str]:
    """Yield the wrong statements of a reference about its place: byte ranges, key, schema of the object."""
    location = reference.location
    if any(start < 0 or length < 1 or start + length > location.size for start, length in location.ranges):
        yield f"byte ranges {location.ranges} are not all within the {location.size} bytes of its object"
    if not is_under_its_key(reference):
        yield "the key of its object names another user, date or hour"
    if fingerprint_of(schema_text) != reference.schema.fingerprint:
        yield f"schema {reference.schema.fingerprint} is not the one that the object was written with"


def wrong_statements(reference: Reference, rows: list[Row]) -> Iterator[str]:
    """Yield the statements of a reference that its rows contradict."""
    times = [row["event_time_us"] for row in rows]
    offsets: dict[tuple[str, int], list[int]] = {}
    for row in rows:
        offsets.setdefault((row["topic"], row["partition"]), []).append(row["offset"])
    said = {(one.topic, one.partition): (one.min_offset, one.max_offset, one.entries) for one in reference.sources}
    found = {tp: (min(some), max(some), len(some)) for tp, some in offsets.items()}
    facts: list[tuple[str, object, object]] = [
        ("entries", reference.entries, len(rows)),
        ("sources", said, found),
        (
            "event times",
            (reference.event_time_min_us, reference.event_time_max_us),
            (min(times), max(times)) if times else None,
        ),
    ]
    yield from (f"{what}: says {stated}, rows say {counted}" for what, stated, counted in facts if stated != counted)
    disordered = Counter(tp for tp, some in offsets.items() if some != sorted(some))
    yield from (f"rows of {topic}-{partition} are not in offset order" for topic, partition in disordered)


def wrong_fields(exact: PublishedSchema | None, present: set[str]) -> Iterator[str]:
    """Yield the differences of the exact schema from the rows, which have values in the fields that are `present`.

    A field that no entry has, and one that is null in all, look alike in rows: only one with a type needs a value.
    """
    if exact is None:
        return
    assert isinstance(exact.type, Record), "a row is a record"
    types = dict(exact.type.fields)
    if lacking := sorted(present - types.keys()):
        yield f"its rows have fields that its schema has not: {', '.join(map(repr, lacking))}"
    if idle := sorted(name for name, kind in types.items() if kind != "null" and name not in present):
        yield f"its schema gives a type to what has no value in its rows: {', '.join(map(repr, idle))}"


def is_under_its_key(reference: Reference) -> bool:
    """Return whether a search by path finds the object; a user too long for a path stands there as a hash."""
    if (pack := _HOUR_IN_KEY.search(reference.location.object)) is not None:
        return (pack[1], int(pack[2])) == (reference.partition_key.date, reference.partition_key.hour)
    found = _PLACE_IN_KEY.search(reference.location.object)
    if found is None:
        return True
    user, date, hour = found.groups()
    own = reference.partition_key
    said = own.user.encode()
    if "~" in user:
        is_user = hashlib.sha256(said).hexdigest().startswith(user.rpartition("~")[2])
    else:
        is_user = unquote_to_bytes(user) == said
    return is_user and (date, int(hour)) == (own.date, own.hour)
