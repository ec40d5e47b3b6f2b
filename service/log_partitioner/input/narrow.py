"""Narrows a record to some of its entries; their bytes, and the bytes around them, stay as they are.

JSON and lines can be narrowed. A value of Avro, Protobuf or OTLP cannot, since nothing in it can be left out without
writing it anew. A compressed value comes out uncompressed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import count

from log_partitioner.config.section import PathStep, parse_entries_path
from log_partitioner.config.settings import InputSettings
from log_partitioner.formats.model import Headers
from log_partitioner.input.compression import decompress
from log_partitioner.input.decode import RecordContent, RecordDecoder
from log_partitioner.input.format import Format
from log_partitioner.input.formats import format_of
from log_partitioner.input.framing import FRAMINGS
from log_partitioner.input.json_text import UndecodableError, split_array, with_member
from log_partitioner.input.parts import is_list, is_object, members_of


class NarrowError(ValueError):
    """A record cannot be narrowed; the text says why."""


def narrow(value: bytes, headers: Headers, indexes: Collection[int], *, of_entries: int, rules: InputSettings) -> bytes:
    """Return the value of a record that has these of its entries, in their order, and no other.

    Both values are decoded and compared, so that no entry is lost for a setting that has changed since.

    Raises:
        NarrowError: the format does not allow it, or these rules find other entries in the record.
    """
    form = format_of(rules)
    if form.split is None and (form.read is not None or form.read_by is not None):
        raise NarrowError(f"a record of input.format {rules.format} is whole or not at all")
    decoder = RecordDecoder(rules)
    before = _outcomes(decoder.decode(value, headers))
    if len(before) != of_entries:
        raise NarrowError(f"it had {of_entries} entries, and has {len(before)} by the settings of now")
    try:
        narrowed = _narrow(value, headers, frozenset(indexes), form, rules)
    except UndecodableError as error:
        raise NarrowError(f"its entries cannot be told apart: {error}") from error
    if _outcomes(decoder.decode(narrowed, headers)) != [before[index] for index in sorted(indexes)]:
        raise NarrowError("its entries cannot be told apart: they are read otherwise one without the others")
    return narrowed


def _outcomes(decoded: RecordContent) -> list[object]:
    """Return the text of each entry, or why it is bad, by index."""
    texts = {index: text.strip() for index, _, text, _ in decoded.entries}
    reasons = {bad.number or 0: bad.reason for bad in decoded.bad}
    return [outcome for _, outcome in sorted({**texts, **reasons}.items())]


def _narrow(value: bytes, headers: Headers, wanted: frozenset[int], form: Format, rules: InputSettings) -> bytes:
    payload = content = decompress(value, rules.record_bytes_max)
    if (unframe := FRAMINGS[rules.framing]) is not None:
        _, content = unframe(payload, headers, rules.record_bytes_max)
        if not payload.endswith(content):
            raise NarrowError(f"what input.framing {rules.framing} stands before is compressed")
    frame = payload.removesuffix(content)
    if form.split is not None:
        lines = [line for index, line in enumerate(form.split(content)) if index in wanted]
        return frame + b"\n".join(lines)
    if is_list(content):
        elements = split_array(content, elements_max=rules.entries_per_record_max)
        return frame + _join(element for index, element in enumerate(elements) if index in wanted)
    path = rules.entries_path or form.entries_path
    narrowed = _Envelope(wanted).narrow(content, parse_entries_path(path) if path else ())
    return frame + (narrowed or b"")


def _join(elements: Iterable[bytes]) -> bytes:
    return b"[%b]" % b",".join(elements)


class _Envelope:
    """Counts the entries of an envelope as the decoder does, and leaves out those that are not wanted."""

    def __init__(self, wanted: frozenset[int]) -> None:
        self._wanted = wanted
        self._numbers = count()

    def narrow(self, part: bytes, steps: Sequence[PathStep]) -> bytes | None:
        """Return a part with the wanted entries only; None if it has none of them."""
        if not steps or not is_object(part) or steps[0].key not in (members := members_of(part)):
            return part if next(self._numbers) in self._wanted else None
        (key, leads_to_list), *rest = steps
        if leads_to_list and is_list(members[key]):
            elements = split_array(members[key], elements_max=len(part))
            kept = [one for element in elements if (one := self.narrow(element, rest)) is not None]
            return with_member(part, key, _join(kept)) if kept else None
        inner = self.narrow(members[key], rest)
        return None if inner is None else with_member(part, key, inner)
