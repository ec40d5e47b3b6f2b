"""Source record -> entries: decompress, unframe, read by a format, split (DESIGN 3.1). Never raises on input.

A document is an entry, a list of entries, or an object with `entries_field`, an envelope. A format may split a payload
into parts that are an entry each. A record without a value, and one without parts, has no entries.

A bad element costs its neighbours nothing; a record that cannot be split is bad as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, NamedTuple

from log_partitioner.config.settings import InputSettings
from log_partitioner.formats.dead_letter import Reason, reason_of
from log_partitioner.formats.model import Headers, SourceRecord
from log_partitioner.input.compression import decompress
from log_partitioner.input.formats import format_of
from log_partitioner.input.framing import FRAMINGS
from log_partitioner.input.json_text import FAST_REFUSALS, JsonDecoder, UndecodableError
from log_partitioner.input.parts import PartReader, is_list, is_object, members_of, not_too_many, text_of

_BRACE = ord("{")


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
        self._format = form = format_of(rules)
        self._unframe = FRAMINGS[rules.framing]
        self._parts = PartReader(self.json, elements_max=rules.entries_per_record_max)
        # The most frequent record is one object with nothing around it, of at most so many bytes.
        is_plain = not (form.read or form.split or self._unframe or rules.entries_field)
        self._object_bytes_max = rules.record_bytes_max if is_plain else 0

    def decode(self, value: bytes | None, headers: Headers = ()) -> Decoded:
        """Take the value of a record apart."""
        if not value:
            return Decoded([], None, [], 0)
        if value[0] == _BRACE and len(value) <= self._object_bytes_max:
            try:
                return Decoded([(0, self.json.decode_fast(value), value)], None, [], len(value))
            except FAST_REFUSALS:
                pass  # it has to be looked at
        read, split = self._format.read, self._format.split
        try:
            payload = decompress(value, self._rules.record_bytes_max)
            size = len(payload)
            if not payload:
                return Decoded([], None, [], 0)
            if self._unframe is not None:
                payload = self._unframe(payload, headers)
            if split is not None:
                return self._sort_out(self._some(split(payload)), size, read=read)
            return self._document(payload if read is None else read(payload), size)
        except UndecodableError as error:
            return Decoded([], None, [Bad(None, error.reason, f"{error}{self._advice(value, error)}")], len(value))

    def _advice(self, value: bytes, error: UndecodableError) -> str:
        """Return the setting that reads a record which these do not read; empty if none is known."""
        if value[0] == 0 and self._unframe is None:
            return "; it begins as with the id of a schema, which input.framing = confluent takes away"
        if str(error).startswith("Extra data") and self._format.split is None:
            return "; input.format = ndjson reads one object per line"
        return ""

    def _document(self, document: Any, size: int) -> Decoded:
        """Decode entries of a list or of an envelope, or the one entry that a document is."""
        if is_list(document):
            return self._sort_out(self._parts.elements(document), size)
        field = self._rules.entries_field
        members = members_of(document) if field is not None and is_object(document) else {}
        if field not in members:
            entry = self._parts.value(document)
            if type(entry) is not dict:
                raise UndecodableError(
                    Reason.NOT_AN_OBJECT, f"a record is an object or an array, not {type(entry).__name__}"
                )
            return Decoded([(0, entry, text_of(document))], None, [], size)
        entries = members.pop(field)
        envelope = {name: self._parts.value(member) for name, member in members.items()}
        if not is_list(entries):
            found = type(self._parts.value(entries)).__name__
            raise UndecodableError(Reason.ENTRIES_NOT_A_LIST, f"the envelope's {field} is {found}")
        return self._sort_out(self._parts.elements(entries), size, envelope=envelope)

    def _some(self, parts: Iterable[bytes]) -> list[bytes]:
        """Collect parts up to one too many: a payload of line ends alone must not fill the memory."""
        limit = self._rules.entries_per_record_max
        return not_too_many([*islice(parts, limit + 1)], limit)

    def _sort_out(
        self,
        parts: Iterable[Any],
        size: int,
        *,
        envelope: dict[str, Any] | None = None,
        read: Callable[[bytes], Any] | None = None,
    ) -> Decoded:
        """Decode parts that are an entry each; a bad one costs its neighbours nothing."""
        entries: list[tuple[int, dict[str, Any], bytes]] = []
        bad: list[Bad] = []
        for index, found in enumerate(parts):
            try:
                part = found if read is None else read(found)
                entry = self._parts.value(part)
            except UndecodableError as error:
                bad.append(Bad(index, error.reason, str(error)))
                continue
            if type(entry) is dict:
                entries.append((index, entry, text_of(part)))
            else:
                bad.append(Bad(index, Reason.NOT_AN_OBJECT, f"an entry is an object, not {type(entry).__name__}"))
        return Decoded(entries, envelope, bad, size)
