"""Turns a Kafka record into its log entries, or into the reasons why they are dead (DESIGN 3.1, 3.7).

Owns formats, envelopes and limits of the input. If an entry has several faults, it may name any of them.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from log_partitioner.formats.dead_letter import Reason
from log_partitioner.proof.oracle.decompress import BrokenStreamError, TooLargeError, decompress
from log_partitioner.proof.oracle.json_text import (
    Parse,
    depth_of,
    depth_of_text,
    holds_invalid_bytes,
    holds_lone_surrogates,
    may_hold_surrogates,
    parse_keeping,
    parse_rounding,
)
from log_partitioner.proof.oracle.split import WHITESPACE, UnsplittableError, split_array, split_object

if TYPE_CHECKING:
    from collections.abc import Iterable

    from log_partitioner.config.settings import InputSettings

JsonObject = dict[str, object]
Reasons = frozenset[Reason]
NO_REASONS: Reasons = frozenset()


class DecodedEntry(NamedTuple):
    """An entry, and the reasons why it is dead; a dead one may have no value."""

    value: JsonObject | None
    reasons: Reasons


class DecodedRecord(NamedTuple):
    """The entries of a record. `is_whole`: it could not be split and counts as one (dead) entry."""

    entries: list[DecodedEntry]
    is_whole: bool = False
    envelope: JsonObject | None = None


class Decoder:
    """Decodes records by the settings of the input."""

    def __init__(self, settings: InputSettings) -> None:
        self._settings = settings
        self.parse: Parse = parse_rounding if settings.inexact_numbers == "round" else parse_keeping

    def decode(self, value: bytes | None) -> DecodedRecord:
        """Take a record's value apart; never raises on input."""
        if not value:
            return DecodedRecord([])
        try:
            data = decompress(value, bytes_max=self._settings.record_bytes_max)
        except TooLargeError:
            return _dead(Reason.RECORD_TOO_LARGE)
        except BrokenStreamError:
            return _dead(Reason.DECOMPRESSION)
        if not data:
            return DecodedRecord([])
        decoded = self._decode_lines(data) if self._settings.format == "ndjson" else self._decode_json(data)
        if len(decoded.entries) > self._settings.entries_per_record_max:
            return _dead(Reason.TOO_MANY_ENTRIES)
        return decoded

    def _decode_lines(self, data: bytes) -> DecodedRecord:
        lines = (line for line in data.split(b"\n") if line.strip(b" \t\r"))
        return DecodedRecord([self._entry_of_text(_text(line)) for line in lines])

    def _decode_json(self, data: bytes) -> DecodedRecord:
        text = _text(data)
        if may_hold_surrogates(text):
            return self._decode_piecewise(text)
        try:
            value = self.parse(text)
        except (json.JSONDecodeError, RecursionError):
            return self._decode_piecewise(text)
        is_shallow = text.count("{") + text.count("[") <= self._settings.json_depth_max
        if type(value) is list:
            return DecodedRecord(self._entries(value, is_shallow=is_shallow))
        if not isinstance(value, dict):
            return _dead(Reason.NOT_AN_OBJECT)
        field = self._settings.entries_field
        if field is None or field not in value:
            return DecodedRecord(self._entries([value], is_shallow=is_shallow))
        entries = value[field]
        if type(entries) is not list:
            return _dead(Reason.ENTRIES_NOT_A_LIST)
        return DecodedRecord(self._entries(entries, is_shallow=is_shallow), envelope=value)

    def _entries(self, values: list[object], *, is_shallow: bool) -> list[DecodedEntry]:
        depth_max = self._settings.json_depth_max
        return [self._entry(value, is_too_deep=not is_shallow and depth_of(value) > depth_max) for value in values]

    def _entry(self, value: object, *, is_too_deep: bool, reasons: Reasons = NO_REASONS) -> DecodedEntry:
        if is_too_deep:
            reasons |= {Reason.TOO_DEEP}
        if isinstance(value, dict):
            return DecodedEntry(value, reasons)
        return DecodedEntry(None, reasons | {Reason.NOT_AN_OBJECT})

    def _decode_piecewise(self, text: str) -> DecodedRecord:
        """Decode element by element if the plain way refuses: a bad element costs its neighbours nothing."""
        field = self._settings.entries_field
        try:
            if text.lstrip(WHITESPACE).startswith("["):
                return DecodedRecord([self._entry_of_text(piece) for piece in split_array(text)])
            if field is not None:
                members = split_object(text)
                if any(key == field for key, _ in members):
                    return self._decode_envelope(members, field)
        except UnsplittableError:
            pass  # judged as one text
        entry = self._entry_of_text(text)
        return DecodedRecord([entry], is_whole=entry.value is None)

    def _decode_envelope(self, members: Iterable[tuple[str, str]], field: str) -> DecodedRecord:
        texts = dict(members)
        entries = texts.pop(field)
        around = "{" + ",".join(f"{json.dumps(key)}:{text}" for key, text in texts.items()) + "}"
        envelope = self._entry_of_text(around)
        if envelope.value is None or envelope.reasons:
            return DecodedRecord([envelope], is_whole=True)
        if not entries.startswith("["):
            return _dead(Reason.ENTRIES_NOT_A_LIST, Reason.MALFORMED)
        return DecodedRecord([self._entry_of_text(piece) for piece in split_array(entries)], envelope=envelope.value)

    def _entry_of_text(self, text: str) -> DecodedEntry:
        is_suspect = may_hold_surrogates(text)
        depth_max = self._settings.json_depth_max
        may_be_deep = text.count("{") + text.count("[") > depth_max
        try:
            value = self.parse(text)
        except (json.JSONDecodeError, RecursionError):
            reasons = frozenset({Reason.MALFORMED})
            reasons |= {Reason.TOO_DEEP} if may_be_deep and depth_of_text(text) > depth_max else NO_REASONS
            return DecodedEntry(None, reasons | ({Reason.INVALID_UNICODE} if is_suspect else NO_REASONS))
        reasons = NO_REASONS
        if is_suspect and (holds_invalid_bytes(text) or holds_lone_surrogates(value)):
            reasons = frozenset({Reason.INVALID_UNICODE, Reason.MALFORMED})
        return self._entry(value, is_too_deep=may_be_deep and depth_of(value) > depth_max, reasons=reasons)


def _dead(*reasons: Reason) -> DecodedRecord:
    return DecodedRecord([DecodedEntry(None, frozenset(reasons))], is_whole=True)


def _text(data: bytes) -> str:
    """Decode UTF-8; other bytes become lone surrogates, for which their entry is refused."""
    return data.decode("utf-8", "surrogateescape")
