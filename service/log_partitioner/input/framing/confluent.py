"""`confluent`: a header, or five bytes before the payload, have the id of its schema."""

from __future__ import annotations

from log_partitioner.formats.dead_letter import Reason
from log_partitioner.formats.model import Headers
from log_partitioner.input.json_text import UndecodableError

HEADER = "__value_schema_id"
_PREFIX_BYTES = 5  # a zero, and the id


def confluent(value: bytes, headers: Headers) -> bytes:
    """Return the payload; a header goes before the prefix, and its value has none.

    Raises:
        UndecodableError: there is neither.
    """
    if any(name == HEADER for name, _ in headers):
        return value
    if value[0] or len(value) < _PREFIX_BYTES:
        message = f"no id of a schema, neither in a header {HEADER} nor before it: input.framing = none reads that"
        raise UndecodableError(Reason.MALFORMED, message)
    return value[_PREFIX_BYTES:]
