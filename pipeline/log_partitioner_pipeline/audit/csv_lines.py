"""Bytes of one archived file -> its rows, each with its line; a line that is no row is reported, never dropped. Pure.

Owns the end of a row: the end of a line outside quotes. A broken row (other fields than the header, a quote in the
wrong place or never closed, bytes of no text) costs its first line alone: reading goes on with the line after it, so
that a stray quote does not take its neighbours along. Empty lines are nothing.
"""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from log_partitioner_pipeline.errors import ArchiveError

if TYPE_CHECKING:
    from log_partitioner_pipeline.config import CsvSettings

_GZIP = b"\x1f\x8b"
_FIELD_CHARS_MAX = 1 << 28
_SHOWN_CHARS_MAX = 80
_ESCAPED_BYTES = "surrogateescape"


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
    records = _records(_Lines(_text(data, settings.encoding)), settings)
    names = list(settings.columns)
    if not names:
        header = next(records, None)
        if header is None:
            return
        if isinstance(header, BrokenLine):
            raise ArchiveError(f"line {header.line} is no header: {header.text}")
        names = header[1]
    _check_header(names, settings)
    for record in records:
        if isinstance(record, BrokenLine):
            yield record
        else:
            yield CsvRow(record[0], dict(zip(names, record[1], strict=True)))


def _check_header(names: list[str], settings: CsvSettings) -> None:
    wanted = [settings.id_column, settings.user_column, settings.time_column, *settings.values]
    if settings.id_column not in names:
        raise ArchiveError(f"there is no column {settings.id_column!r} among {', '.join(map(repr, names))}")
    repeated = [name for name in wanted if name is not None and names.count(name) > 1]
    if repeated:
        raise ArchiveError(f"column {repeated[0]!r} is there more than once")


def _text(data: bytes, encoding: str) -> Iterator[tuple[int, str]]:
    """Yield lines with their numbers and ends."""
    raw: Any = io.BytesIO(data)
    if data.startswith(_GZIP):
        raw = gzip.GzipFile(fileobj=raw)
    try:
        yield from enumerate(io.TextIOWrapper(raw, encoding, errors=_ESCAPED_BYTES, newline=""), 1)
    except (OSError, EOFError, zlib.error) as error:
        raise ArchiveError(f"its gzip is damaged: {error}") from error
    except UnicodeError as error:
        raise ArchiveError(f"it is no {encoding}: {error}") from error


class _Lines:
    """Lines that can be put back."""

    def __init__(self, lines: Iterator[tuple[int, str]]) -> None:
        self._lines = lines
        self._back: deque[tuple[int, str]] = deque()

    def take(self) -> tuple[int, str] | None:
        return self._back.popleft() if self._back else next(self._lines, None)

    def put_back(self, lines: list[tuple[int, str]]) -> None:
        self._back.extendleft(reversed(lines))


def _records(lines: _Lines, settings: CsvSettings) -> Iterator[tuple[int, list[str]] | BrokenLine]:
    """Outline: read as many lines as a row takes -> as many fields as the first one has? -> if not, put lines back."""
    width = len(settings.columns) or None
    reader_of = _reader_of(settings)
    while True:
        taken: list[tuple[int, str]] = []
        fault = ""
        fields: list[str] = []
        try:
            fields = next(reader_of(_feed(lines, taken, settings.row_lines_max)), [])
        except csv.Error as error:
            fault = str(error)
        if not taken:
            return
        if not fields and not fault:
            continue
        if width is None and not fault:
            width = len(fields)
        if not fault and len(fields) != width:
            fault = f"{len(fields)} fields instead of {width}"
        if not fault and not all(field.isascii() or _is_text(field) for field in fields):
            fault = f"bytes that are no {settings.encoding}"
        if not fault:
            yield taken[0][0], fields
            continue
        yield BrokenLine(taken[0][0], f"{fault}: {_shown(taken[0][1])}")
        lines.put_back(taken[1:])


def _feed(lines: _Lines, taken: list[tuple[int, str]], most: int) -> Iterator[str]:
    while len(taken) < most:
        line = lines.take()
        if line is None:
            return
        taken.append(line)
        yield line[1]


def _reader_of(settings: CsvSettings) -> Callable[[Iterator[str]], Iterator[list[str]]]:
    def read(feed: Iterator[str]) -> Iterator[list[str]]:
        return csv.reader(
            feed,
            delimiter=settings.delimiter,
            quotechar=settings.quote,
            escapechar=None if settings.escape == settings.quote else settings.escape,
            strict=True,
        )

    return read


def _is_text(field: str) -> bool:
    try:
        field.encode()
    except UnicodeEncodeError:
        return False
    return True


def _shown(line: str) -> str:
    text = line.rstrip("\r\n").encode(errors="replace").decode()
    return repr(text if len(text) <= _SHOWN_CHARS_MAX else text[: _SHOWN_CHARS_MAX - 3] + "...")
