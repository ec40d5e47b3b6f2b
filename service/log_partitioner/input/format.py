"""The form of a format: payload of a record -> its parts -> values."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

from log_partitioner.input.json_text import WHITE

_LINE = re.compile(rb"[^\n]+")


class Format(NamedTuple):
    """Rules for payloads of one kind, after decompression; they do no IO, and raise nothing but UndecodableError.

    `split` yields the parts of a payload that are an entry each. Without it a payload is one part: an entry, or a list
    or an object that has them. `read` gives the value of a part, as msgspec decodes JSON. Without it parts are JSON
    text, which stays as it is in rows. `compiled` says as what the fast lane reads payloads; None: it does not.
    """

    split: Callable[[bytes], Iterator[bytes]] | None = None
    read: Callable[[bytes], Any] | None = None
    compiled: Literal["document", "lines"] | None = None


def lines_of(payload: bytes) -> Iterator[bytes]:
    """Yield the lines that are not blank."""
    return (line[0] for line in _LINE.finditer(payload) if line[0].strip(WHITE))
