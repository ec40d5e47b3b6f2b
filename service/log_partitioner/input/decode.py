"""Source record -> entries: decompress, unframe, read by a format, split (DESIGN 3.1). Never raises on input.

A document is an entry, a list of entries, or an envelope: an object in which `entries_path` leads to entries. A format
may split a payload into parts that are an entry each. A record without a value, or without parts, has no entries.

A bad element costs its neighbours nothing; a record that cannot be split is bad as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple, TypeVar

import msgspec

from log_partitioner.config.section import PathStep, parse_entries_path
from log_partitioner.config.settings import InputSettings
from log_partitioner.formats.dead_letter import Reason, reason_of
from log_partitioner.formats.model import Headers, SourceRecord
from log_partitioner.formats.schema import FindSchema, Schema, SchemaRef
from log_partitioner.formats.values import encode_json
from log_partitioner.input.compression import decompress
from log_partitioner.input.format import Read, SchemaError
from log_partitioner.input.formats import format_of
from log_partitioner.input.framing import FRAMINGS
from log_partitioner.input.json_text import FAST_REFUSALS, WHITE, JsonDecoder, UndecodableError
from log_partitioner.input.parts import PartReader, is_list, is_object, members_of, not_too_many, text_of

ENVELOPE = "_envelope"
WEIGHT_PER_BYTE_MAX = 3  # `1.0` weighs 8
_BRACE = ord("{")
_READERS_MAX = 256  # schemas of a registry that are in use at once

Entry = tuple[int, dict[str, Any], bytes, dict[str, Any] | None]
"""An entry: its index in the record, its value, its JSON text, and what stands around it, if it is in an envelope."""
T = TypeVar("T")
_Found = tuple[dict[str, Any], bytes, dict[str, Any] | None]


class BadEntry(NamedTuple):
    """An entry that is dead; `number` is its index, None means the record as a whole, counted as one entry."""

    number: int | None
    reason: Reason
    message: str


class RecordContent(NamedTuple):
    """The content of a record: its entries, its bad parts, its bytes after decompression."""

    entries: list[Entry]
    bad: list[BadEntry]
    size: int


def refused(record: SourceRecord) -> RecordContent:
    """Return a record as bad as a whole, because something of it could not be read."""
    return RecordContent([], [BadEntry(None, reason_of(record), record.unreadable or "")], len(record.value or b""))


class RecordDecoder:
    """Decodes the values of source records by one set of rules; `json` decodes the text in them."""

    def __init__(
        self, rules: InputSettings, find_schema: FindSchema | None = None, json: JsonDecoder | None = None
    ) -> None:
        self._rules = rules
        self._find_schema = find_schema
        self.json = json or JsonDecoder(keep_inexact_text=rules.inexact_numbers == "text")
        form = format_of(rules)
        self._split, self._read, self._read_by = form.split, form.read, form.read_by
        if form.read_by is not None and rules.schema_content is not None:
            self._read = form.read_by(Schema(rules.schema_content))
        self._reader_of = lru_cache(_READERS_MAX)(self._make_reader)
        self._unframe = FRAMINGS[rules.framing]
        self._parts = PartReader(self.json, elements_max=rules.entries_per_record_max)
        path = rules.entries_path or form.entries_path
        self._steps = parse_entries_path(path) if path else ()
        # The most frequent record is one object with nothing around it, of at most so many bytes.
        is_plain = not (self._read or form.split or self._unframe or path)
        self._object_bytes_max = rules.record_bytes_max if is_plain else 0

    def decode(self, value: bytes | None, headers: Headers = ()) -> RecordContent:
        """Take the value of a record apart.

        Raises:
            RegistryError: it needs a schema that the registry does not give now.
        """
        if not value:
            return RecordContent([], [], 0)
        if value[0] == _BRACE and len(value) <= self._object_bytes_max:
            try:
                return RecordContent([(0, self.json.decode_fast(value), value, None)], [], len(value))
            except FAST_REFUSALS:
                pass  # it has to be looked at
        read, split = self._read, self._split
        try:
            payload = self._decompressed(value)
            size = len(payload)
            if not payload:
                return RecordContent([], [], 0)
            if self._unframe is not None:
                ref, payload = self._unframe(payload, headers, self._rules.record_bytes_max)
                if self._read_by is not None and read is None:
                    read = self._reader_of(ref)
            if split is not None:
                return self._sort_out(self._some(split(payload)), size, read=read)
            return self._document(payload if read is None else read(payload), size)
        except UndecodableError as error:
            return RecordContent([], [BadEntry(None, error.reason, f"{error}{self._advice(value, error)}")], len(value))

    def _decompressed(self, value: bytes) -> bytes:
        """Undo compression; a binary value that begins like a compressed one by chance is one as it is."""
        limit = self._rules.record_bytes_max
        try:
            return decompress(value, limit)
        except UndecodableError as error:
            if self._read_by is not None and error.reason is Reason.DECOMPRESSION and len(value) <= limit:
                return value
            raise

    def _make_reader(self, ref: SchemaRef | None) -> Read:
        """Make the reader of a schema that a framing names."""
        assert self._read_by is not None, "the format has schemas"
        assert self._find_schema is not None, "they come from a registry"
        if ref is None:
            raise UndecodableError(Reason.MALFORMED, "it holds no id of a schema that a registry can have")
        schema = self._find_schema(ref)
        if schema is None:
            raise UndecodableError(Reason.UNKNOWN_SCHEMA, f"the schema registry does not know {ref}")
        try:
            return self._read_by(schema)
        except SchemaError as error:
            message = f"{ref} of the registry is no schema of input.format {self._rules.format}: {error}"
            raise UndecodableError(Reason.MALFORMED, message) from error

    def _advice(self, value: bytes, error: UndecodableError) -> str:
        """Return the setting that reads a record which these do not read; empty if none is known."""
        if self._unframe is None and value[0] == 0:
            return "; it begins as with the id of a schema, which input.framing = confluent or apicurio8 takes away"
        if self._unframe is None and value[:2] in (b"\3\0", b"\3\5"):
            return "; it begins as with the id of a schema, which input.framing = glue takes away"
        is_json = self._read is None and self._read_by is None
        if is_json and error.reason is Reason.MALFORMED and value.lstrip(WHITE)[:1] not in (b"{", b"["):
            return "; input.format = access-log, syslog, cri or text reads lines of text"
        if is_json and error.reason is Reason.INVALID_UNICODE:
            return "; if it is no text: input.format = avro, protobuf and otlp read binary records"
        if str(error).startswith("Extra data") and self._split is None:
            return "; input.format = ndjson reads one object per line"
        return ""

    def _document(self, document: Any, size: int) -> RecordContent:
        """Decode entries of a list or of an envelope, or the one entry that a document is."""
        if type(document) is dict and not self._steps:  # most are
            return RecordContent([(0, document, encode_json(document), None)], [], size)
        if is_list(document):
            return self._sort_out(self._parts.elements(document), size)
        found = self._some(self._follow(document, self._steps))
        entries = [(index, *one) for index, one in enumerate(found) if not isinstance(one, UndecodableError)]
        bad = [
            BadEntry(index, one.reason, str(one))
            for index, one in enumerate(found)
            if isinstance(one, UndecodableError)
        ]
        return RecordContent(self._kept(entries, bad) if self._rules.envelope == "keep" else entries, bad, size)

    def _follow(self, part: Any, steps: Sequence[PathStep]) -> Iterator[_Found | UndecodableError]:
        """Yield entries to which a path leads; an object without the next key is one. In a list, a bad one is an error.

        Raises:
            UndecodableError: a bad one is in no list, or there are too many.
        """
        members = members_of(part) if steps and is_object(part) else {}
        if not steps or steps[0].key not in members:
            yield self._object(part), text_of(part), None
            return
        (key, leads_to_list), *rest = steps
        inner = members.pop(key)
        around = {name: self._parts.value(member) for name, member in members.items()}
        for found in self._follow_each(inner, key, rest) if leads_to_list else self._follow_one(inner, key, rest):
            if isinstance(found, UndecodableError):
                yield found
            else:
                entry, text, within = found
                yield entry, text, {**around, key: within} if within else around

    def _follow_one(self, part: Any, key: str, steps: Sequence[PathStep]) -> Iterator[_Found | UndecodableError]:
        if not is_object(part):
            found = type(self._parts.value(part)).__name__
            raise UndecodableError(Reason.NOT_AN_OBJECT, f"{key} in input.entries_path is {found}")
        return self._follow(part, steps)

    def _follow_each(self, part: Any, key: str, steps: Sequence[PathStep]) -> Iterator[_Found | UndecodableError]:
        if not is_list(part):
            found = type(self._parts.value(part)).__name__
            raise UndecodableError(Reason.ENTRIES_NOT_A_LIST, f"{key}[] in input.entries_path is {found}")
        for element in self._parts.elements(part):
            try:
                if steps:
                    yield from self._follow(element, steps)
                else:
                    yield self._object(element), text_of(element), None
            except UndecodableError as error:
                if error.reason is Reason.TOO_MANY_ENTRIES:
                    raise
                yield error

    def _object(self, part: Any) -> dict[str, Any]:
        value = self._parts.value(part)
        if type(value) is not dict:
            found = "a map by its schema" if isinstance(value, dict) else type(value).__name__
            raise UndecodableError(Reason.NOT_AN_OBJECT, f"an entry is an object, not {found}")
        return value

    def _kept(self, entries: list[Entry], bad: list[BadEntry]) -> list[Entry]:
        """Put what stands around an entry into it; one that is too deep with that is bad.

        Raises:
            UndecodableError: the copies together have more bytes than a record may have.
        """
        kept: list[Entry] = []
        last, text_around, weight, depth, copied = None, b"", 0, 0, 0
        for index, entry, text, around in entries:
            if not around:
                kept.append((index, entry, text, around))
                continue
            if around is not last:
                last, (weight, depth) = around, weight_and_depth(around)
                text_around = b"" if depth >= self._rules.json_depth_max else encode_json(around)
            copied += weight
            if copied > self._rules.record_bytes_max:
                message = f"too large with its envelope in each of {len(entries)} rows: input.envelope = drop"
                raise UndecodableError(Reason.RECORD_TOO_LARGE, message)
            if not text_around:
                bad.append(BadEntry(index, Reason.TOO_DEEP, "nested too deep around the entry"))
                continue
            name = ENVELOPE
            while name in entry:
                name = f"_{name}"
            comma = "," if entry else ""
            joined = b'%b%b"%b":%b}' % (text.rstrip(WHITE)[:-1], comma.encode(), name.encode(), text_around)
            kept.append((index, entry | {name: around}, joined, around))
        return kept

    def _some(self, parts: Iterable[T]) -> list[T]:
        """Collect parts up to one too many: a payload of line ends alone must not fill the memory."""
        limit = self._rules.entries_per_record_max
        return not_too_many([*islice(parts, limit + 1)], limit)

    def _sort_out(
        self, parts: Iterable[Any], size: int, *, read: Callable[[bytes], Any] | None = None
    ) -> RecordContent:
        """Decode parts that are an entry each; a bad one costs its neighbours nothing."""
        entries: list[Entry] = []
        bad: list[BadEntry] = []
        for index, found in enumerate(parts):
            try:
                part = found if read is None else read(found)
                entries.append((index, self._object(part), text_of(part), None))
            except UndecodableError as error:
                bad.append(BadEntry(index, error.reason, str(error)))
        return RecordContent(entries, bad, size)


def weight_and_depth(value: Any) -> tuple[int, int]:
    """Return how much a copy of a value weighs, and how deep it nests.

    Texts weigh their bytes, integers their digits, anything else 8: no more than WEIGHT_PER_BYTE_MAX of its JSON text.
    """
    weight, depth, level = 0, 0, [value]
    while level:
        inner: list[Any] = []
        for one in level:
            match one:
                case str():
                    weight += len(one.encode())
                case dict():
                    weight += sum(len(key.encode()) for key in one)
                    inner += one.values()
                case list():
                    inner += one
                case msgspec.Raw():
                    weight += len(bytes(one))
                case bool() | float() | None:
                    weight += 8
                case _:
                    weight += len(str(one))
        depth += any(isinstance(one, dict | list) for one in level)
        level = inner
    return weight, depth
