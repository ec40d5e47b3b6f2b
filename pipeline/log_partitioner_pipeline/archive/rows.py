"""Bytes of one archived file -> its rows, each with its line; texts and values -> digests that can be compared. Pure.

Owns the end of a row: the end of a line outside quotes. A broken row (other fields than the header, a quote in the
wrong place or never closed, bytes of no text) is reported and costs its first line alone: reading goes on with the line
after it, so that a stray quote does not take its neighbours along. Empty lines are nothing.

Owns the meaning of texts as values, too. A string is its own text, an absent or null value the empty text; everything
else (numbers, booleans, arrays, objects) is equal if the text is JSON of an equal value (DESIGN 3.2). `True` is true,
because some languages write it so.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import zlib
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from log_partitioner.proof.oracle.equal import canonical, digest
from log_partitioner.proof.oracle.json_text import holds_invalid_bytes
from log_partitioner_pipeline.errors import ArchiveError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from log_partitioner.proof.oracle.json_text import Parse
    from log_partitioner_pipeline.config import CsvSettings

_GZIP = b"\x1f\x8b"
_FIELD_CHARS_MAX = 1 << 28
_SHOWN_CHARS_MAX = 80
_QUOTE = '"'
_ROW_LINES_MAX = 1000  # behind a quote that is never closed, no more lines are looked at
_Line = tuple[int, str]


class CsvRow(NamedTuple):
    """A row by its column names, and the line that it begins on, counted from 1."""

    line: int
    fields: dict[str, str]


class BrokenLine(NamedTuple):
    """A line that is no row, and why."""

    line: int
    text: str


def read_csv(data: bytes, settings: CsvSettings) -> Iterator[CsvRow | BrokenLine]:
    """Read one file, gzip or not; each row has all columns.

    Raises:
        ArchiveError: the rest cannot be read (gzip ends early or is damaged), or there is no column of the id.
    """
    csv.field_size_limit(_FIELD_CHARS_MAX)  # of the module; its default is less than a log message may have
    records = _records(_lines(data, settings.encoding), settings)
    names = list(settings.columns)
    if not names:
        header = next(records, None)
        if header is None:
            return
        if isinstance(header, BrokenLine):
            raise ArchiveError(f"line {header.line} is no header: {header.text}")
        names = header[1]
    _check_header(names, settings)
    for one in records:
        yield one if isinstance(one, BrokenLine) else CsvRow(one[0], dict(zip(names, one[1], strict=True)))


def _check_header(names: list[str], settings: CsvSettings) -> None:
    if settings.id_column not in names:
        raise ArchiveError(f"there is no column {settings.id_column!r} among {', '.join(map(repr, names))}")
    for name in (settings.id_column, settings.user_column, settings.time_column, *settings.values):
        if name is not None and names.count(name) > 1:
            raise ArchiveError(f"column {name!r} is there more than once")


def _lines(data: bytes, encoding: str) -> Iterator[_Line]:
    """Yield lines with their numbers and ends; a byte that is no text becomes a lone surrogate."""
    raw: Any = io.BytesIO(data)
    if data.startswith(_GZIP):
        raw = gzip.GzipFile(fileobj=raw)
    try:
        yield from enumerate(io.TextIOWrapper(raw, encoding, errors="surrogateescape", newline=""), 1)
    except (OSError, EOFError, zlib.error) as error:
        raise ArchiveError(f"its gzip is damaged: {error}") from error
    except UnicodeError as error:
        raise ArchiveError(f"it is no {encoding}: {error}") from error


def _records(lines: Iterator[_Line], settings: CsvSettings) -> Iterator[tuple[int, list[str]] | BrokenLine]:
    """Outline: take as many lines as a row has -> as many fields as the first one? -> if not, put back all but one."""
    width = len(settings.columns)
    back: deque[_Line] = deque()
    while True:
        taken: list[_Line] = []
        try:
            fields = next(_reader(_feed(lines, back, taken), settings), [])
            width = width or len(fields)
            fault = _fault(fields, width, settings.encoding) if fields else ""
        except csv.Error as error:
            fields, fault = [], str(error)
        if not taken:
            return
        line, text = taken[0]
        if fault:
            yield BrokenLine(line, f"{fault}: {_shown(text)}")
            back.extendleft(reversed(taken[1:]))
        elif fields:
            yield line, fields


def _feed(lines: Iterator[_Line], back: deque[_Line], taken: list[_Line]) -> Iterator[str]:
    while len(taken) < _ROW_LINES_MAX and (line := back.popleft() if back else next(lines, None)) is not None:
        taken.append(line)
        yield line[1]


def _reader(feed: Iterator[str], settings: CsvSettings) -> Iterator[list[str]]:
    escape = None if settings.escape == _QUOTE else settings.escape
    return csv.reader(feed, delimiter=settings.delimiter, quotechar=_QUOTE, escapechar=escape, strict=True)


def _fault(fields: list[str], width: int, encoding: str) -> str:
    if len(fields) != width:
        return f"{len(fields)} fields instead of {width}"
    return f"bytes that are no {encoding}" if holds_invalid_bytes("".join(fields)) else ""


def _shown(line: str) -> str:
    text = line.rstrip("\r\n").encode(errors="replace").decode()
    return repr(text if len(text) <= _SHOWN_CHARS_MAX else text[: _SHOWN_CHARS_MAX - 3] + "...")


def value_of_text(text: str, parse: Parse) -> dict[str, Any]:
    """Return the digests of a field of CSV: of its text, and of the value if the text is JSON (else None)."""
    word = text.lower()
    try:
        value = digest(canonical(parse(word if word in ("true", "false") else text)))
    except (json.JSONDecodeError, RecursionError):
        value = None
    return {"text": digest(text), "value": value}


def value_of_entry(value: object) -> dict[str, Any]:
    """Return the digest of a value of an entry."""
    if value is None or isinstance(value, str):
        return {"is_text": True, "digest": digest(value or "")}
    return {"is_text": False, "digest": digest(canonical(value))}
