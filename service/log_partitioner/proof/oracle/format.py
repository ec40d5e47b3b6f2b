"""The form of a format in the second opinion, and how it says that something is dead."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from log_partitioner.formats.dead_letter import Reason
from log_partitioner.formats.schema import Schema

Reasons = frozenset[Reason]
NO_REASONS: Reasons = frozenset()


_WHITESPACE = b" \t\r\n"


class DeadError(Exception):
    """A record, or a part of one, is dead for these reasons."""

    def __init__(self, *reasons: Reason) -> None:
        super().__init__(*reasons)
        self.reasons: Reasons = frozenset(reasons)


Parse = Callable[[bytes], object]


class Format(NamedTuple):
    """Rules for decompressed payloads of one kind; they raise nothing but DeadError.

    `lines` gives the parts of a payload that are an entry each; without it a payload is one part. `parse` gives the
    value of a part, and `parse_by` such a function from a schema; without either parts are JSON text.
    """

    lines: Callable[[bytes], list[bytes]] | None = None
    parse: Parse | None = None
    parse_by: Callable[[Schema], Parse] | None = None
    entries_path: str | None = None


def lines_of(payload: bytes) -> list[bytes]:
    """Return the lines that are not blank."""
    return [line for line in payload.split(b"\n") if line.strip(_WHITESPACE)]


def text_of_line(line: bytes) -> str:
    r"""Return the text of a line, without `\r` at its end.

    Raises:
        DeadError: it is not UTF-8.
    """
    try:
        return line.decode().removesuffix("\r")
    except UnicodeDecodeError as error:
        raise DeadError(Reason.INVALID_UNICODE) from error
