"""`protobuf`: the library parses, and a walk through the descriptors says what a row has (docs/INPUTS.md)."""

from __future__ import annotations

import math
from base64 import b64encode
from typing import TYPE_CHECKING, Any

from log_partitioner.formats.dead_letter import Reason
from log_partitioner.formats.values import Bytes, DeclaredMap
from log_partitioner.proof.oracle.format import DeadError, Format
from log_partitioner.proof.oracle.formats.avro import Payload, day_of, is_day
from log_partitioner.protoc import WRAPPED, compile_schema

if TYPE_CHECKING:
    from log_partitioner.config.settings import InputSettings
    from log_partitioner.formats.schema import Schema

_VALUE, _NESTED_MAX, _NANOS, _DAY_S = 4, 100, 10**9, 86_400
_LAST_DURATION_S = 315_576_000_000
_WRAPPED = {f"google.protobuf.{kind}Value" for kind in WRAPPED}


def protobuf(settings: InputSettings) -> Format:
    """Return the rules of `protobuf`."""
    return Format(parse_by=lambda schema: ProtobufMessages(settings, schema).value_of)


class ProtobufMessages:
    """ProtobufMessages of one schema, as their rows must be; `special` may take a field or a message over."""

    def __init__(self, settings: InputSettings, schema: Schema | None) -> None:
        from google.protobuf import message, message_factory, unknown_fields  # noqa: PLC0415 - an optional package

        self._settings = settings
        self._schema = None if schema is None else compile_schema(schema)
        self._knows_types = self._schema is None or self._schema.knows_types
        self._class_of, self._error = message_factory.GetMessageClass, message.DecodeError
        self._unknown_of: Any = unknown_fields.UnknownFieldSet
        self._room = 0

    def value_of(self, payload: bytes) -> object:
        """Read a payload to its end."""
        assert self._schema is not None
        indexes: list[int] = []
        if self._settings.framing != "none":
            data = Payload(payload, room=0)  # its numbers are those of Avro
            count = data.number()
            if count not in range(_NESTED_MAX + 1):
                raise DeadError(Reason.MALFORMED)
            indexes = [data.number() for _ in range(count)]
            payload = bytes(data.rest)
        if any(index < 0 for index in indexes):
            raise DeadError(Reason.MALFORMED)
        try:
            kind = self._schema.message(name=self._settings.schema_message, indexes=tuple(indexes) or (0,))
        except ValueError as error:
            raise DeadError(Reason.MALFORMED) from error
        return self.read(self._class_of(kind), payload)

    def read(self, kind: Any, payload: bytes) -> Any:
        """Read a message of a class."""
        self._room = self._settings.record_bytes_max
        try:
            return self.message(kind.FromString(payload), 1)
        except self._error as error:
            raise DeadError(Reason.MALFORMED) from error

    def message(self, message: Any, depth: int) -> Any:
        """Return the value of a message that stands at a depth."""
        kind = message.DESCRIPTOR
        unknown = [*self._unknown_of(message)]
        if self._knows_types:
            if kind.full_name in _WRAPPED:
                return self.one(kind.fields_by_name["value"], message.value, depth)
            if kind.full_name == "google.protobuf.Struct":
                return dict(self.items(message.fields, depth))
            if kind.full_name == "google.protobuf.ListValue":
                return self.elements(kind.fields_by_name["values"], message.values, depth)
            if kind.full_name == "google.protobuf.Value":
                return self.free(message, depth)
            text = _text_of(kind.full_name, message)
            if text is not None and not unknown:
                return text
        self.go_down(depth)
        present = [field for field, _ in message.ListFields()]
        longest = max([len(field.name) for field in kind.fields], default=0)
        self.use((_VALUE + longest) * len(present))
        made = {_name(field): self.field(field, _get(message, field), depth + 1) for field in present}
        name = next(name for name in ("_" * count + "unknown" for count in range(1, len(made) + 2)) if name not in made)
        return made | {name: self.strangers(unknown, depth + 1)} if unknown else made

    def field(self, field: Any, value: Any, depth: int) -> Any:
        """Return the value of a field that is there."""
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            return DeclaredMap(self.items(value, depth, field.message_type.fields_by_name["value"]))
        return self.elements(field, value, depth) if field.is_repeated else self.one(field, value, depth)

    def items(self, members: Any, depth: int, field: Any = None) -> list[tuple[str, Any]]:
        """Return the members of a map, of JSON without a field."""
        self.go_down(depth)
        self.use(_VALUE * len(members))
        if any(isinstance(key, bytes) for key in members):
            raise DeadError(Reason.INVALID_UNICODE)
        texts = {{True: "true", False: "false"}[key] if isinstance(key, bool) else str(key): key for key in members}
        read = self.free if field is None else lambda value, depth: self.one(field, value, depth)
        return [(text, read(members[texts[text]], depth + 1)) for text in sorted(texts)]

    def elements(self, field: Any, values: Any, depth: int) -> list[Any]:
        """Return the elements of a list."""
        self.go_down(depth)
        self.use(_VALUE * len(values))
        return [self.one(field, value, depth + 1) for value in values]

    def one(self, field: Any, value: Any, depth: int) -> Any:
        """Return one value of a field."""
        if field.message_type is not None:
            return self.message(value, depth)
        if field.enum_type is not None:
            names = [one.name for one in field.enum_type.values if one.number == value]
            self.use(len(names[0]) if names else 0)
            return names[0] if names else value
        if isinstance(value, bytes):
            return Bytes(b64encode(value).decode())
        if isinstance(value, float) and not math.isfinite(value):
            return str(value).replace("nan", "NaN").replace("inf", "Infinity")
        return value

    def free(self, value: Any, depth: int) -> Any:
        """Read a Value: JSON within a message."""
        kind = value.WhichOneof("kind")
        if kind is None or kind == "null_value":
            return None
        return self.one(value.DESCRIPTOR.fields_by_name[kind], getattr(value, kind), depth)

    def strangers(self, fields: list[Any], depth: int) -> list[Any]:
        """Return fields that the schema lacks."""
        self.go_down(depth + 1)
        self.use(2 * _VALUE * len(fields))
        return [
            {"field": one.field_number, "wire_type": one.wire_type, "value": self._stranger(one.data, depth + 2)}
            for one in fields
        ]

    def _stranger(self, data: Any, depth: int) -> Any:
        if isinstance(data, int):
            return data
        return Bytes(b64encode(data).decode()) if isinstance(data, bytes) else self.strangers(list(data), depth)

    def go_down(self, depth: int) -> None:
        """Refuse what stands too deep."""
        if depth > self._settings.json_depth_max:
            raise DeadError(Reason.TOO_DEEP)

    def use(self, size: int) -> None:
        """Take room for values."""
        self._room -= size
        if self._room < 0:
            raise DeadError(Reason.RECORD_TOO_LARGE)


def _name(field: Any) -> str:
    return f"[{field.full_name}]" if field.is_extension else str(field.name)


def _get(message: Any, field: Any) -> Any:
    return message.Extensions[field] if field.is_extension else getattr(message, field.name)


def _text_of(kind: str, message: Any) -> str | None:
    if kind == "google.protobuf.Timestamp":
        days, in_day = divmod(message.seconds, _DAY_S)
        if not is_day(days) or not 0 <= message.nanos < _NANOS:
            return None
        return f"{day_of(days)}T{in_day // 3600:02}:{in_day // 60 % 60:02}:{in_day % 60:02}{_fraction(message.nanos)}Z"
    if kind == "google.protobuf.Duration":
        nanos = message.seconds * _NANOS + message.nanos
        is_mixed = message.seconds * message.nanos < 0
        if is_mixed or abs(message.nanos) >= _NANOS or abs(message.seconds) > _LAST_DURATION_S:
            return None
        return f"{'-' * (nanos < 0)}{abs(nanos) // _NANOS}{_fraction(abs(nanos) % _NANOS)}s"
    return None


def _fraction(nanos: int) -> str:
    millis, micros = nanos / 10**6, nanos / 10**3
    if nanos == 0:
        return ""
    if millis == nanos // 10**6:
        return f".{nanos // 10**6:03}"
    return f".{nanos // 10**3:06}" if micros == nanos // 10**3 else f".{nanos:09}"
