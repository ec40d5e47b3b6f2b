"""The form of a format: payload of a record -> its parts -> values."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

from log_partitioner.formats.schema import Schema
from log_partitioner.input.json_text import WHITE

_LINE = re.compile(rb"[^\n]+")


Read = Callable[[bytes], Any]
"""Gives the value of a part, as msgspec decodes JSON; raises nothing but UndecodableError."""


class SchemaError(ValueError):
    """A text is no schema of the format."""


class Format(NamedTuple):
    """Rules for payloads of one kind, after decompression; they do no IO, and raise nothing but UndecodableError.

    `split` yields the parts of a payload that are an entry each. Without it a payload is one part: an entry, or a list
    or an object that has them. `read` gives the value of a part; in a format with schemas `read_by` makes it
    from one, or raises SchemaError. Without either parts are JSON text, which stays as it is in rows. `compiled`
    says as what the fast lane reads payloads; None: it does not.
    """

    split: Callable[[bytes], Iterator[bytes]] | None = None
    read: Read | None = None
    read_by: Callable[[Schema], Read] | None = None
    compiled: Literal["document", "lines"] | None = None


def lines_of(payload: bytes) -> Iterator[bytes]:
    """Yield the lines that are not blank."""
    return (line[0] for line in _LINE.finditer(payload) if line[0].strip(WHITE))
