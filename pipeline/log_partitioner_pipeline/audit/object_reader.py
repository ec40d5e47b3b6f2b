"""Objects and the references into them, on the executors: rows of `frames.ROWS`, and faults of either.

An object is fetched once for all its references. Its rows are read, and their values restored, by the schema in its
header. All statements of a reference are compared with its rows, also its exact schema, a projection of the header's.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from log_partitioner.formats.findings import Kind
from log_partitioner.formats.projection import project
from log_partitioner.formats.reference import checksum_of
from log_partitioner.proof.oracle.equal import digest
from log_partitioner.proof.oracle.expected_schema import is_covered_by
from log_partitioner.proof.oracle.judge import Judge
from log_partitioner.proof.oracle.published_schema import META, PublishedSchema, RestoreError
from log_partitioner_pipeline.audit.statements import wrong_fields, wrong_places, wrong_statements
from log_partitioner_pipeline.errors import ObjectError
from log_partitioner_pipeline.objects import Content, Objects, Stored
from log_partitioner_pipeline.reference_rows import reference_of
from log_partitioner_pipeline.rows import Container

if TYPE_CHECKING:
    from log_partitioner.config.settings import Settings
    from log_partitioner.formats.reference import Reference
    from log_partitioner.proof.oracle.json_text import Parse
    from log_partitioner_pipeline.objects import Address
    from log_partitioner_pipeline.pieces import Span

Row = dict[str, Any]

_TEXT_CHARS_MAX = 400
_UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, IndexError)


class _Exact(NamedTuple):
    """The exact schema of references of one projection, and its faults; None if there is none."""

    schema: PublishedSchema | None
    problems: tuple[str, ...]


class _Object:
    """One object as it was fetched, with its references' claims about it."""

    def __init__(self, stored: Stored, where: str) -> None:
        self.where = where
        self.size = len(stored.data)
        self._stored = stored
        self._checksums: dict[str, str] = {}
        self._container: Container | None = None

    def differences(self, reference: Reference) -> str:
        """Return the differences of an object from the one that was referenced."""
        location, stored = reference.location, self._stored
        wrong = []
        if self.size != location.size:
            wrong.append(f"{self.size} bytes, the reference says {location.size}")
        algorithm, said = location.checksum.algorithm, location.checksum.value
        if algorithm not in self._checksums:
            self._checksums[algorithm] = checksum_of(algorithm, stored.data)
        if (found := self._checksums[algorithm]) != said:
            wrong.append(f"{algorithm} is {found}, the reference says {said}")
        if location.etag is not None and stored.etag is not None and location.etag != stored.etag:
            wrong.append(f"etag is {stored.etag}, the reference says {location.etag}")
        return "; ".join(wrong)

    def open(self) -> Container:
        """Read its header, once.

        Raises:
            ObjectError: it has none.
        """
        if self._container is None:
            self._container = Container(Content(((0, self._stored.data),)), self.where)
        return self._container


class ObjectReader:
    """Reads objects, each once for all its references, and judges the statements of these."""

    def __init__(self, settings: Settings) -> None:
        self._objects = Objects(settings.s3)
        self._parse: Parse = Judge(settings).parse
        self._headers: dict[str, PublishedSchema] = {}
        self._exact: dict[tuple[str, str], _Exact] = {}

    def read(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Yield the rows of references, and their faults; rows of one object stand together."""
        groups = (list(group) for _, group in groupby(rows, key=_address))
        fetched = self._objects.ahead(
            lambda group: (group, self._objects.try_fetch(_address(group[0]))),
            groups,
            size_of=lambda group: group[0]["location"]["size"],
        )
        for group, stored in fetched:
            yield from self._read_object(group, stored)

    def _read_object(self, group: list[Row], stored: Stored | ObjectError | None) -> Iterator[Row]:
        where = f"s3://{group[0]['location']['bucket']}/{group[0]['location']['object']}"
        opened = _Object(stored, where) if isinstance(stored, Stored) else None
        for row in group:
            about = {name: row[name] for name in ("reference_id", "user", "date", "hour", "taken")}
            if opened is not None:
                yield from self._read_reference(row, opened, about)
            elif stored is None:
                gone = f"{where} is referenced and not there"
                yield about | {"kind": Kind.OBJECT_MISSING, "text": gone, "lost": True}
            else:
                yield about | {"text": str(stored), "lost": True, "unread": True}

    def _read_reference(self, row: Row, opened: _Object, about: Row) -> Iterator[Row]:
        reference = reference_of(row)
        altered = opened.differences(reference)
        if altered:
            yield about | {"kind": Kind.OBJECT_ALTERED, "text": f"{opened.where}: {altered}"}
        try:
            container = opened.open()
            header = self._header(container.schema_text)
        except (ObjectError, *_UNREADABLE) as error:
            what = {} if altered else {"kind": Kind.OBJECT_UNREADABLE, "text": _short(f"{opened.where}: {error}")}
            yield about | {"lost": True} | what
            return
        present: set[str] = set()
        try:
            rows = container.rows(_within(reference.location.ranges, opened.size))
            found = [_file_row(one, header, about, present) for one in rows]
        except (ObjectError, *_UNREADABLE) as error:
            is_whole = reference.location.ranges == ((0, reference.location.size),)
            kind = Kind.OBJECT_UNREADABLE if is_whole else Kind.REFERENCE_WRONG
            text = _short(f"reference {reference.reference_id}: {error}")
            what = {} if altered else {"kind": kind, "text": text}
            yield about | {"lost": True} | what
            return
        exact = self.exact_schema(container.schema_text, row["projection"])
        statements = [
            *wrong_places(reference, container.schema_text),
            *header.problems,
            *exact.problems,
            *wrong_statements(reference, found),
            *wrong_fields(exact.schema, present),
        ]
        if statements:
            text = f"reference {reference.reference_id}: {'; '.join(statements)}"
            yield about | {"kind": Kind.REFERENCE_WRONG, "text": _short(text)}
        yield from found

    def _header(self, text: str) -> PublishedSchema:
        schema = self._headers.get(text)
        if schema is None:
            schema = self._headers[text] = PublishedSchema(text, self._parse)
        return schema

    def exact_schema(self, text: str, projection: str) -> _Exact:
        """Return the schema that a projection makes of an object's; results are remembered."""
        exact = self._exact.get((text, projection))
        if exact is None:
            exact = self._exact[text, projection] = self._project(text, projection)
        return exact

    def _project(self, text: str, projection: str) -> _Exact:
        """Outline: the rule of packs - a reference's schema is covered by that of its object (DESIGN 6)."""
        header = self._header(text)
        if projection == "null":
            return _Exact(header, tuple(f"{path}: two fields of this original name" for path in header.beside))
        try:
            exact = json.dumps(project(json.loads(text), json.loads(projection)))
            own = PublishedSchema(exact, self._parse, keeps_names=True)
        except _UNREADABLE as error:
            return _Exact(None, (f"its schema {projection}: {error}",))
        twice = [f"{path}: two fields of this original name" for path in own.beside]
        problems = tuple(f"its schema: {problem}" for problem in (*own.problems, *twice))
        if not is_covered_by(own.type, header.type):
            problems += ("its schema has other types than that of its object",)
        return _Exact(own, problems)


def _address(row: Row) -> Address:
    location = row["location"]
    return location["bucket"], location["object"], location["version_id"]


def _within(ranges: Iterable[Span], size: int) -> list[Span]:
    """Cut ranges off at the end of the object; another check reports that they reach further."""
    return [(start, min(length, size - start)) for start, length in ranges]


def _file_row(row: Row, schema: PublishedSchema, about: Row, present: set[str]) -> Row:
    """Return a row of the frame for a row of an object; `present` gets the fields that it has."""
    meta = row[META]
    try:
        values = schema.restore(row)
    except RestoreError as error:
        values = {"": str(error)}
    if isinstance(values, dict):
        present.update(values.keys())
    root = meta["root"]
    return about | {
        "topic": meta["topic"],
        "partition": meta["partition"],
        "offset": meta["offset"],
        "index": meta["index"],
        "meta_user": meta["user"],
        "event_time_us": meta["event_time"],
        "timestamp_ms": meta["timestamp"],
        "id": meta["id"],
        "root": None if root is None else root_text(**root),
        "digest": digest(values),
    }


def root_text(topic: str, partition: int, offset: int, index: int | None) -> str:
    """Write the first place of a republished entry as text, so that it compares."""
    return f"{topic}-{partition}-{offset}" + ("" if index is None else f"-{index}")


def _short(text: str) -> str:
    return text if len(text) <= _TEXT_CHARS_MAX else text[: _TEXT_CHARS_MAX - 3] + "..."
