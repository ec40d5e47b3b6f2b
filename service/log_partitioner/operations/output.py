"""Output of commands: JSON, or text in columns, on standard output; notes for the reader on standard error."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from log_partitioner.privacy import printable

Row = Mapping[str, object]
_GAP = "  "


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add the option `--json`."""
    parser.add_argument("--json", action="store_true", dest="is_json", help="write JSON instead of text")


def write_json(value: object) -> None:
    """Write one value as a line of JSON; msgspec says which types there are."""
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")


def write_rows(rows: Iterable[Row], *, is_json: bool) -> None:
    """Write rows as lines of JSON, one by one, or as a table, once all are there."""
    if is_json:
        for row in rows:
            write_json(row)
    else:
        write_lines(table(list(rows)))


def write_lines(lines: Iterable[str]) -> None:
    """Write lines of text; control characters in them do not reach a terminal."""
    sys.stdout.writelines(f"{printable(line)}\n" for line in lines)


def write_note(text: str) -> None:
    """Say something about the output, beside it."""
    sys.stderr.write(f"{printable(text)}\n")


def moment(at_ms: int) -> str:
    """Write a time in milliseconds since the epoch, to the second."""
    return datetime.fromtimestamp(at_ms / 1000, tz=UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def table(rows: Sequence[Row]) -> Iterator[str]:
    """Lay out rows below the names of their fields, which all share; numbers stand at the right."""
    if not rows:
        return
    names = list(rows[0])
    cells = [names, *([_cell(row[name]) for name in names] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    is_right = [all(isinstance(row[name], int | float | None) for row in rows) for name in names]
    for line in cells:
        parts = zip(line, widths, is_right, strict=True)
        yield _GAP.join(cell.rjust(width) if right else cell.ljust(width) for cell, width, right in parts).rstrip()


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else str(value)
