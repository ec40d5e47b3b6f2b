"""`log-partitioner cat`: the rows of an object, or of the byte ranges of one reference."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from functools import partial

import msgspec

from log_partitioner.config.settings import Settings
from log_partitioner.errors import NotFoundError, SettingsError
from log_partitioner.formats.reference import Location, decode_references
from log_partitioner.operations.output import write_note
from log_partitioner.proof.audit.store import Address
from log_partitioner.proof.oracle.judge import Judge
from log_partitioner.reader import ReferencesTopic, entries_of, fetch, store_of, to_json

_STANDARD_INPUT = "-"


class _Placed(msgspec.Struct):
    """A reference, as far as its rows need it."""

    location: Location


Find = Callable[[str], Location]
_decode_placed = msgspec.json.Decoder(_Placed).decode


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "place",
        metavar="OBJECT|REFERENCE",
        help="an object, s3://bucket/key or a key of the bucket; a reference's id; or JSON: a reference, a line of "
        "`find --json`, a message of the references topic; - reads lines of standard input",
    )


def main(options: argparse.Namespace, settings: Settings) -> int:
    """Print the rows of an object, or of one reference, as lines of JSON.

    A row has `_meta` and, under `entry`, the entry with its original names and values. A reference is read by its byte
    ranges alone. Rows are input: they hold what users have logged.

    Example:
      log-partitioner cat s3://my-logs/logs/pack/date=2026-03-04/hour=05/20260304T050607Z-1f2e3d4c-17-0.avro
      log-partitioner cat 20260304T050607Z-1f2e3d4c-17-40
      log-partitioner find app-logs 3 118204 --json | log-partitioner cat -

    Exit codes:
      0   all rows are printed
      1   there is no such object, or no such reference
      2   it cannot be read, or settings or arguments are wrong

    More: docs/RUNBOOK.md
    """
    store, parse = store_of(settings), Judge(settings).parse
    is_all = True
    for address, location in places(options.place, settings.s3.bucket, partial(_find, settings)):
        try:
            data = fetch(store, address, *((location.ranges, location.etag) if location else ()))
        except NotFoundError as error:
            is_all = False
            write_note(str(error))
            continue
        sys.stdout.writelines(f"{to_json(entry)}\n" for entry in entries_of(data, address, parse))
    return 0 if is_all else 1


def places(text: str, bucket: str, find: Find) -> Iterator[tuple[Address, Location | None]]:
    """Yield the objects that an argument names, with a reference's location if it is one; `find` knows ids.

    Raises:
        SettingsError: it is JSON, and no reference.
        NotFoundError: there is no reference with this id.
    """
    if text == _STANDARD_INPUT:
        for line in filter(None, map(str.strip, sys.stdin)):
            yield from places(line, bucket, find)
    elif text.startswith("{") or "/" not in text:
        for location in _locations(text.encode()) if text.startswith("{") else [find(text)]:
            yield Address.of(location), location
    else:
        yield Address.named(text, bucket=bucket), None


def _find(settings: Settings, reference_id: str) -> Location:
    with ReferencesTopic.connect(settings, write_note) as references:
        found = references.with_id(reference_id)
    if found is None:
        raise NotFoundError(f"no reference has the id {reference_id}")
    return found.location


def _locations(text: bytes) -> list[Location]:
    try:
        return [_decode_placed(text).location]
    except msgspec.DecodeError:
        pass
    try:
        return [reference.location for reference in decode_references(text)]
    except msgspec.DecodeError as error:
        raise SettingsError([f"this is neither a reference nor a message of the references topic: {error}"]) from error
