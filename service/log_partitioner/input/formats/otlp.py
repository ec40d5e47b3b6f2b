"""`otlp`: logs as OpenTelemetry's collectors write them, in Protobuf or JSON (docs/INPUTS.md).

Needs the optional group `formats`. Resource and scope are an envelope of their records.
"""

from __future__ import annotations

import re
from base64 import b64decode
from functools import cache
from typing import TYPE_CHECKING, Any

from log_partitioner.config.settings import InputSettings
from log_partitioner.formats.dead_letter import Reason
from log_partitioner.formats.values import Bytes, DeclaredMap
from log_partitioner.input.format import Format, FormatError
from log_partitioner.input.json_text import WHITE, JsonDecoder, UndecodableError

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor

ENTRIES_PATH = "resource_logs[].scope_logs[].log_records[]"
_BRACE = b"{"  # no message begins so
_LOGS, _COMMON = "opentelemetry.proto.logs.v1", "opentelemetry.proto.common.v1"
_ANY, _PAIR = f"{_COMMON}.AnyValue", f"{_COMMON}.KeyValue"
_ATTRIBUTES = (
    f"{_LOGS}.LogRecord.attributes",
    f"{_COMMON}.InstrumentationScope.attributes",
    "opentelemetry.proto.resource.v1.Resource.attributes",
)
_HEX = (f"{_LOGS}.LogRecord.trace_id", f"{_LOGS}.LogRecord.span_id")


def otlp(rules: InputSettings) -> Format:
    """Take a payload as a request of logs.

    Raises:
        FormatError: the optional group is not installed.
    """
    try:
        from opentelemetry.proto.common.v1.common_pb2 import AnyValue  # noqa: PLC0415 - an optional package
        from opentelemetry.proto.logs.v1.logs_pb2 import LogsData  # noqa: PLC0415

        from log_partitioner.input.formats.protobuf.messages import MessageReader  # noqa: PLC0415
    except ImportError as error:
        name = "opentelemetry-proto"
        raise FormatError(f"input.format otlp needs {name}: pip install 'log-partitioner[formats]'") from error

    class Reader(MessageReader):
        """Attributes are maps, values are as in JSON, ids are hexadecimal, severities numbers."""

        def special(self) -> dict[str, Any]:
            ids = dict.fromkeys(_HEX, lambda data, _depth: data.hex())
            pairs = dict.fromkeys(_ATTRIBUTES, self._pairs)
            lists = {
                "array_value": self._list_of,
                "kvlist_value": lambda found, depth: self._pairs(found.values, depth),
            }
            self._kinds = {
                field: lists[field.name] if field.name in lists else self.value_of(field)
                for field in AnyValue.DESCRIPTOR.fields
            }
            return {**super().special(), **ids, **pairs, f"{_LOGS}.SeverityNumber": None, _ANY: self._any}

        def _any(self, message: Any, depth: int) -> Any:
            for field, value in message.ListFields():  # one at most
                convert = self._kinds[field]
                return value if convert is None else convert(value, depth)
            return None

        def _list_of(self, array: Any, depth: int) -> list[Any]:
            self.go_down(depth)
            return [self._any(value, depth + 1) for value in array.values]

        def _pairs(self, pairs: Any, depth: int) -> Any:
            self.go_down(depth)
            return _as_map([(pair.key, self._any(pair.value, depth + 1)) for pair in pairs])

    binary = Reader(LogsData.DESCRIPTOR, rules.json_depth_max, rules.record_bytes_max)
    json = _JsonReader(rules, LogsData.DESCRIPTOR)

    def read(payload: bytes) -> Any:
        return _with_lists(json.read(payload) if payload.lstrip(WHITE)[:1] == _BRACE else binary.read(payload))

    return Format(read=read, entries_path=ENTRIES_PATH)


def _with_lists(data: dict[str, Any]) -> dict[str, Any]:
    """Say that there are no records if a request has none: a resource alone is no entry."""
    for of_resource in data.setdefault("resource_logs", []):
        for of_scope in of_resource.setdefault("scope_logs", []):
            of_scope.setdefault("log_records", [])
    return data


class _JsonReader:
    """Reads OTLP's JSON as what its Protobuf would give, and keeps members that the schema lacks."""

    def __init__(self, rules: InputSettings, descriptor: Descriptor) -> None:
        self._decode = JsonDecoder(keep_inexact_text=rules.inexact_numbers == "text").decode_again
        self._descriptor = descriptor
        self._depth_max = rules.json_depth_max

    def read(self, payload: bytes) -> dict[str, Any]:
        """Read a request.

        Raises:
            UndecodableError: it is no JSON, or not of the form of a request.
        """
        return self._object(self._decode(payload), self._descriptor, 1)

    def _object(self, value: Any, descriptor: Descriptor, depth: int) -> dict[str, Any]:
        self._require(value, dict, descriptor.name, depth)
        fields = _fields_of(descriptor)
        made: dict[str, Any] = {}
        for key, member in value.items():
            field = fields.get(key)
            name, found = (key, member) if field is None else (field.name, self._field(field, member, depth + 1))
            if name in made:
                raise UndecodableError(Reason.MALFORMED, f"{descriptor.name} has {name} twice")
            if field is None or found or (field.message_type is not None and not field.is_repeated):
                made[name] = found  # Protobuf has no zeros, and no empty lists
        return made

    def _field(self, field: FieldDescriptor, value: Any, depth: int) -> Any:
        if value is None:
            return None
        if field.message_type is None:
            if field.is_repeated:
                self._require(value, list, field.name, depth)
            if isinstance(value, str):
                return value.lower() if field.full_name in _HEX else _whole(value) if field.type in _LONGS else value
            return value
        if field.message_type.full_name == _ANY:
            return self._any(value, depth)
        if not field.is_repeated:
            return self._object(value, field.message_type, depth)
        if field.message_type.full_name == _PAIR:
            return self._pairs(value, depth)
        self._require(value, list, field.name, depth)
        return [self._object(one, field.message_type, depth + 1) for one in value]

    def _any(self, value: Any, depth: int) -> Any:
        """Read a value, an object whose key names its type."""
        if value == {}:
            return None
        if not isinstance(value, dict) or len(value) > 1:
            return value
        ((kind, inner),) = value.items()
        if kind in ("arrayValue", "kvlistValue"):
            elements = inner.get("values", []) if isinstance(inner, dict) and inner.keys() <= {"values"} else None
            if not isinstance(elements, list):
                return value
            return self._pairs(elements, depth) if kind == "kvlistValue" else self._elements(elements, depth)
        if kind == "bytesValue" and isinstance(inner, str):
            return _bytes(inner)
        if kind == "intValue" and isinstance(inner, str):
            return _whole(inner)
        if kind == "doubleValue" and type(inner) is int and abs(inner) < _DOUBLES:
            return float(inner)
        return inner if kind in _PLAIN else value

    def _elements(self, values: list[Any], depth: int) -> list[Any]:
        self._require(values, list, "values", depth)
        return [self._any(value, depth + 1) for value in values]

    def _pairs(self, pairs: Any, depth: int) -> Any:
        self._require(pairs, list, "attributes", depth)
        if not all(map(_is_pair, pairs)):
            return pairs
        return _as_map([(pair["key"], self._any(pair.get("value", {}), depth + 1)) for pair in pairs])

    def _require(self, value: Any, kind: type, name: str, depth: int) -> None:
        if depth > self._depth_max:
            raise UndecodableError(Reason.TOO_DEEP, f"nested deeper than {self._depth_max}")
        if not isinstance(value, kind):
            raise UndecodableError(Reason.MALFORMED, f"{name} is of type {type(value).__name__}")


@cache
def _fields_of(descriptor: Descriptor) -> dict[str, FieldDescriptor]:
    """Return fields by either name that JSON may have for them."""
    return {**descriptor.fields_by_name, **descriptor.fields_by_camelcase_name}


_PLAIN = ("stringValue", "boolValue", "intValue", "doubleValue", "bytesValue")
_DOUBLES = 1 << 1023
_LONGS = (3, 4, 6, 16, 18)  # types of a field that JSON has as text
_WHOLE = re.compile(r"-?[0-9]{1,20}")


def _is_pair(pair: Any) -> bool:
    return isinstance(pair, dict) and isinstance(pair.get("key"), str) and pair.keys() <= {"key", "value"}


def _as_map(pairs: list[tuple[str, Any]]) -> Any:
    """Make a map of pairs; they stay a list if a key comes twice, which OpenTelemetry forbids."""
    made = DeclaredMap(pairs)
    return made if len(made) == len(pairs) else [{"key": key, "value": value} for key, value in pairs]


def _whole(text: str) -> int | str:
    return int(text) if _WHOLE.fullmatch(text) else text


def _bytes(text: str) -> str:
    try:
        return Bytes.of(b64decode(text, validate=True))
    except ValueError:
        return text
