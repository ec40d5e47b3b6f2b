"""Keys of everything the service writes to the store (DESIGN 3.4, 3.5); unique per attempt.

{prefix}/user={u}/date=YYYY-MM-DD/hour=HH/{batch id}-{n}[-{attempt}].avro    the rows of one PartitionKey
{prefix}/pack/date=YYYY-MM-DD/hour=HH/{batch id}-{n}[-{attempt}].avro         the rows of many of one hour
{prefix}/pack/{batch id}-{n}[-{attempt}].avro                                 the rows of many
{prefix}/_schemas/{fingerprint}.avsc                                          one distinct schema
{prefix}/_dead-letters/{batch id}-{n}                                         a value too large for its topic
{prefix}/_dead-letters/{batch id}-{n}.record.json                             the same with key and headers
"""

from __future__ import annotations

from service.core.dead_letter import RECORD_SUFFIX
from service.core.model import PartitionKey
from service.core.partition_key import encode_user


def data_key(prefix: str, key: PartitionKey, *, batch_id: str, number: int, attempt: int = 0) -> str:
    """Name the object of one PartitionKey; another attempt gets another key."""
    again = f"-{attempt}" if attempt else ""
    return f"{prefix}/user={encode_user(key.user)}/date={key.date}/hour={key.hour:02}/{batch_id}-{number}{again}.avro"


def pack_key(prefix: str, hour: tuple[str, int] | None, *, batch_id: str, number: int, attempt: int = 0) -> str:
    """Name the object of many PartitionKeys, of one (date, hour) or of several; another attempt gets another key."""
    again = f"-{attempt}" if attempt else ""
    where = f"date={hour[0]}/hour={hour[1]:02}/" if hour else ""
    return f"{prefix}/pack/{where}{batch_id}-{number}{again}.avro"


def schema_key(prefix: str, fingerprint: str) -> str:
    """Name the object of a schema; its content follows from its name."""
    return f"{prefix}/_schemas/{fingerprint}.avsc"


def dead_letter_key(prefix: str, *, batch_id: str, number: int) -> str:
    """Name the object of a value that its dead-letter topic cannot take."""
    return f"{prefix}/_dead-letters/{batch_id}-{number}"


def stored_record_key(prefix: str, *, batch_id: str, number: int) -> str:
    """Name the object of a record whose key or headers its dead-letter topic cannot take."""
    return dead_letter_key(prefix, batch_id=batch_id, number=number) + RECORD_SUFFIX
