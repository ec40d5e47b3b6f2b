"""Keys of everything the service writes to the store (DESIGN 3.4, 3.5); unique per attempt.

{prefix}/user={u}/date=YYYY-MM-DD/hour=HH/{batch id}-{n}[-{attempt}].avro    the rows of one PartitionKey
{prefix}/pack/date=YYYY-MM-DD/hour=HH/{batch id}-{n}[-{attempt}].avro         the rows of many of one hour
{prefix}/pack/{batch id}-{n}[-{attempt}].avro                                 the rows of many
{prefix}/_schemas/{fingerprint}.avsc                                          one distinct schema
{prefix}/_dead-letters/{batch id}-{n}                                         a value too large for its topic
{prefix}/_dead-letters/{batch id}-{n}.record.json                             the same with key and headers
{prefix}/_check                                                               what workers ask to create at their start
"""

from __future__ import annotations

import hashlib
import re

from log_partitioner.formats.dead_letter import RECORD_SUFFIX
from log_partitioner.formats.model import PartitionKey

KEY_SAFE_CHARS_MAX = 100
_UNSAFE = re.compile(rb"[^A-Za-z0-9_-]")
_HASH_CHARS = 32
_HOUR = r"date=[0-9-]+/hour=[0-9]{2}"
_ROWS = re.compile(
    rf"(?:user=[^/]+/{_HOUR}|pack(?:/{_HOUR})?)/"
    r"(?:(?P<batch_id>[0-9]{8}T[0-9]{6}Z-(?P<boot>[^-/]+)-[0-9]+)|(?P<backfill>backfill-[^/]+)-[0-9a-f]{8})"
    r"-[0-9]+(?:-[0-9]+)?\.avro"
)


def data_key(prefix: str, key: PartitionKey, *, batch_id: str, number: int, attempt: int = 0) -> str:
    """Name the object of one PartitionKey; another attempt gets another key."""
    again = f"-{attempt}" if attempt else ""
    return f"{prefix}/user={key_safe(key.user)}/date={key.date}/hour={key.hour:02}/{batch_id}-{number}{again}.avro"


def pack_key(prefix: str, hour: tuple[str, int] | None, *, batch_id: str, number: int, attempt: int = 0) -> str:
    """Name the object of many PartitionKeys, of one (date, hour) or of several; another attempt gets another key."""
    again = f"-{attempt}" if attempt else ""
    where = f"date={hour[0]}/hour={hour[1]:02}/" if hour else ""
    return f"{prefix}/pack/{where}{batch_id}-{number}{again}.avro"


def schema_key(prefix: str, fingerprint: str) -> str:
    """Name the object of a schema; its content follows from its name."""
    return f"{prefix}/_schemas/{fingerprint}.avsc"


def check_key(prefix: str) -> str:
    """Name the one object by which workers check at their start whether they may create objects."""
    return f"{prefix}/_check"


def dead_letter_key(prefix: str, *, batch_id: str, number: int) -> str:
    """Name the object of a value that its dead-letter topic cannot take."""
    return f"{prefix}/_dead-letters/{batch_id}-{number}"


def stored_record_key(prefix: str, *, batch_id: str, number: int) -> str:
    """Name the object of a record whose key or headers its dead-letter topic cannot take."""
    return dead_letter_key(prefix, batch_id=batch_id, number=number) + RECORD_SUFFIX


def rows_prefixes(prefix: str) -> tuple[str, str]:
    """Return what the keys of all objects of rows begin with."""
    return f"{prefix}/user=", f"{prefix}/pack/"


def find_rows_key(prefix: str, key: str) -> re.Match[str] | None:
    """Return the parts of an object key: `batch_id` and `boot`, or `backfill`; None if it is of no rows."""
    return _ROWS.fullmatch(key.removeprefix(f"{prefix}/")) if key.startswith(f"{prefix}/") else None


def key_safe(name: str) -> str:
    """Return a name in its form in an object key: `A-Za-z0-9_-` as they are, other bytes of its UTF-8 as %XX.

    Beyond KEY_SAFE_CHARS_MAX: a prefix, `~` (which no short form contains) and half a SHA-256; such a form only
    identifies, a user is read from the reference.
    """
    encoded = _UNSAFE.sub(lambda found: b"%%%02X" % found[0][0], name.encode()).decode("ascii")
    if len(encoded) <= KEY_SAFE_CHARS_MAX:
        return encoded
    digest = hashlib.sha256(name.encode()).hexdigest()[:_HASH_CHARS]
    prefix = encoded[: KEY_SAFE_CHARS_MAX - _HASH_CHARS - 1]
    return f"{prefix}~{digest}"
