"""Source record -> entries: decompress, decode, split (DESIGN 3.1). Never raises on input.

    json     an object = one entry; an array = several; an object with `entries_field` = an envelope
    ndjson   one object per line; blank lines do not count
    A record without a value, and an ndjson value without lines, has no entries.

A bad element costs its neighbours nothing; what cannot be split at all is bad as a whole.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from itertools import islice
from typing import Any, Literal, NamedTuple, Protocol

from service import zstd
from service.formats.dead_letter import Reason, reason_of
from service.formats.model import SourceRecord
from service.input.json_text import FAST_REFUSALS, JsonDecoder, UndecodableError, split_array, split_object

_LINE = re.compile(rb"[^\n]+")
_GZIP_MAGIC = b"\x1f\x8b"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_GZIP_WINDOW_BITS = 31
_BRACE = ord("{")
_SPACES = b" \t\r\n"
_PIECE_BYTES = 16 * 1024


class _Member(Protocol):
    """A decompressor of one gzip member or zstd frame."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


class InputRules(NamedTuple):
    """What a record may be; see `config.settings.InputSettings`."""

    format: Literal["json", "ndjson"]
    entries_field: str | None
    record_bytes_max: int
    entries_per_record_max: int


class Bad(NamedTuple):
    """An entry that is dead; `number` is its index, None means the record as a whole, counted as one entry."""

    number: int | None
    reason: Reason
    message: str


class Decoded(NamedTuple):
    """What a record holds: (index, entry) pairs, the envelope if there is one, what is bad, bytes decompressed.

    `text` is set where the record is one entry and nothing else: the JSON text of that entry.
    """

    entries: list[tuple[int, dict[str, Any]]]
    envelope: dict[str, Any] | None
    bad: list[Bad]
    size: int
    text: bytes | None = None


def refused(record: SourceRecord) -> Decoded:
    """Return a record of which something could not be read: it is bad as a whole."""
    return Decoded([], None, [Bad(None, reason_of(record), record.unreadable or "")], len(record.value or b""))


class _Refused(NamedTuple):
    """What stands for an element that could not be decoded; an exception would keep its stack alive."""

    reason: Reason
    message: str


class RecordDecoder:
    """Decodes the values of source records by one set of rules."""

    def __init__(self, rules: InputRules, json_decoder: JsonDecoder) -> None:
        self._rules = rules
        self._json = json_decoder
        self._is_plain = rules.format == "json" and rules.entries_field is None

    def decode(self, value: bytes | None) -> Decoded:
        """Take the value of a record apart."""
        if not value:
            return Decoded([], None, [], 0)
        if value[0] == _BRACE and self._is_plain:
            found = self._plain(value)
            if found is not None:
                return found
        try:
            text = self._decompress(value)
            if not text:
                return Decoded([], None, [], 0)
            if self._rules.format == "ndjson":
                decoded = self._sort_out(self._lines(text), None, len(text))
                is_one = len(decoded.entries) == 1 and b"\n" not in text.strip(_SPACES)
                return decoded._replace(text=text) if is_one else decoded
            items, envelope, is_one = self._json_items(text)
        except UndecodableError as error:
            return Decoded([], None, [Bad(None, error.reason, str(error))], len(value))
        decoded = self._sort_out(items, envelope, len(text))
        return decoded._replace(text=text) if is_one else decoded

    def _plain(self, value: bytes) -> Decoded | None:
        """Decode the most frequent record, one object and nothing around it; None where it has to be looked at."""
        if len(value) > self._rules.record_bytes_max:
            return None
        try:
            entry = self._json.decode_fast(value)
        except FAST_REFUSALS:
            return None
        return Decoded([(0, entry)], None, [], len(value), value)

    def _sort_out(self, items: list[Any], envelope: dict[str, Any] | None, size: int) -> Decoded:
        entries: list[tuple[int, dict[str, Any]]] = []
        bad: list[Bad] = []
        for index, item in enumerate(items):
            if type(item) is dict:
                entries.append((index, item))
            elif isinstance(item, _Refused):
                bad.append(Bad(index, item.reason, item.message))
            else:
                bad.append(Bad(index, Reason.NOT_AN_OBJECT, f"an entry is an object, not {type(item).__name__}"))
        return Decoded(entries, envelope, bad, size)

    def _json_items(self, text: bytes) -> tuple[list[Any], dict[str, Any] | None, bool]:
        """Return the entries, the envelope, and whether the text is that of one entry."""
        try:
            value = self._json.decode_fast(text)
        except FAST_REFUSALS:
            if text.lstrip()[:1] == b"[":
                return self._elements(text), None, False
            value = self._object(text)
        if type(value) is list:
            return self._not_too_many(value), None, False
        if type(value) is not dict:
            raise UndecodableError(
                Reason.NOT_AN_OBJECT, f"a record is an object or an array, not {type(value).__name__}"
            )
        field = self._rules.entries_field
        if field is None or field not in value:
            return [value], None, True
        items = value.pop(field)
        if type(items) is not list:
            raise UndecodableError(Reason.ENTRIES_NOT_A_LIST, f"the envelope's {field} is {type(items).__name__}")
        return self._not_too_many(items), value, False

    def _object(self, text: bytes) -> Any:
        """Decode what the fast decoder refused; of an envelope, the entries one by one."""
        field = self._rules.entries_field
        if field is None or text.lstrip()[:1] != b"{":
            return self._json.decode_tolerant(text)
        members = split_object(text)
        entries = members.pop(field, None)
        value = {name: self._json.decode_tolerant(member) for name, member in members.items()}
        if entries is not None and entries.lstrip()[:1] == b"[":
            value[field] = self._elements(entries)
        elif entries is not None:
            value[field] = self._json.decode_tolerant(entries)
        return value

    def _lines(self, text: bytes) -> list[Any]:
        lines = (line[0] for line in _LINE.finditer(text) if line[0].strip())
        # One more than the limit is enough to refuse: a record of line ends alone must not fill the memory.
        some = self._not_too_many(list(islice(lines, self._rules.entries_per_record_max + 1)))
        return [self._element(line) for line in some]

    def _elements(self, text: bytes) -> list[Any]:
        """Decode the elements of an array one by one; they are counted before the first is looked at."""
        limit = self._rules.entries_per_record_max
        return [self._element(element) for element in split_array(text, elements_max=limit)]

    def _element(self, text: bytes) -> Any:
        """Decode one element or line; what is wrong with it is returned, not raised."""
        try:
            return self._json.decode_fast(text)
        except FAST_REFUSALS:
            try:
                return self._json.decode_tolerant(text)
            except UndecodableError as error:
                return _Refused(error.reason, str(error))

    def _not_too_many(self, items: list[Any]) -> list[Any]:
        limit = self._rules.entries_per_record_max
        if len(items) > limit:
            raise UndecodableError(Reason.TOO_MANY_ENTRIES, f"more than {limit} entries")
        return items

    def _decompress(self, value: bytes) -> bytes:
        limit = self._rules.record_bytes_max
        try:
            if value.startswith(_GZIP_MAGIC):
                value = _decompress_members(value, limit, _gzip_member)
            elif value.startswith(_ZSTD_MAGIC):
                value = _decompress_members(value, limit, zstd.ZstdDecompressor)
        except (zlib.error, zstd.ZstdError, EOFError) as error:
            raise UndecodableError(Reason.DECOMPRESSION, str(error)) from error
        if len(value) > limit:
            raise UndecodableError(Reason.RECORD_TOO_LARGE, f"more than {limit} bytes")
        return value


def _gzip_member() -> _Member:
    return zlib.decompressobj(_GZIP_WINDOW_BITS)


def _decompress_members(data: bytes, limit: int, new: Callable[[], _Member]) -> bytes:
    """Decompress one member or frame after the other to at most limit + 1 bytes, in linear time.

    What follows a member is copied with each, so members are fed in small pieces. Zeros may follow gzip members.

    Raises:
        EOFError: the compressed data ends early.
    """
    out = bytearray()
    at = 0
    while at < len(data) and len(out) <= limit:
        if at and new is _gzip_member and not data[at] and not data[at:].strip(b"\0"):
            break
        member = new()
        while not member.eof and len(out) <= limit:
            piece = data[at : at + _PIECE_BYTES]
            if not piece:
                raise EOFError("the compressed data ends early")
            out += member.decompress(piece, limit + 1 - len(out))
            at += len(piece)
        if member.eof:
            at -= len(member.unused_data)
    return bytes(out)
