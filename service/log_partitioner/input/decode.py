"""Source record -> entries: decompress, decode, split (DESIGN 3.1). Never raises on input.

    json     an object = one entry; an array = several; an object with `entries_field` = an envelope
    ndjson   one object per line; blank lines do not count
    A record without a value, and an ndjson value without lines, has no entries.

A bad element costs its neighbours nothing; a record that cannot be split is bad as a whole.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec

from log_partitioner import zstd
from log_partitioner.config.settings import InputSettings
from log_partitioner.formats.dead_letter import Reason, reason_of
from log_partitioner.formats.model import SourceRecord
from log_partitioner.input.json_text import (
    FAST_REFUSALS,
    WHITE,
    JsonDecoder,
    UndecodableError,
    split_array,
    split_object,
)

_LINE = re.compile(rb"[^\n]+")
_GZIP_MAGIC = b"\x1f\x8b"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_GZIP_WINDOW_BITS = 31
_BRACE = ord("{")
_PIECE_BYTES = 16 * 1024
_COMMAS_MAX = 500_000  # of a record with more of them the entries are counted before it is taken apart
_elements_decoder = msgspec.json.Decoder(list[msgspec.Raw])
_members_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])

T = TypeVar("T")


class _Member(Protocol):
    """A decompressor of one gzip member or zstd frame."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


class Bad(NamedTuple):
    """An entry that is dead; `number` is its index, None means the record as a whole, counted as one entry."""

    number: int | None
    reason: Reason
    message: str


class Decoded(NamedTuple):
    """The content of a record: entries as (index, entry, JSON text), envelope, bad parts, bytes after decompression."""

    entries: list[tuple[int, dict[str, Any], bytes]]
    envelope: dict[str, Any] | None
    bad: list[Bad]
    size: int


def refused(record: SourceRecord) -> Decoded:
    """Return a record as bad as a whole, because something of it could not be read."""
    return Decoded([], None, [Bad(None, reason_of(record), record.unreadable or "")], len(record.value or b""))


class RecordDecoder:
    """Decodes the values of source records by one set of rules; `json` decodes the text in them."""

    def __init__(self, rules: InputSettings) -> None:
        self._rules = rules
        self.json = JsonDecoder(keep_inexact_text=rules.inexact_numbers == "text")
        # The most frequent record is one object with nothing around it, of at most so many bytes.
        self._object_bytes_max = rules.record_bytes_max if rules.format == "json" and not rules.entries_field else 0

    def decode(self, value: bytes | None) -> Decoded:
        """Take the value of a record apart."""
        if not value:
            return Decoded([], None, [], 0)
        if value[0] == _BRACE and len(value) <= self._object_bytes_max:
            try:
                return Decoded([(0, self.json.decode_fast(value), value)], None, [], len(value))
            except FAST_REFUSALS:
                pass  # it has to be looked at
        try:
            text = self._decompress(value)
            if self._rules.format == "ndjson":
                return self._sort_out(self._lines(text), None, len(text))
            first = text.lstrip(WHITE)[:1]
            if first == b"[":
                return self._sort_out(self._elements(text), None, len(text))
            return self._object(text, len(text), may_be_envelope=first == b"{") if text else Decoded([], None, [], 0)
        except UndecodableError as error:
            return Decoded([], None, [Bad(None, error.reason, str(error))], len(value))

    def _sort_out(self, texts: Iterable[bytes], envelope: dict[str, Any] | None, size: int) -> Decoded:
        """Decode the texts of elements or lines; a bad one costs its neighbours nothing."""
        entries: list[tuple[int, dict[str, Any], bytes]] = []
        bad: list[Bad] = []
        for index, text in enumerate(texts):
            try:
                item = self._value(text)
            except UndecodableError as error:
                bad.append(Bad(index, error.reason, str(error)))
                continue
            if type(item) is dict:
                entries.append((index, item, text))
            else:
                bad.append(Bad(index, Reason.NOT_AN_OBJECT, f"an entry is an object, not {type(item).__name__}"))
        return Decoded(entries, envelope, bad, size)

    def _object(self, text: bytes, size: int, *, may_be_envelope: bool) -> Decoded:
        """Decode a record that is one entry, or an envelope around several."""
        field = self._rules.entries_field
        members = _members(text) if field is not None and may_be_envelope else {}
        if field not in members:
            entry = self._value(text)
            if type(entry) is not dict:
                raise UndecodableError(
                    Reason.NOT_AN_OBJECT, f"a record is an object or an array, not {type(entry).__name__}"
                )
            return Decoded([(0, entry, text)], None, [], size)
        entries = members.pop(field)
        envelope = {name: self._value(member) for name, member in members.items()}
        if entries.lstrip(WHITE)[:1] != b"[":
            found = type(self._value(entries)).__name__
            raise UndecodableError(Reason.ENTRIES_NOT_A_LIST, f"the envelope's {field} is {found}")
        return self._sort_out(self._elements(entries), envelope, size)

    def _lines(self, text: bytes) -> list[bytes]:
        lines = (line[0] for line in _LINE.finditer(text) if line[0].strip(WHITE))
        # One more than the limit is enough to refuse: a record of line ends alone must not fill the memory.
        return self._not_too_many(list(islice(lines, self._rules.entries_per_record_max + 1)))

    def _elements(self, text: bytes) -> list[bytes]:
        """Return the texts of an array's elements, whatever is in them."""
        limit = self._rules.entries_per_record_max
        if text.count(b",") > _COMMAS_MAX:  # millions of elements would each take memory
            return split_array(text, elements_max=limit)
        try:
            elements = _elements_decoder.decode(text)
        except FAST_REFUSALS:
            return split_array(text, elements_max=limit)
        return [bytes(element) for element in self._not_too_many(elements)]

    def _value(self, text: bytes) -> Any:
        """Decode one value.

        Raises:
            UndecodableError: it is no JSON value we take.
        """
        try:
            return self.json.decode_fast(text)
        except FAST_REFUSALS:
            return self.json.decode_tolerant(text)

    def _not_too_many(self, items: list[T]) -> list[T]:
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


def _members(text: bytes) -> dict[str, bytes]:
    """Return the texts of an object's values by key, whatever is in them; the last of a key counts."""
    try:
        return {name: bytes(value) for name, value in _members_decoder.decode(text).items()}
    except FAST_REFUSALS:
        return split_object(text)


def _gzip_member() -> _Member:
    return zlib.decompressobj(_GZIP_WINDOW_BITS)


def _decompress_members(data: bytes, limit: int, new: Callable[[], _Member]) -> bytes:
    """Decompress one member or frame after the other to at most limit + 1 bytes, in linear time.

    The decompressor copies all bytes behind the end of a member, so members are fed in small pieces. Zeros may follow
    gzip members.

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
