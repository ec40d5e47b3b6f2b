"""A published row schema (DESIGN 3.2, 3.3): its types, faults of its form, and the way to read its rows.

Owns marks and names: a row read by it is an entry under its original names, in the form of `equal`. The exact schema of
a reference is a projection of the one in its object's header; thousands share one, so it is remembered.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import fastavro
import msgspec

from log_partitioner.formats.projection import NAME_PROPERTY, TYPE_PROPERTY, project
from log_partitioner.proof.oracle.equal import canonical
from log_partitioner.proof.oracle.expected_schema import Array, Map, Record, Type, is_covered_by, paths_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from log_partitioner.proof.oracle.json_text import Parse

META = "_meta"
_META_FIELDS = [
    ("user", "string"),
    ("event_time", {"type": "long", "logicalType": "timestamp-micros"}),
    ("id", ["null", "string"]),
    ("topic", "string"),
    ("partition", "int"),
    ("offset", "long"),
    ("index", "int"),
    ("timestamp", {"type": "long", "logicalType": "timestamp-millis"}),
    ("root", ["null", [("topic", "string"), ("partition", "int"), ("offset", "long"), ("index", ["null", "int"])]]),
]
_SCALARS = {  # by Avro type, mark and logical type
    ("boolean", None, None): "boolean",
    ("long", None, None): "long64",
    ("double", None, None): "double",
    ("string", None, None): "string",
    ("bytes", None, None): "bytes",
    ("long", None, "timestamp-micros"): "timestamp",
    ("int", None, "date"): "date",
    ("long", "long53", None): "long53",
    ("string", "json", None): "json",
    ("string", "null", None): "null",
    ("string", "decimal", None): "decimal",
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_DIGITS = frozenset("0123456789")
_ALLOWED = _DIGITS | frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_")
_EXACT_MAX = 2048

Avro = Any  # Avro schemas are nested JSON
Restore = Callable[[Any], object]


class RestoreError(ValueError):
    """A value contradicts its mark."""


class PublishedSchema:
    """A schema text, understood. `problems` lists deviations of its form from the published one.

    `beside` are the paths of names that have several fields: the schema of a pack may have such. `keeps_names`: it is a
    projection of one, whose fields have the names that they have there.
    """

    def __init__(self, text: str, parse: Parse, *, keeps_names: bool = False) -> None:
        self.problems: list[str] = []
        self.beside: list[str] = []
        self._parse = parse
        self._text = text
        self._keeps_names = keeps_names
        fields = json.loads(text)["fields"]
        if not fields or fields[0]["name"] != META or _plain(fields[0]["type"]) != _META_FIELDS:
            self.problems.append("the first field is not _meta as specified")
        self.type, self.restore = self._record(fields[1:], "", reserved=(META,))

    @cached_property
    def avro(self) -> Avro:
        """The schema by which fastavro reads rows; without logical types, because not every number is a date."""
        return fastavro.parse_schema(without_logical_types(json.loads(self._text)))

    def _record(self, fields: list[Avro], path: str, *, reserved: tuple[str, ...] = ()) -> tuple[Record, Restore]:
        types: list[tuple[str, Type]] = []
        readers: list[tuple[str, str, Restore]] = []
        for field in fields:
            name = _original_name(field)
            at = f"{path}.{name}" if path else name
            if field.get("default", ...) is not None:
                self.problems.append(f"{at}: default is not null")
            kind, restore = self._nullable(field["type"], field.get(TYPE_PROPERTY), at)
            types.append((name, kind))
            readers.append((field["name"], name, restore))
        named: dict[str, list[str]] = {}
        for avro_name, name, _ in readers:
            named.setdefault(name, []).append(avro_name)
        self.beside += [f"{path}.{name}" if path else name for name, some in named.items() if len(some) > 1]
        names = named if self._keeps_names else names_by_original((name for name, _ in types), reserved=reserved)
        for name, given in named.items():
            if given != names[name]:
                is_named = f"{name!r} is named {', '.join(given)}, should be {', '.join(names[name])}"
                self.problems.append(f"{path or 'entry'}: {is_named}")
        return Record(tuple(sorted(types, key=lambda item: item[0]))), _record_reader(readers)

    def _nullable(self, avro: Avro, mark: str | None, path: str) -> tuple[Type, Restore]:
        """Read a position: `["null", T]`."""
        if not isinstance(avro, list) or len(avro) != 2 or avro[0] != "null":  # noqa: PLR2004
            self.problems.append(f"{path}: not a union of null and one type")
            avro = next((one for one in avro if one != "null"), "string") if isinstance(avro, list) else avro
            avro = ["null", avro]
        return self._type(avro[1], mark, path)

    def _type(self, avro: Avro, mark: str | None, path: str) -> tuple[Type, Restore]:
        kind, logical = (avro["type"], avro.get("logicalType")) if isinstance(avro, dict) else (avro, None)
        mark = mark or (avro.get(TYPE_PROPERTY) if isinstance(avro, dict) else None)
        if kind == "record" and mark is None:
            return self._record(avro["fields"], path)
        if kind == "array" and mark is None:
            items, restore = self._nullable(avro["items"], None, f"{path}[]")
            return Array(items), lambda values: [None if value is None else restore(value) for value in values]
        if kind == "map" and mark == "empty-object":
            return Record(()), _map_reader(_same)
        if kind == "map" and mark is None:
            values, restore = self._nullable(avro["values"], None, f"{path}{{}}")
            return Map(values), _map_reader(restore)
        scalar = _SCALARS.get((kind, mark, logical)) if isinstance(kind, str) else None
        if scalar is None:
            told = f"{kind!r} with mark {mark!r}" + (f" and logical type {logical!r}" if logical else "")
            self.problems.append(f"{path}: {told} is no published type")
            return f"{kind}?", _same
        return scalar, self._restore_json if scalar == "json" else _RESTORE.get(scalar, _same)

    def _restore_json(self, text: str) -> object:
        try:
            return canonical(self._parse(text))
        except (json.JSONDecodeError, RecursionError) as error:
            raise RestoreError("a column marked json does not hold JSON") from error


def _record_reader(readers: list[tuple[str, str, Restore]]) -> Restore:
    def restore(row: dict[str, Any]) -> object:
        found = {}
        for avro_name, name, restore_value in readers:
            value = row[avro_name]
            if value is not None:
                value = restore_value(value)
                if value is not None:
                    found[name] = value
        return found

    return restore


def _map_reader(restore_value: Restore) -> Restore:
    def restore(values: dict[str, Any]) -> object:
        found = {key: restore_value(value) for key, value in values.items() if value is not None}
        return {key: value for key, value in found.items() if value is not None}

    return restore


def _same(value: object) -> object:
    return value


def _refuse(_value: object) -> object:
    raise RestoreError("a column marked null holds a value")


def _instant(micros: int) -> object:
    try:
        moment = _EPOCH + timedelta(microseconds=micros)
    except OverflowError as error:
        raise RestoreError("a timestamp is of no year from 1 to 9999") from error
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _day(days: int) -> object:
    try:
        return str(date.fromordinal(_EPOCH.toordinal() + days))
    except (OverflowError, ValueError) as error:
        raise RestoreError("a date is of no year from 1 to 9999") from error


_RESTORE: dict[str, Restore] = {
    "double": canonical,
    "null": _refuse,
    "bytes": lambda data: base64.b64encode(data).decode(),
    "timestamp": _instant,
    "date": _day,
}


def _original_name(field: Avro) -> str:
    name: str = field.get(NAME_PROPERTY, field["name"])
    return name


def without_logical_types(avro: Avro) -> Avro:
    """Return a schema by which fastavro reads numbers as they stand there."""
    if isinstance(avro, dict):
        return {
            key: value if key == "default" else without_logical_types(value)
            for key, value in avro.items()
            if key != "logicalType"
        }
    return [without_logical_types(item) for item in avro] if isinstance(avro, list) else avro


def _plain(avro: Avro) -> Avro:
    """Reduce a type to the parts that count: records to lists of fields, without their names."""
    if isinstance(avro, list):
        return [_plain(item) for item in avro]
    if isinstance(avro, dict) and avro.get("type") == "record":
        return [(field["name"], _plain(field["type"])) for field in avro["fields"]]
    if isinstance(avro, dict):
        kept = {key: avro[key] for key in ("type", "logicalType") if key in avro}
        return kept if len(kept) > 1 else avro["type"]
    return avro


class ExactSchema(NamedTuple):
    """The schema of one reference; `problems` say why an object with this header may not hold it."""

    type: Type
    paths: frozenset[tuple[str, ...]]
    problems: tuple[str, ...]


class HeaderSchema:
    """The schema in an object's header, by which its rows are decoded and restored; remembers the exact ones in it."""

    def __init__(self, text: str, parse: Parse) -> None:
        self.fingerprint = hashlib.sha256(text.encode()).hexdigest()
        self.published = PublishedSchema(text, parse)
        self._text = text
        self._parse = parse
        self._exact = lru_cache(_EXACT_MAX)(self._project)

    def exact(self, projection: Any) -> ExactSchema:
        """Return the exact schema that a projection makes of this one.

        Raises:
            ValueError: it is no projection of it.
        """
        return self._exact(msgspec.json.encode(projection))

    def _project(self, projection: bytes) -> ExactSchema:
        own = self.published
        if projection != b"null":
            text = json.dumps(project(json.loads(self._text), json.loads(projection)))
            own = PublishedSchema(text, self._parse, keeps_names=True)
        problems = [problem for problem in own.problems if problem not in self.published.problems]
        problems += [f"{path}: two fields of this original name" for path in own.beside]
        if not is_covered_by(own.type, self.published.type):
            problems.append("the pack's schema changes a type of the reference's")
        return ExactSchema(own.type, frozenset(paths_of(own.type)), tuple(problems))


def names_by_original(originals: Iterable[str], *, reserved: Iterable[str] = ()) -> dict[str, list[str]]:
    """Return the Avro names of the fields of each original, in the order in which they stand in their record.

    A leading digit gets `_`, a character that Avro forbids becomes `_x<HEX>`. If names are alike but for case, the
    first original in code-point order keeps its own name; each other gets the first of `_2`, `_3`, ... that no field
    has or wants. No field gets one that is reserved, in any case.
    """
    wanted = [(original, _legal(original)) for original in sorted(originals)]
    wishes = {name.lower() for _, name in wanted}
    taken = set(reserved)
    names: dict[str, list[str]] = {}
    for original, wish in wanted:
        name, number = wish, 1
        while name.lower() in taken or (number > 1 and name.lower() in wishes):
            number += 1
            name = f"{wish}_{number}"
        taken.add(name.lower())
        names.setdefault(original, []).append(name)
    return names


def _legal(original: str) -> str:
    name = "".join(char if char in _ALLOWED else f"_x{ord(char):X}" for char in original)
    return f"_{name}" if not name or name[0] in _DIGITS else name
