"""Turns a Kafka record into its log entries, or into the reasons why they are dead (DESIGN 3.1, 3.7).

Owns compression, envelopes and limits of the input; `formats` has the formats. If an entry has several faults, it may
name any of them.
"""

from __future__ import annotations

import json
import re
import zlib
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from log_partitioner.formats.dead_letter import Reason
from log_partitioner.formats.schema import FindSchema, Schema, SchemaRef
from log_partitioner.proof.oracle.format import NO_REASONS, DeadError, Reasons
from log_partitioner.proof.oracle.formats import FORMATS
from log_partitioner.proof.oracle.framing import FRAMINGS
from log_partitioner.proof.oracle.json_text import (
    Exact,
    Parse,
    depth_of,
    depth_of_text,
    holds_invalid_bytes,
    holds_lone_surrogates,
    may_hold_surrogates,
    parse_keeping,
    parse_rounding,
)
from log_partitioner.zstd import ZstdDecompressor, ZstdError

if TYPE_CHECKING:
    from collections.abc import Callable

    from log_partitioner.config.settings import InputSettings
    from log_partitioner.formats.model import Headers

JsonObject = dict[str, object]
GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"

_GZIP_WINDOW_BITS = 31
_SCHEMAS_MAX = 256
_WHITESPACE = " \t\r\n"
_TOKEN = re.compile(r'"(?:[^"\\]+|\\.)*("?)|[\[\]{},]', re.DOTALL)
_OF_TEXT = (Reason.MALFORMED, Reason.INVALID_UNICODE, Reason.TOO_DEEP)
_key_of = json.JSONDecoder().raw_decode


class DecodedEntry(NamedTuple):
    """An entry, the reasons why it is dead, and what stands around it; a dead one may have no value."""

    value: JsonObject | None
    reasons: Reasons
    envelope: JsonObject | None = None


class DecodedRecord(NamedTuple):
    """The entries of a record. `is_whole`: it could not be split and counts as one (dead) entry."""

    entries: list[DecodedEntry]
    is_whole: bool = False


class _Text(NamedTuple):
    """JSON text that is judged apart from what stands around it."""

    text: str


class _UnsplittableError(Exception):
    """The text does not tell where one element ends and the next begins."""


class Decoder:
    """Decodes records by the settings of the input."""

    def __init__(self, settings: InputSettings, find_schema: FindSchema | None = None) -> None:
        self._settings = settings
        self._find_schema = find_schema
        self._unframe = FRAMINGS[settings.framing]
        form = FORMATS[settings.format](settings)
        self._lines, self._value_of, self._parse_by = form.lines, form.parse, form.parse_by
        self._parse_named = lru_cache(_SCHEMAS_MAX)(self._find_parse)
        self._path = _read_path(settings.entries_path or form.entries_path or "")
        self.parse: Parse = parse_rounding if settings.inexact_numbers == "round" else parse_keeping

    def decode(self, value: bytes | None, headers: Headers = ()) -> DecodedRecord:
        """Take a record's value apart; never raises on input."""
        try:
            payload = self._decompressed(value or b"")
            decoded = self._decode_framed(payload, headers) if payload else DecodedRecord([])
        except DeadError as error:
            return _dead(error.reasons)
        is_long = len(decoded.entries) > self._settings.entries_per_record_max
        return _dead(frozenset({Reason.TOO_MANY_ENTRIES})) if is_long else decoded

    def _decompressed(self, value: bytes) -> bytes:
        bytes_max = self._settings.record_bytes_max
        try:
            return _decompress(value, bytes_max)
        except DeadError as error:
            if self._parse_by is not None and Reason.DECOMPRESSION in error.reasons and len(value) <= bytes_max:
                return value  # it only begins like a compressed one
            raise

    def _find_parse(self, ref: SchemaRef | None) -> Callable[[bytes], object]:
        assert self._parse_by is not None
        if self._settings.schema_content is not None:
            return self._parse_by(Schema(self._settings.schema_content))
        assert self._find_schema is not None, "nobody gives schemas"
        if ref is None:
            raise DeadError(Reason.MALFORMED)
        schema = self._find_schema(ref)
        if schema is None:
            raise DeadError(Reason.UNKNOWN_SCHEMA)
        try:
            return self._parse_by(schema)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise DeadError(Reason.MALFORMED) from error

    def _decode_framed(self, content: bytes, headers: Headers) -> DecodedRecord:
        ref, payload = self._unframe(content, headers, self._settings.record_bytes_max)
        parse = self._value_of if self._parse_by is None else self._parse_named(ref)
        if self._lines is not None:
            return DecodedRecord([self._entry_of_line(line) for line in self._lines(payload)])
        if parse is not None:
            return self._decode_value(parse(payload), may_be_deep=True)
        # Bytes that are not UTF-8 become lone surrogates, for which their entry is refused.
        return self._decode_json(payload.decode("utf-8", "surrogateescape"))

    def _entry_of_line(self, line: bytes) -> DecodedEntry:
        if self._value_of is None:
            return self._entry_of_text(line.decode("utf-8", "surrogateescape"))
        try:
            return self._entry(self._value_of(line), may_be_deep=True)
        except DeadError as error:
            return DecodedEntry(None, error.reasons)

    def _decode_json(self, text: str) -> DecodedRecord:
        if may_hold_surrogates(text):
            return self._decode_piecewise(text)
        try:
            value = self.parse(text)
        except (json.JSONDecodeError, RecursionError):
            return self._decode_piecewise(text)
        return self._decode_value(value, may_be_deep=self._may_be_deep(text))

    def _decode_value(self, value: object, *, may_be_deep: bool) -> DecodedRecord:
        if isinstance(value, list):
            return DecodedRecord([self._entry(one, may_be_deep=may_be_deep) for one in value])
        if not isinstance(value, dict):
            raise DeadError(Reason.NOT_AN_OBJECT)
        return DecodedRecord(self._finished(self._follow(value, self._path), may_be_deep=may_be_deep))

    def _decode_piecewise(self, text: str) -> DecodedRecord:
        """Decode element by element if the plain way refuses: a bad element costs its neighbours nothing."""
        try:
            if text.lstrip(_WHITESPACE).startswith("["):
                return DecodedRecord([self._entry_of_text(piece) for piece in _split(text, "[", "]")])
        except _UnsplittableError:
            pass  # judged as one text
        return DecodedRecord(self._finished(self._follow(_Text(text), self._path), may_be_deep=True))

    def _follow(self, node: object, path: list[str]) -> list[DecodedEntry]:
        """Return the entries to which a path leads from a value, or from a text that is judged piece by piece.

        Raises:
            DeadError: one is dead, and stands in no list.
        """
        members = self._members_at(node) if path else {}
        if not path or path[0].removesuffix("[]") not in members:
            entry = self._entry_of_text(node.text) if isinstance(node, _Text) else self._entry(node, may_be_deep=False)
            if entry.value is None:
                raise DeadError(*entry.reasons)
            return [entry]
        key, further = path[0].removesuffix("[]"), path[1:]
        inner = members.pop(key)
        around = self._around(members)
        if path[0].endswith("[]"):
            found = [entry for one in self._elements_at(inner) for entry in self._follow_safely(one, further)]
        else:
            if not (inner.text.startswith("{") if isinstance(inner, _Text) else isinstance(inner, dict)):
                raise DeadError(Reason.NOT_AN_OBJECT, *_OF_TEXT)
            found = self._follow(inner, further)
        return [one._replace(envelope=around | ({key: one.envelope} if one.envelope else {})) for one in found]

    def _follow_safely(self, node: object, path: list[str]) -> list[DecodedEntry]:
        try:
            return self._follow(node, path)
        except DeadError as error:
            return [DecodedEntry(None, error.reasons)]

    def _members_at(self, node: object) -> dict[str, Any]:
        if isinstance(node, _Text):
            try:
                return {key: _Text(text) for key, text in _members(node.text).items()}
            except _UnsplittableError:
                return {}  # judged as one text
        return dict(node) if isinstance(node, dict) else {}

    def _elements_at(self, node: object) -> list[Any]:
        if not isinstance(node, _Text):
            if not isinstance(node, list):
                raise DeadError(Reason.ENTRIES_NOT_A_LIST)
            return node
        if not node.text.startswith("["):
            raise DeadError(Reason.ENTRIES_NOT_A_LIST, *_OF_TEXT)
        try:
            return [_Text(piece) for piece in _split(node.text, "[", "]")]
        except _UnsplittableError as error:
            raise DeadError(*_OF_TEXT) from error

    def _around(self, members: dict[str, Any]) -> JsonObject:
        """Return the values that stand around entries; one that is bad makes the envelope bad."""
        texts = {key: node.text for key, node in members.items() if isinstance(node, _Text)}
        parsed = {key: self._entry_of_text(f"{{{json.dumps(key)}:{text}}}") for key, text in texts.items()}
        reasons = NO_REASONS.union(*(one.reasons for one in parsed.values())) - {Reason.TOO_DEEP}
        if reasons:
            raise DeadError(*reasons)
        return members | {key: one.value[key] for key, one in parsed.items() if one.value is not None}

    def _finished(self, entries: list[DecodedEntry], *, may_be_deep: bool) -> list[DecodedEntry]:
        """Put envelopes that are kept into their entries, and look how deep these are."""
        if self._settings.envelope == "keep":
            entries = [*map(_with_envelope, entries)]
            weight = sum(_weight(one.envelope) for one in entries if one.envelope and one.value is not None)
            if weight > self._settings.record_bytes_max:
                raise DeadError(Reason.RECORD_TOO_LARGE)
        if not may_be_deep:
            return entries
        return [
            one
            if one.value is None
            else one._replace(reasons=one.reasons | self._entry(one.value, may_be_deep=True).reasons)
            for one in entries
        ]

    def _entry_of_text(self, text: str) -> DecodedEntry:
        is_suspect, may_be_deep = may_hold_surrogates(text), self._may_be_deep(text)
        try:
            value = self.parse(text)
        except (json.JSONDecodeError, RecursionError):
            reasons = {Reason.MALFORMED} | ({Reason.INVALID_UNICODE} if is_suspect else set())
            if may_be_deep and depth_of_text(text) > self._settings.json_depth_max:
                reasons.add(Reason.TOO_DEEP)
            return DecodedEntry(None, frozenset(reasons))
        is_bad = is_suspect and (holds_invalid_bytes(text) or holds_lone_surrogates(value))
        entry = self._entry(value, may_be_deep=may_be_deep)
        return entry._replace(reasons=entry.reasons | {Reason.INVALID_UNICODE, Reason.MALFORMED}) if is_bad else entry

    def _entry(self, value: object, *, may_be_deep: bool) -> DecodedEntry:
        is_too_deep = may_be_deep and depth_of(value) > self._settings.json_depth_max
        reasons = frozenset({Reason.TOO_DEEP}) if is_too_deep else NO_REASONS
        if type(value) is dict:  # a map by its schema is none
            return DecodedEntry(value, reasons)
        return DecodedEntry(None, reasons | {Reason.NOT_AN_OBJECT})

    def _may_be_deep(self, text: str) -> bool:
        return text.count("{") + text.count("[") > self._settings.json_depth_max


def _with_envelope(entry: DecodedEntry) -> DecodedEntry:
    """Put what stands around an entry under `_envelope`, with as many more underscores as make it a new name."""
    if entry.value is None or not entry.envelope:
        return entry
    names = ("_" * count + "envelope" for count in range(1, len(entry.value) + 2))
    name = next(name for name in names if name not in entry.value)
    return entry._replace(value={**entry.value, name: entry.envelope})


def _read_path(path: str) -> list[str]:
    """Return the steps of a path as they are written, without the mark of a dot inside a key."""
    return [step.replace("\0", ".") for step in path.replace("\\.", "\0").split(".")] if path else []


def _weight(value: object) -> int:
    """Count bytes of texts, digits of integers, and 8 for each other value."""
    weight, left = 0, [value]
    while left:
        one = left.pop()
        if isinstance(one, dict):
            left += [*one.keys(), *one.values()]
        elif isinstance(one, Exact):
            weight += len(one.literal)
        elif isinstance(one, str):
            weight += len(one.encode("utf-8", "surrogatepass"))
        elif isinstance(one, list):
            left += one
        else:
            weight += len(str(one)) if isinstance(one, int) and not isinstance(one, bool) else 8
    return weight


def _dead(reasons: Reasons) -> DecodedRecord:
    return DecodedRecord([DecodedEntry(None, reasons)], is_whole=True)


def _decompress(value: bytes, bytes_max: int) -> bytes:
    """Undo the compression of a value, if its magic bytes say that it has one; all members of it."""
    magic = next((magic for magic in (GZIP_MAGIC, ZSTD_MAGIC) if value.startswith(magic)), None)
    parts, rest = ([], value) if magic else ([value], b"")
    size = len(value) - len(rest)
    while magic and rest and size <= bytes_max:
        if not rest.startswith(magic):
            if magic == GZIP_MAGIC and not rest.strip(b"\0"):
                break  # gzip files may be padded with zeros
            raise DeadError(Reason.DECOMPRESSION)
        member: Any = zlib.decompressobj(_GZIP_WINDOW_BITS) if magic == GZIP_MAGIC else ZstdDecompressor()
        try:
            parts.append(member.decompress(rest, bytes_max + 1 - size))
        except (zlib.error, ZstdError) as error:
            raise DeadError(Reason.DECOMPRESSION) from error
        size += len(parts[-1])
        if size <= bytes_max and not member.eof:
            raise DeadError(Reason.DECOMPRESSION)
        rest = member.unused_data
    if size > bytes_max:
        raise DeadError(Reason.RECORD_TOO_LARGE)
    return b"".join(parts)


def _members(text: str) -> dict[str, str]:
    """Split the text of an object into keys and the texts of their values.

    Raises:
        _UnsplittableError: as for `_split`, or a key cannot be read.
    """
    members = {}
    for piece in _split(text, "{", "}"):
        member = piece.strip(_WHITESPACE)
        if not member.startswith('"'):
            raise _UnsplittableError
        try:
            key, end = _key_of(member)
        except json.JSONDecodeError as error:
            raise _UnsplittableError from error
        rest = member[end:].lstrip(_WHITESPACE)
        if not rest.startswith(":"):
            raise _UnsplittableError
        members[key] = rest[1:].strip(_WHITESPACE)
    return members


def _split(text: str, opening: str, closing: str) -> list[str]:
    """Split the text of an array or object at its commas; its elements need not be valid, and may be empty.

    Raises:
        _UnsplittableError: not closed, brackets do not match, or something follows.
    """
    text = text.strip(_WHITESPACE)
    if not text.startswith(opening):
        raise _UnsplittableError
    pieces = []
    begin = 1
    open_brackets: list[str] = []
    for token in _TOKEN.finditer(text, 1):
        mark = token[0]
        if mark[0] == '"':
            if not token[1]:
                raise _UnsplittableError  # a string that never ends swallows what separates elements
        elif mark in "[{":
            open_brackets.append("]" if mark == "[" else "}")
        elif open_brackets:
            if mark != "," and mark != open_brackets.pop():
                raise _UnsplittableError
        elif mark not in (",", closing):
            raise _UnsplittableError
        else:
            pieces.append(text[begin : token.start()])
            begin = token.end()
            if mark == closing:
                if begin != len(text):
                    raise _UnsplittableError
                return [] if len(pieces) == 1 and not pieces[0].strip(_WHITESPACE) else pieces
    raise _UnsplittableError
