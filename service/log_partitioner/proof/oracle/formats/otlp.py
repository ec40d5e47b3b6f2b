"""`otlp`, as "OpenTelemetry Protocol" 1.9 says of Protobuf and of JSON; see `protobuf`."""

from __future__ import annotations

import binascii
import json
from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Any

from log_partitioner.formats.dead_letter import Reason
from log_partitioner.formats.values import Bytes, DeclaredMap
from log_partitioner.proof.oracle.format import DeadError, Format
from log_partitioner.proof.oracle.formats.protobuf import ProtobufMessages
from log_partitioner.proof.oracle.json_text import holds_lone_surrogates, parse_keeping, parse_rounding

if TYPE_CHECKING:
    from log_partitioner.config.settings import InputSettings

_LISTS = ("resource_logs", "scope_logs", "log_records")
_DIGITS_MAX = 20
_DOUBLES = 2**1023
_IDS = ("trace_id", "span_id")


def otlp(settings: InputSettings) -> Format:
    """Return the rules of `otlp`."""
    messages, texts = _Logs(settings, None), _Texts(settings)

    def parse(payload: bytes) -> object:
        data = texts.value_of(payload) if payload.lstrip(b" \t\r\n").startswith(b"{") else messages.value_of(payload)
        _fill(data, _LISTS)
        return data

    return Format(parse=parse, entries_path="[].".join(_LISTS) + "[]")


def _fill(node: Any, levels: tuple[str, ...]) -> None:
    if levels:
        for one in node.setdefault(levels[0], []):
            _fill(one, levels[1:])


class _Logs(ProtobufMessages):
    def value_of(self, payload: bytes) -> Any:
        from opentelemetry.proto.logs.v1.logs_pb2 import LogsData  # noqa: PLC0415 - an optional package

        return self.read(LogsData, payload)

    def field(self, field: Any, value: Any, depth: int) -> Any:
        if field.name in _IDS:
            return value.hex()
        if field.name == "severity_number":
            return value
        if field.name == "attributes" and field.containing_type.name != "EntityRef":
            return self._pairs(value, depth)
        return super().field(field, value, depth)

    def message(self, message: Any, depth: int) -> Any:
        return self._any(message, depth) if message.DESCRIPTOR.name == "AnyValue" else super().message(message, depth)

    def _any(self, message: Any, depth: int) -> Any:
        kind = message.WhichOneof("value")
        if kind is None:
            return None
        value = getattr(message, kind)
        if kind == "kvlist_value":
            return self._pairs(value.values, depth)
        if kind == "array_value":
            self.go_down(depth)
            return [self._any(one, depth + 1) for one in value.values]
        return self.one(message.DESCRIPTOR.fields_by_name[kind], value, depth)

    def _pairs(self, pairs: Any, depth: int) -> Any:
        self.go_down(depth)
        return _map_of([(pair.key, self._any(pair.value, depth + 1)) for pair in pairs])


_PAIRS, _ANY, _WHOLE, _ID, _TEXT = range(5)
_RECORD: dict[str, Any] = {
    "timeUnixNano": _WHOLE, "observedTimeUnixNano": _WHOLE, "severityNumber": _TEXT, "severityText": _TEXT,
    "body": _ANY, "attributes": _PAIRS, "droppedAttributesCount": _TEXT, "flags": _TEXT, "traceId": _ID,
    "spanId": _ID, "eventName": _TEXT,
}  # fmt: skip
_ENTITY: dict[str, Any] = {"schemaUrl": _TEXT, "type": _TEXT, "idKeys": [_TEXT], "descriptionKeys": [_TEXT]}
_RESOURCE: dict[str, Any] = {"attributes": _PAIRS, "droppedAttributesCount": _TEXT, "entityRefs": [_ENTITY]}
_SCOPE: dict[str, Any] = {"name": _TEXT, "version": _TEXT, "attributes": _PAIRS, "droppedAttributesCount": _TEXT}
_SCOPE_LOGS: dict[str, Any] = {"scope": _SCOPE, "logRecords": [_RECORD], "schemaUrl": _TEXT}
_RESOURCE_LOGS: dict[str, Any] = {"resource": _RESOURCE, "scopeLogs": [_SCOPE_LOGS], "schemaUrl": _TEXT}
_DATA: dict[str, Any] = {"resourceLogs": [_RESOURCE_LOGS]}


class _Texts:
    def __init__(self, settings: InputSettings) -> None:
        self._parse = parse_rounding if settings.inexact_numbers == "round" else parse_keeping
        self._depth_max = settings.json_depth_max

    def value_of(self, payload: bytes) -> Any:
        """Read a request."""
        try:
            text = payload.decode()
            value = self._parse(text)
        except UnicodeDecodeError as error:
            raise DeadError(Reason.INVALID_UNICODE, Reason.MALFORMED) from error
        except json.JSONDecodeError as error:
            raise DeadError(Reason.MALFORMED) from error
        except RecursionError as error:
            raise DeadError(Reason.TOO_DEEP) from error
        if holds_lone_surrogates(value):
            raise DeadError(Reason.INVALID_UNICODE, Reason.MALFORMED, Reason.TOO_DEEP)
        return self._read(value, _DATA, 1)

    def _read(self, value: Any, form: Any, depth: int) -> Any:
        if isinstance(form, dict):
            self._require(value, dict, depth)
            made: dict[str, Any] = {}
            for key, member in value.items():
                name, found = self._member(key, member, form, depth)
                if name in made:
                    raise DeadError(Reason.MALFORMED)
                if _stays(key, found, form):
                    made[name] = found
            return made
        if isinstance(form, list):
            self._require(value, list, depth)
            return [self._read(one, form[0], depth + 1) for one in value]
        if form == _PAIRS:
            return self._pairs(value, depth)
        if form == _ANY:
            return self._any(value, depth)
        if not isinstance(value, str) or form == _TEXT:
            return value
        return value.lower() if form == _ID else _whole(value)

    def _member(self, key: str, member: Any, form: dict[str, Any], depth: int) -> tuple[str, Any]:
        found = [name for name in form if key in (name, _snake(name))]
        if not found:
            return key, member
        return _snake(found[0]), None if member is None else self._read(member, form[found[0]], depth + 1)

    def _any(self, value: Any, depth: int) -> Any:
        kinds = list(value) if isinstance(value, dict) else []
        if value == {}:
            return None
        if len(kinds) != 1:
            return value
        inner = value[kinds[0]]
        match kinds[0]:
            case "stringValue" | "boolValue":
                return inner
            case "intValue":
                return _whole(inner) if isinstance(inner, str) else inner
            case "doubleValue":
                is_small = isinstance(inner, int) and not isinstance(inner, bool) and -_DOUBLES < inner < _DOUBLES
                return float(inner) if is_small else inner
            case "bytesValue":
                return _bytes(inner)
            case "arrayValue" | "kvlistValue" as kind:
                values = inner.get("values", []) if isinstance(inner, dict) else None
                if not isinstance(values, list) or set(inner) - {"values"}:
                    return value
                return self._pairs(values, depth) if kind == "kvlistValue" else self._elements(values, depth)
        return value

    def _elements(self, values: list[Any], depth: int) -> list[Any]:
        self._require(values, list, depth)
        return [self._any(one, depth + 1) for one in values]

    def _pairs(self, pairs: Any, depth: int) -> Any:
        self._require(pairs, list, depth)
        found = [pair for pair in pairs if isinstance(pair, dict) and isinstance(pair.get("key"), str)]
        if len(found) < len(pairs) or any(set(pair) - {"key", "value"} for pair in found):
            return pairs
        return _map_of([(pair["key"], self._any(pair.get("value", {}), depth + 1)) for pair in found])

    def _require(self, value: Any, kind: type, depth: int) -> None:
        if depth > self._depth_max:
            raise DeadError(Reason.TOO_DEEP)
        if not isinstance(value, kind):
            raise DeadError(Reason.MALFORMED)


def _stays(key: str, found: Any, form: dict[str, Any]) -> bool:
    kinds = [kind for name, kind in form.items() if key in (name, _snake(name))]
    return not kinds or bool(found) or kinds[0] == _ANY or isinstance(kinds[0], dict)


def _map_of(pairs: list[tuple[str, Any]]) -> Any:
    keys = {key for key, _ in pairs}
    return DeclaredMap(pairs) if len(keys) == len(pairs) else [{"key": key, "value": value} for key, value in pairs]


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)


def _whole(text: str) -> int | str:
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS_MAX else text


def _bytes(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return Bytes(b64encode(b64decode(value, validate=True)).decode())
    except (binascii.Error, ValueError):
        return value
