"""A message -> an entry: closures, one a type, that walk what the library has parsed.

Values count towards the bytes of a record, so that a few bytes cannot become more JSON than that.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.unknown_fields import UnknownFieldSet

from log_partitioner.formats.dead_letter import Reason
from log_partitioner.formats.values import Bytes, DeclaredMap, number_or_text
from log_partitioner.input.json_text import UndecodableError
from log_partitioner.protoc import WRAPPED

UNKNOWN = "_unknown"
_VALUE_BYTES = 4  # of JSON, for a value with what parts it from the next
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_S, _LAST_S = -62_135_596_800, 253_402_300_799  # of the years 1 to 9999
_DURATION_S_MAX = 315_576_000_000
_NANOS = 1_000_000_000
_FLOATS = (FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_DOUBLE)

Convert = Callable[[Any, int], Any]
"""Makes the value of a row; if it is an object or a list, it stands at that depth."""


class _Fields(dict[FieldDescriptor, tuple[str, "Convert | None"]]):
    """Names and converters of fields, made as they are met: a type may hold itself, and has extensions elsewhere."""

    def __init__(self, make: Callable[[FieldDescriptor], tuple[str, Convert | None]]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, field: FieldDescriptor) -> tuple[str, Convert | None]:
        self[field] = made = self._make(field)
        return made


class MessageReader:
    """Reads messages of one type."""

    def __init__(self, descriptor: Descriptor, depth_max: int, size_max: int, *, knows_types: bool = True) -> None:
        self._parse = GetMessageClass(descriptor).FromString
        self._depth_max, self._size_max = depth_max, size_max
        self._room = 0
        self._texts = _TEXTS if knows_types else {}
        self._made = self.special() if knows_types else {}
        self._convert = self._message_of(descriptor)

    def special(self) -> dict[str, Convert | None]:
        """Return converters by the full names of messages, enums and fields, in place of those for any."""
        known: dict[str, Convert | None] = {"Struct": self._struct, "ListValue": self._list_value, "Value": self._value}
        for kind in WRAPPED:
            known[f"{kind}Value"] = _wrapped
        return {f"google.protobuf.{name}": convert for name, convert in known.items()}

    def read(self, payload: bytes) -> Any:
        """Read a message to its end.

        Raises:
            UndecodableError: it is none, or more than a record may be.
        """
        try:
            message = self._parse(payload)
        except DecodeError as error:
            raise UndecodableError(Reason.MALFORMED, f"it is no message of its schema: {error}") from error
        self._room = self._size_max
        assert self._convert is not None, "a message is no value"
        return self._convert(message, 1)

    def make_room(self, size: int) -> None:
        """Count values of so many bytes of JSON."""
        self._room -= size
        if self._room < 0:
            raise UndecodableError(Reason.RECORD_TOO_LARGE, "as JSON it is larger than input.record_bytes_max")

    def go_down(self, depth: int) -> None:
        """Refuse an object or a list that stands too deep."""
        if depth > self._depth_max:
            raise UndecodableError(Reason.TOO_DEEP, f"nested deeper than {self._depth_max}")

    def _message_of(self, descriptor: Descriptor) -> Convert | None:
        name = descriptor.full_name
        if name not in self._made:
            convert = self._message(descriptor)
            self._made[name] = _text_or(self._texts[name], convert) if name in self._texts else convert
        return self._made[name]

    def _message(self, descriptor: Descriptor) -> Convert:
        fields = _Fields(self._field)
        size = _VALUE_BYTES + max((len(field.name) for field in descriptor.fields), default=0)

        def convert(message: Any, depth: int) -> dict[str, Any]:
            self.go_down(depth)
            made: dict[str, Any] = {}
            present = message.ListFields()
            self.make_room(size * len(present))
            for field, value in present:
                name, inner = fields[field]
                made[name] = value if inner is None else inner(value, depth + 1)
            if unknown := UnknownFieldSet(message):
                name = UNKNOWN
                while name in made:
                    name = f"_{name}"
                made[name] = self._unknown(unknown, depth + 1)
            return made

        return convert

    def _field(self, field: FieldDescriptor) -> tuple[str, Convert | None]:
        name = f"[{field.full_name}]" if field.is_extension else field.name
        if field.full_name in self._made:
            return name, self._made[field.full_name]
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            return name, self._map(field.message_type)
        one = self.value_of(field)
        return name, self._list(one) if field.is_repeated else one

    def value_of(self, field: FieldDescriptor) -> Convert | None:
        """Return the converter of one value of a field; None: it is as it is."""
        if field.message_type is not None:
            return self._message_of(field.message_type)
        if field.enum_type is not None:
            if field.enum_type.full_name in self._made:
                return self._made[field.enum_type.full_name]
            return self._enum({value.number: value.name for value in reversed(field.enum_type.values)})
        if field.type == FieldDescriptor.TYPE_BYTES:
            return _bytes
        if field.type == FieldDescriptor.TYPE_STRING and _may_be_no_text(field):
            return _unchecked_text
        return _floating if field.type in _FLOATS else None

    def _enum(self, names: dict[int, str]) -> Convert:
        def convert(number: int, _depth: int) -> int | str:
            name = names.get(number)
            self.make_room(0 if name is None else len(name))
            return number if name is None else name

        return convert

    def _list(self, one: Convert | None) -> Convert:
        def convert(values: Any, depth: int) -> list[Any]:
            self.go_down(depth)
            self.make_room(_VALUE_BYTES * len(values))
            return [*values] if one is None else [one(value, depth + 1) for value in values]

        return convert

    def _map(self, entry: Descriptor) -> Convert:
        one = self.value_of(entry.fields_by_name["value"])

        def convert(values: Any, depth: int) -> DeclaredMap:
            self.go_down(depth)
            self.make_room(_VALUE_BYTES * len(values))
            found = sorted((_key(key), key) for key in values)  # the library has them in any order
            if one is None:
                return DeclaredMap({name: values[key] for name, key in found})
            return DeclaredMap({name: one(values[key], depth + 1) for name, key in found})

        return convert

    def _unknown(self, fields: Any, depth: int) -> list[Any]:
        """Keep fields that the schema lacks, as they stand in the message."""
        self.go_down(depth + 1)
        self.make_room(2 * _VALUE_BYTES * len(fields))
        made = []
        for one in fields:
            value = Bytes.of(one.data) if isinstance(one.data, bytes) else one.data
            nested = self._unknown(value, depth + 2) if isinstance(value, UnknownFieldSet) else value
            made.append({"field": one.field_number, "wire_type": one.wire_type, "value": nested})
        return made

    # JSON that stands in a message.

    def _struct(self, message: Any, depth: int) -> dict[str, Any]:
        self.go_down(depth)
        self.make_room(_VALUE_BYTES * len(message.fields))
        return {key: self._value(message.fields[key], depth + 1) for key in sorted(message.fields)}

    def _list_value(self, message: Any, depth: int) -> list[Any]:
        self.go_down(depth)
        self.make_room(_VALUE_BYTES * len(message.values))
        return [self._value(value, depth + 1) for value in message.values]

    def _value(self, message: Any, depth: int) -> Any:
        kind = message.WhichOneof("kind")
        if kind in (None, "null_value"):
            return None
        value = getattr(message, kind)
        inner = {"struct_value": self._struct, "list_value": self._list_value, "number_value": _floating}.get(kind)
        return value if inner is None else inner(value, depth)


def _bytes(data: bytes, _depth: int) -> Bytes:
    return Bytes.of(data)


def _floating(number: float, _depth: int) -> float | str:
    return number_or_text(number)


def _wrapped(message: Any, _depth: int) -> Any:
    value = message.value
    if isinstance(value, bytes):
        return Bytes.of(value)
    return number_or_text(value) if isinstance(value, float) else value


def _text_or(text_of: Callable[[Any], str | None], convert: Convert) -> Convert:
    def one(message: Any, depth: int) -> Any:
        text = text_of(message)
        return convert(message, depth) if text is None or UnknownFieldSet(message) else text

    return one


def _timestamp(message: Any) -> str | None:
    """Write RFC 3339 with as many digits as there are; None out of range."""
    if not (_FIRST_S <= message.seconds <= _LAST_S and 0 <= message.nanos < _NANOS):
        return None
    return f"{(_EPOCH + timedelta(seconds=message.seconds)).isoformat()[:19]}{_fraction(message.nanos)}Z"


def _duration(message: Any) -> str | None:
    """Write seconds as `-1.5s`; None out of range."""
    seconds, nanos = message.seconds, message.nanos
    is_of_one_sign = seconds * nanos >= 0
    if not (abs(seconds) <= _DURATION_S_MAX and abs(nanos) < _NANOS and is_of_one_sign):
        return None
    return f"{'-' if seconds < 0 or nanos < 0 else ''}{abs(seconds)}{_fraction(abs(nanos))}s"


_TEXTS = {"google.protobuf.Timestamp": _timestamp, "google.protobuf.Duration": _duration}


def _fraction(nanos: int) -> str:
    digits = f"{nanos:09}"
    while digits.endswith("000"):
        digits = digits[:-3]
    return f".{digits}" if digits else ""


def _key(key: Any) -> str:
    if type(key) is bytes:
        raise UndecodableError(Reason.INVALID_UNICODE, "a key is no UTF-8")
    return key if type(key) is str else str(key).lower()  # a number, or a boolean


def _may_be_no_text(field: FieldDescriptor) -> bool:
    assert field.containing_type is not None, "a field is of a message"
    return FileDescriptorProto.FromString(field.containing_type.file.serialized_pb).syntax != "proto3"


def _unchecked_text(value: str | bytes, _depth: int) -> str:
    """Write a string that protobuf has not checked: bytes, if it is not UTF-8."""
    return Bytes.of(value) if isinstance(value, bytes) else value
