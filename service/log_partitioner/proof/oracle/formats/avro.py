"""`avro`, read as "Data Serialization and Deserialization" of Avro 1.12 says: by walking through the schema."""

from __future__ import annotations

import json
import math
import struct
import uuid
from base64 import b64encode
from datetime import UTC, date, datetime
from decimal import Decimal as Number
from typing import Any

from log_partitioner.config.settings import InputSettings
from log_partitioner.formats.dead_letter import Reason
from log_partitioner.formats.schema import Schema
from log_partitioner.formats.values import Bytes, Date, Decimal, DeclaredMap, Timestamp
from log_partitioner.proof.oracle.format import DeadError, Format
from log_partitioner.proof.oracle.json_text import holds_lone_surrogates

_DAY_US = 86_400_000_000
_EPOCH_DAY = datetime(1970, 1, 1, tzinfo=UTC).toordinal()
_DECIMAL_BYTES_MAX, _PLAIN_SCALE_MAX = 1700, 64
_BASE, _DIGITS_MAX = 128, 10  # of a number
_PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_WITH_FIELDS = ("record", "error")
_NAMED = (*_WITH_FIELDS, "enum", "fixed")
_UNITS_US = {"millis": 1000, "micros": 1}


def avro(settings: InputSettings) -> Format:
    """Return the rules of `avro`."""
    return Format(parse_by=lambda schema: _Schema(settings, schema).value_of)


class Payload:
    """A payload, of which more and more is read; `room` is what its values may still take as JSON."""

    def __init__(self, data: bytes, room: int) -> None:
        self.rest = memoryview(data)
        self._room = room

    def next(self, size: int) -> bytes:
        """Read so many bytes."""
        if size < 0 or size > len(self.rest):
            raise DeadError(Reason.MALFORMED)
        taken, self.rest = self.rest[:size], self.rest[size:]
        return bytes(taken)

    def number(self, size_bits: int = 64) -> int:
        """Read an integer of at most so many bits."""
        digits: list[int] = []
        while not digits or digits[-1] >= _BASE:
            if len(digits) == _DIGITS_MAX:
                raise DeadError(Reason.MALFORMED)
            digits += self.next(1)
        zigzag: int = sum(digit % _BASE * _BASE**place for place, digit in enumerate(digits))
        if zigzag >= 2**size_bits:
            raise DeadError(Reason.MALFORMED)
        return -(zigzag + 1) // 2 if zigzag % 2 else zigzag // 2

    def index(self, count: int) -> int:
        """Read a number below a count."""
        number = self.number()
        if number not in range(count):
            raise DeadError(Reason.MALFORMED)
        return number

    def truth(self) -> bool:
        """Read 0 or 1."""
        byte = self.next(1)
        if byte not in (b"\0", b"\1"):
            raise DeadError(Reason.MALFORMED)
        return byte == b"\1"

    def text(self) -> str:
        """Read a length, and so many bytes of UTF-8."""
        try:
            return self.next(self.number()).decode()
        except UnicodeDecodeError as error:
            raise DeadError(Reason.INVALID_UNICODE) from error

    def use(self, name: str = "", *, values: int = 1) -> None:
        """Take room for values of a name."""
        self._room -= 4 * values + len(name)
        if self._room < 0:
            raise DeadError(Reason.RECORD_TOO_LARGE)


class _Schema:
    def __init__(self, settings: InputSettings, schema: Schema) -> None:
        self._depth_max, self._room = settings.json_depth_max, settings.record_bytes_max
        self._defined: dict[str, Any] = {}
        *_, self._schema = [
            self._resolve(_parsed(text), "") for text in [*dict(schema.references).values(), schema.text]
        ]

    def value_of(self, payload: bytes) -> object:
        """Read a payload to its end."""
        data = Payload(payload, self._room)
        value = self._value(self._schema, data, 1)
        if len(data.rest):
            raise DeadError(Reason.MALFORMED)
        return value

    def _resolve(self, schema: Any, space: str) -> Any:
        """Write each type as a list (a union) or an object, definitions and uses of a name as the same object."""
        if isinstance(schema, list):
            branches = [self._resolve(branch, space) for branch in schema]
            if any(isinstance(branch, list) for branch in branches):
                raise ValueError(schema)
            return branches
        if isinstance(schema, str):
            if schema in _PRIMITIVES:
                return {"type": schema, "tag": schema}
            names = [f"{space}.{schema}", schema] if space and "." not in schema else [schema]
            known = [name for name in names if name in self._defined]
            if not known:
                raise ValueError(schema)
            return self._defined[known[0]]
        kind = schema["type"]
        if kind in ("array", "map"):
            part = "items" if kind == "array" else "values"
            return {"type": kind, "tag": kind, part: self._resolve(schema[part], space)}
        if kind not in _NAMED:
            inner = self._resolve(kind, space)
            return inner if isinstance(inner, list) or inner["type"] != kind else {**schema, "tag": kind}
        _require_parts(kind, schema)
        name, space = schema["name"], schema.get("namespace", space)
        tag = name if "." in name or not space else f"{space}.{name}"
        if tag in self._defined or tag in _PRIMITIVES:
            raise ValueError(tag)
        self._defined[tag] = resolved = {**schema, "tag": tag}
        if kind in _WITH_FIELDS:
            space = tag.rpartition(".")[0]
            resolved["fields"] = [(field["name"], self._resolve(field["type"], space)) for field in schema["fields"]]
        return resolved

    def _value(self, schema: Any, data: Payload, depth: int) -> Any:
        if isinstance(schema, list):
            return self._branch(schema, schema[data.index(len(schema))], data, depth)
        match schema["type"]:
            case "record" | "error":
                self._go_down(depth)
                for name, _ in schema["fields"]:
                    data.use(name)
                return {name: self._value(field, data, depth + 1) for name, field in schema["fields"]}
            case "array" | "map" as kind:
                return self._items(schema, data, depth, is_map=kind == "map")
            case "enum":
                symbol = schema["symbols"][data.index(len(schema["symbols"]))]
                data.use(symbol, values=0)
                return symbol
            case "null":
                return None
            case "boolean":
                return data.truth()
            case "int" | "long" as kind:
                return _of_number(schema.get("logicalType"), kind, data.number(32 if kind == "int" else 64))
            case "float" | "double" as kind:
                form = "<f" if kind == "float" else "<d"
                (number,) = struct.unpack(form, data.next(struct.calcsize(form)))
                return number if math.isfinite(number) else str(number).replace("nan", "NaN").replace("inf", "Infinity")
            case "string":
                return data.text()
            case "bytes":
                return _of_bytes(schema, data.next(data.number()))
        return _of_bytes(schema, data.next(schema["size"]))

    def _branch(self, branches: list[Any], branch: Any, data: Payload, depth: int) -> Any:
        if sum(one["type"] in _NAMED for one in branches) <= 1 or branch["type"] == "null":
            return self._value(branch, data, depth)
        self._go_down(depth)
        data.use(branch["tag"])
        return {branch["tag"]: self._value(branch, data, depth + 1)}

    def _items(self, schema: Any, data: Payload, depth: int, *, is_map: bool) -> Any:
        self._go_down(depth)
        items: Any = DeclaredMap() if is_map else []
        while (count := data.number()) != 0:
            if count < 0:
                data.number()
            left = abs(count)
            while left:
                left -= 1
                data.use()
                if is_map:
                    key = data.text()
                    items[key] = self._value(schema["values"], data, depth + 1)
                else:
                    items.append(self._value(schema["items"], data, depth + 1))
        return items

    def _go_down(self, depth: int) -> None:
        if depth > self._depth_max:
            raise DeadError(Reason.TOO_DEEP)


def _of_number(logical: str | None, kind: str, number: int) -> Any:
    if not isinstance(logical, str):
        return number
    if (kind, logical) == ("int", "date"):
        return Date(day_of(number)) if is_day(number) else number
    name, _, unit = logical.rpartition("-")
    if unit not in _UNITS_US or (name == "time" and kind != {"millis": "int", "micros": "long"}[unit]):
        return number
    days, in_day = divmod(number * _UNITS_US[unit], _DAY_US)
    seconds, fraction = divmod(in_day, 1_000_000)
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{fraction:06}"
    if name == "time":
        return number if days else clock
    if kind != "long" or not is_day(days) or name not in ("timestamp", "local-timestamp"):
        return number
    text = f"{day_of(days)}T{clock}"
    return Timestamp(f"{text}Z") if name == "timestamp" else text


def _parsed(text: str | bytes) -> Any:
    """Parse a schema; its names stand in rows, which are text."""
    parsed = json.loads(text)
    if holds_lone_surrogates(parsed):
        raise ValueError(text)
    return parsed


def _require_parts(kind: str, schema: dict[str, Any]) -> None:
    lists = [schema[part] for part in {"enum": ["symbols"], "fixed": []}.get(kind, ["fields"])]
    if not all(isinstance(one, list) for one in lists):
        raise TypeError(lists)
    fields = [field["name"] for field in schema["fields"]] if kind in _WITH_FIELDS else []
    names = [schema["name"], *fields, *(schema["symbols"] if kind == "enum" else [])]
    size = schema["size"] if kind == "fixed" else 0
    if not all(isinstance(name, str) for name in names) or len(set(fields)) < len(fields):
        raise ValueError(names)
    if not isinstance(size, int) or size < 0:
        raise ValueError(size)


def is_day(days: int) -> bool:
    """Return whether a day since 1970 is of the years 1 to 9999."""
    return date.min.toordinal() <= _EPOCH_DAY + days <= date.max.toordinal()


def day_of(days: int) -> str:
    """Write such a day."""
    return str(date.fromordinal(_EPOCH_DAY + days))


def _of_bytes(schema: Any, data: bytes) -> Any:
    logical, is_fixed = schema.get("logicalType"), schema["type"] == "fixed"
    if logical == "decimal" and _is_decimal(schema):
        if len(data) > _DECIMAL_BYTES_MAX:
            if is_fixed:
                return Bytes(b64encode(data).decode())
            raise DeadError(Reason.MALFORMED)
        number, scale = int.from_bytes(data, "big", signed=True), schema.get("scale", 0)
        if scale > _PLAIN_SCALE_MAX:
            return Decimal(f"{number}e-{scale}")
        return Decimal(f"{Number((number < 0, tuple(map(int, str(abs(number)))), -scale)):f}")
    if is_fixed and (logical, len(data)) == ("uuid", 16):
        return str(uuid.UUID(bytes=data))
    if is_fixed and (logical, len(data)) == ("duration", 12):
        months, days, millis = (int.from_bytes(data[at : at + 4], "little") for at in (0, 4, 8))
        return f"P{months}M{days}DT{millis // 1000}.{millis % 1000:03}S"
    return Bytes(b64encode(data).decode())


def _is_decimal(schema: Any) -> bool:
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    return isinstance(precision, int) and isinstance(scale, int) and 0 <= scale <= precision
