"""The form of a format: payload of a record -> its parts -> values."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

from log_partitioner.formats.dead_letter import Reason
from log_partitioner.formats.schema import Schema
from log_partitioner.input.json_text import WHITE, UndecodableError

OTHER_LINES = "input.format = text reads other lines, by a pattern"
QUOTED = r'[^"\\]*+(?>(?:\\.[^"\\]*+)*)'  # the text between two quotes; it stays escaped
_LINE = re.compile(rb"[^\n]+")


Read = Callable[[bytes], Any]
"""Gives the value of a part, as msgspec decodes JSON; raises nothing but UndecodableError."""


class SchemaError(ValueError):
    """A text is not a schema of the format."""


class FormatError(ValueError):
    """A format is not available, or not with these settings."""


class Format(NamedTuple):
    """Rules for payloads of one kind, after decompression; they do no IO, and raise nothing but UndecodableError.

    `split` yields the parts of a payload that are an entry each. Without it a payload is one part: an entry, or a list
    or an object that has them. `read` gives the value of a part; in a format with schemas `read_by` makes it
    from one, or raises SchemaError. Without either parts are JSON text, which stays as it is in rows. `entries_path`
    leads to entries, as the setting does. `compiled`: the form in which the fast lane reads payloads, if it does.
    """

    split: Callable[[bytes], Iterator[bytes]] | None = None
    read: Read | None = None
    read_by: Callable[[Schema], Read] | None = None
    entries_path: str | None = None
    compiled: Literal["document", "lines"] | None = None


def lines_of(payload: bytes) -> Iterator[bytes]:
    """Yield the lines that are not blank."""
    return (line[0] for line in _LINE.finditer(payload) if line[0].strip(WHITE))


def text_of_line(line: bytes) -> str:
    r"""Return the text of a line, without `\r` at its end.

    Raises:
        UndecodableError: it is not UTF-8.
    """
    try:
        return line.removesuffix(b"\r").decode()
    except UnicodeDecodeError as error:
        raise UndecodableError(Reason.INVALID_UNICODE, f"lines have to be written as UTF-8: {error}") from error


def members_by(pattern: re.Pattern[str], line: bytes, *, expected: str) -> dict[str, Any]:
    """Return the named groups of a pattern that matches the whole line; one that takes no part is no member.

    Raises:
        UndecodableError: it does not match, or is not UTF-8.
    """
    found = pattern.fullmatch(text_of_line(line))
    if found is None:
        raise UndecodableError(Reason.MALFORMED, expected)
    return {name: value for name, value in found.groupdict().items() if value is not None}
