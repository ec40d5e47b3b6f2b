"""Records to entries: formats, envelopes, limits, compression, bad elements (DESIGN 3.1, 4.5)."""

import gzip
import json
import tracemalloc
from typing import Any, Literal

import msgspec
import pytest
from backports import zstd

from log_partitioner.config.settings import InputSettings
from log_partitioner.formats.dead_letter import Reason
from log_partitioner.input.decode import BadEntry, RecordContent, RecordDecoder
from log_partitioner.input.json_text import JsonDecoder
from tests.fakes.lanes import assert_decoded_alike

GOOD: dict[str, Any] = {"user": "ann", "n": 1}
MEGABYTE = 2**20


Form = Literal["json", "ndjson"]


def rules_of(form: Form = "json", *, field: str | None = None, entries_max: int = 100) -> InputSettings:
    """Make the usual rules."""
    bounded = type("Bounded", (InputSettings,), {"entries_per_record_max": entries_max})
    path = field and f"{field}[]"
    rules: InputSettings = bounded(format=form, entries_path=path, envelope="drop", record_bytes_max=MEGABYTE)
    return rules


def decode(value: bytes | None, form: Form = "json", **others: Any) -> RecordContent:
    """Decode by the usual rules; the second opinion says the same."""
    rules = rules_of(form, **others)
    decoded = RecordDecoder(rules).decode(value)
    assert_decoded_alike(decoded, value, rules)
    return decoded


def entries_of(decoded: RecordContent) -> list[tuple[int, dict[str, Any]]]:
    """Give the indexes of the entries, and their values, which their texts are decoded to as well."""
    again = JsonDecoder(keep_inexact_text=False).decode_again
    assert [again(text) for _, _, text, _ in decoded.entries] == [entry for _, entry, *_ in decoded.entries]
    return [(index, entry) for index, entry, *_ in decoded.entries]


def around(decoded: RecordContent) -> dict[str, Any] | None:
    """Give what stands around all entries; None if there is none."""
    return next((envelope for *_, envelope in decoded.entries), None)


def reasons(decoded: RecordContent) -> list[tuple[int | None, Reason]]:
    """Give the indexes of what is bad, and why."""
    return [(bad.number, bad.reason) for bad in decoded.bad]


@pytest.mark.parametrize(
    ("form", "value", "entries"),
    [
        ("json", None, []),
        ("json", b"", []),
        ("json", b" [ ] ", []),
        ("json", b"{}", [{}]),
        ("json", b'[{"user": "ann", "n": 1}, {}]', [GOOD, {}]),
        ("json", b'\n {"user": "ann", "n": 1}\r\n', [GOOD]),
        ("json", '{"é": "\u2028😀"}'.encode(), [{"é": "\u2028😀"}]),
        ("json", b'{"a": 1, "b": {"c": 1, "c": 2}, "a": 3}', [{"a": 3, "b": {"c": 2}}]),
        ("json", rb'{"a": "\ud800", "a": 1}', [{"a": 1}]),
        ("json", rb'[{"a": "\ud83d\ude00"}]', [{"a": "😀"}]),
        ("json", b'[{"x": [1, {"y": "],["}], "z": "\\"}"}, {}]', [{"x": [1, {"y": "],["}], "z": '"}'}, {}]),
        ("ndjson", b"", []),
        ("ndjson", b"\n\r\n  \n", []),
        ("ndjson", b'{"user": "ann", "n": 1}\r\n\n{}\n', [GOOD, {}]),
    ],
)
def test_record_of_each_form_gives_its_entries(form: Form, value: bytes | None, entries: list[Any]) -> None:
    """An object is one entry, an array several, a line one, a blank one none; nor has a record without a value any."""
    decoded = decode(value, form)
    assert entries_of(decoded) == list(enumerate(entries))
    assert decoded.bad == []


def test_ndjson_line_that_is_bad_costs_its_neighbours_nothing() -> None:
    """Each stands for itself; a line of a form feed or a vertical tab is not blank: these are no JSON."""
    decoded = decode(b'{"a": 1}\nnot json\n[1]\n \t\r\n\x0c\n\x0b{"a": 2}\n{"a": 3}', "ndjson")
    assert entries_of(decoded) == [(0, {"a": 1}), (5, {"a": 3})]
    assert reasons(decoded) == [
        (1, Reason.MALFORMED), (2, Reason.NOT_AN_OBJECT), (3, Reason.MALFORMED), (4, Reason.MALFORMED)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"1", Reason.NOT_AN_OBJECT),
        (b"null", Reason.NOT_AN_OBJECT),
        (b'"text"', Reason.NOT_AN_OBJECT),
        (b"NaN", Reason.MALFORMED),
        (b"{", Reason.MALFORMED),
        (b'{"a": 1} {"b": 2}', Reason.MALFORMED),
        (b'[{"a": 1}', Reason.MALFORMED),
        (b'[{"a": 1}, {"b": 2]]', Reason.MALFORMED),
        (b'\x0c[{"a": 1}]', Reason.MALFORMED),
        (b'[{"a": 1}]\x0b', Reason.MALFORMED),
        (b'\x0b{"a": 1}', Reason.MALFORMED),
        (b"\xef\xbb\xbf{}", Reason.MALFORMED),
        (b'{"a": "\xff"}', Reason.INVALID_UNICODE),
        (b'{"a": "\\ud800"}', Reason.INVALID_UNICODE),
        (b'{"a":' * 100_000, Reason.TOO_DEEP),
        (b"[" * 100_000, Reason.MALFORMED),
        (b"[1]]", Reason.MALFORMED),
        (b"[[1]", Reason.MALFORMED),
        (b"[}", Reason.MALFORMED),
        (b'[{"a": 1}}, {}]', Reason.MALFORMED),
        (b"]", Reason.MALFORMED),
        (b"[1][2]", Reason.MALFORMED),
        (b'["]', Reason.MALFORMED),
        (rb'["\"]', Reason.MALFORMED),
        (b'[{"a": [}}, {}]', Reason.MALFORMED),
        (b'[{"a": "x}, {"b": "y"}]', Reason.MALFORMED),
        (b"\x1f\x8b", Reason.DECOMPRESSION),
        (b"\x28\xb5\x2f\xfd", Reason.DECOMPRESSION),
        (b"\x1f\x8bnot gzip", Reason.DECOMPRESSION),
        (b"\x28\xb5\x2f\xfdnot zstd", Reason.DECOMPRESSION),
        (gzip.compress(b"{}" * 99, mtime=0)[:-4], Reason.DECOMPRESSION),
        (zstd.compress(b"{}" * 99)[:-4], Reason.DECOMPRESSION),
        (gzip.compress(b"{}", mtime=0) + b"garbage", Reason.DECOMPRESSION),
        (b" " * (MEGABYTE + 1), Reason.RECORD_TOO_LARGE),
    ],
)
def test_record_that_cannot_be_split_is_bad_as_a_whole(value: bytes, reason: Reason) -> None:
    """Such a record counts as one entry, which is dead for a reason that says what to look for."""
    decoded = decode(value)
    assert entries_of(decoded) == []
    assert reasons(decoded) == [(None, reason)]


@pytest.mark.parametrize(
    ("element", "reason"),
    [
        (b"yes", Reason.MALFORMED),
        (b"", Reason.MALFORMED),
        (b"\x0c", Reason.MALFORMED),
        (b'\x0c{"a": 1}', Reason.MALFORMED),
        (b"NaN", Reason.MALFORMED),
        (b'{"a": NaN}', Reason.MALFORMED),
        (b'{"a": 1 "b": 2}', Reason.MALFORMED),
        (b"Infinity", Reason.MALFORMED),
        (b'{"a": -Infinity}', Reason.MALFORMED),
        (b"[1,]", Reason.MALFORMED),
        (b"{'a': 1}", Reason.MALFORMED),
        (b'{"a": 1,}', Reason.MALFORMED),
        (b'{"a": 01}', Reason.MALFORMED),
        (b'{"a": "\t"}', Reason.MALFORMED),
        (b'"\x00"', Reason.MALFORMED),
        (b"\xc0\x80", Reason.INVALID_UNICODE),
        (rb'{"a": ["\ud800\ud800"]}', Reason.INVALID_UNICODE),
        (b'{"a": "\xff"}', Reason.INVALID_UNICODE),
        (b'{"a": "\\ud83d"}', Reason.INVALID_UNICODE),
        (b'{"\\udc00": 1}', Reason.INVALID_UNICODE),
        (b"[" * 5_000 + b"]" * 5_000, Reason.TOO_DEEP),
        (b"1", Reason.NOT_AN_OBJECT),
        (b"null", Reason.NOT_AN_OBJECT),
        (b'[{"a": 1}]', Reason.NOT_AN_OBJECT),
    ],
)
@pytest.mark.parametrize("form", [b"[%s]", b'{"v": 7, "entries": [%s]}'])
def test_bad_element_of_array_or_envelope_costs_its_neighbours_nothing(
    form: bytes, element: bytes, reason: Reason
) -> None:
    """The elements around it are decoded, with the indexes they always had; it alone is dead."""
    decoded = decode(form % (b'{"n": 0}, %s, {"n": 2}' % element), field="entries")
    assert entries_of(decoded) == [(0, {"n": 0}), (2, {"n": 2})]
    assert reasons(decoded) == [(1, reason)]
    assert around(decoded) == ({"v": 7} if form.startswith(b"{") else None)


@pytest.mark.parametrize("number", [b"1e400", b"1e-99999999999999999999999", b"0e99999999999999999999999", b"7" * 5000])
def test_number_of_any_form_is_no_reason_to_refuse_an_entry(number: bytes) -> None:
    """Numbers beyond what Python holds are taken, whichever decoder meets them."""
    for text in (b'[{"n": %s}]', b'[{"n": %s}, yes]'):
        assert len(decode(text % number).entries) == 1


@pytest.mark.parametrize(
    ("form", "value", "texts"),
    [
        ("json", b'\n {"n": 1, "n": 2} ', [b'\n {"n": 1, "n": 2} ']),
        ("json", gzip.compress(b'{"n": 1}', mtime=0), [b'{"n": 1}']),
        ("json", b'{"n": %s}' % (b"7" * 5000), [b'{"n": %s}' % (b"7" * 5000)]),
        ("json", b'{"entries": [ {"n": 1} , {"n":2}]}', [b'{"n": 1}', b'{"n":2}']),
        ("json", b'{"entries": [{"n": 1}], "n": %s}' % (b"7" * 5000), [b'{"n": 1}']),
        ("json", b'[{"n": 1}\n,{"n": 2}]', [b'{"n": 1}', b'{"n": 2}']),
        ("ndjson", b'{"n": 1}\r\n\x0b\n {"n": 2}\n', [b'{"n": 1}\r', b' {"n": 2}']),
    ],
)
def test_text_of_each_entry_is_its_part_of_the_record(form: Form, value: bytes, texts: list[bytes]) -> None:
    """A row is kept as the text that the producer wrote; separators belong to no entry."""
    assert [text for _, _, text, _ in decode(value, form, field="entries").entries] == texts


def test_topic_with_an_entries_path_may_carry_all_forms_at_once() -> None:
    """An object without the field is an entry; an envelope's other fields are kept beside its entries."""
    assert decode(b'{"n": 1}', field="entries") == RecordContent([(0, {"n": 1}, b'{"n": 1}', None)], [], 8)
    assert entries_of(decode(b'[{"n": 1}]', field="entries")) == [(0, {"n": 1})]
    decoded = decode(b'{"user": "ann", "entries": [{"n": 1}, {"n": 2}]}', field="entries")
    assert (entries_of(decoded), around(decoded)) == ([(0, {"n": 1}), (1, {"n": 2})], {"user": "ann"})


@pytest.mark.parametrize(
    ("value", "entries", "envelope"),
    [
        (b'[{"a": 1},]', [(0, {"a": 1})], None),
        (b"[,]", [], None),
        (b'[{"entries": []}]', [(0, {"entries": []})], None),
        (b'{"entries": [{"a": 1}, 2], "z": {"y": []}}', [(0, {"a": 1})], {"z": {"y": []}}),
        (rb'{"n" : 1, "\u006e": 2, "entries": [yes]}', [], None),
        (b'{"x:y,\\"z": 1, "entries": [yes]}', [], None),
        (b'{"entries": [], "n": %s}' % (b"7" * 5000), [], None),
        (rb'{"n" : 1, "\u006e": 2, "entries": [yes, {}]}', [(1, {})], {"n": 2}),
        (b'{"x:y,\\"z": 1, "entries": [yes, {}]}', [(1, {})], {'x:y,"z': 1}),
        (b'{"entries": [{}], "n": %s}' % (b"7" * 5000), [(0, {})], {"n": msgspec.Raw(b"7" * 5000)}),
    ],
)
def test_text_that_is_split_gives_its_elements_and_what_is_around_them(
    value: bytes, entries: list[Any], envelope: Any
) -> None:
    """Brackets and quotes alone tell where elements end; an element may be empty. The last of duplicate keys wins."""
    decoded = decode(value, field="entries")
    assert (entries_of(decoded), around(decoded)) == (entries, envelope)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b'{"entries": {"n": 1}}', Reason.ENTRIES_NOT_A_LIST),
        (b'{"entries": null}', Reason.ENTRIES_NOT_A_LIST),
        (b'{"entries": 1, "n": NaN}', Reason.MALFORMED),
        (b'{"entries": NaN}', Reason.MALFORMED),
        (b'{"entries": [}, "n": 1}', Reason.MALFORMED),
        (b'{"a"}', Reason.MALFORMED),
        (b"{1: 2}", Reason.MALFORMED),
        (b'{"a": 1,}', Reason.MALFORMED),
        (b'{"\x01": 1, "entries": [yes]}', Reason.MALFORMED),
        (b'{"host": x, "entries": [{"a": 1}]}', Reason.MALFORMED),
        (b'{"\\ud800": 1}', Reason.INVALID_UNICODE),
        (b'{"\\ud800": 1, "entries": [{}]}', Reason.INVALID_UNICODE),
        (b'{"a": "\\ud800", "entries": [{}]}', Reason.INVALID_UNICODE),
    ],
)
def test_envelope_that_is_damaged_around_its_entries_is_bad_as_a_whole(value: bytes, reason: Reason) -> None:
    """The damaged part may have held user and time, so no entry is guessed."""
    assert reasons(decode(value, field="entries")) == [(None, reason)]


@pytest.mark.parametrize(
    "value",
    [b"[" + b",".join([b"{}"] * 4) + b"]", b"[{},{},{},yes]", b'{"e": [{},{},{},{}]}', b'{"e": [{},{},{},yes]}'],
)
def test_record_with_more_entries_than_allowed_is_bad_as_a_whole(value: bytes) -> None:
    """The limit holds for all forms, on the fast and on the tolerant way."""
    assert reasons(decode(value, field="e", entries_max=3)) == [(None, Reason.TOO_MANY_ENTRIES)]
    decoded = decode(value, field="e", entries_max=4)
    assert len(decoded.entries) + len(decoded.bad) == 4


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("value", "form"),
    [
        (b"[" + b"," * 900_000 + b"]", "json"),
        (b"a\n" * 450_000, "ndjson"),
        (b"\n" * 900_000, "ndjson"),
        (b'{"e":[' + b"x," * 100_000 + b"1]}", "json"),
    ],
)
def test_record_of_nothing_but_separators_costs_little(value: bytes, form: Form) -> None:
    """Elements are counted before they are decoded: no list of a million refusals fills the memory (DESIGN 4.5)."""
    tracemalloc.start()
    try:
        decoded = RecordDecoder(rules_of(form, field="e")).decode(value)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 * MEGABYTE
    assert reasons(decoded) in ([(None, Reason.TOO_MANY_ENTRIES)], [])


COMPRESS = pytest.mark.parametrize("compress", [gzip.compress, zstd.compress])


@COMPRESS
def test_compressed_value_is_recognised_by_its_first_bytes(compress: Any) -> None:
    """Both gzip and zstd, in one member or frame or in several."""
    text = json.dumps([GOOD] * 3).encode()
    assert decode(compress(text)) == decode(text)
    assert decode(compress(text[:10]) + compress(b"") + compress(text[10:])) == decode(text)
    assert decode(compress(b"")) == decode(None)


def test_zeros_behind_a_gzip_member_are_padding() -> None:
    """A gzip file may be padded; behind zstd nothing may stand."""
    assert entries_of(decode(gzip.compress(b"{}") + b"\0" * 10)) == [(0, {})]
    assert reasons(decode(zstd.compress(b"{}") + b"\0" * 10)) == [(None, Reason.DECOMPRESSION)]


@COMPRESS
def test_decompression_bomb_is_refused_within_the_memory_of_the_limit(compress: Any) -> None:
    """Fifty megabytes out of fifty kilobytes are never held (DESIGN 4.5)."""
    bomb = compress(b" " * (50 * MEGABYTE))
    tracemalloc.start()
    try:
        decoded = RecordDecoder(rules_of()).decode(bomb)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert reasons(decoded) == [(None, Reason.RECORD_TOO_LARGE)]
    assert peak < 8 * MEGABYTE


@COMPRESS
def test_value_of_exactly_the_limit_passes_and_one_byte_more_does_not(compress: Any) -> None:
    """The limit is on the decompressed size, inclusive."""
    text = b'{"a": 1}'.ljust(MEGABYTE)
    assert decode(text) == decode(compress(text)) == RecordContent([(0, {"a": 1}, text, None)], [], MEGABYTE)
    assert reasons(decode(compress(text + b" "))) == [(None, Reason.RECORD_TOO_LARGE)]


@pytest.mark.timeout(20)
@COMPRESS
def test_many_empty_members_take_linear_time(compress: Any) -> None:
    """Thousands of empty members or frames are no work for minutes (DESIGN 4.5)."""
    empty = compress(b"")
    assert RecordDecoder(rules_of()).decode(empty * 10_000).bad == []


def test_bad_entry_says_in_its_message_what_it_is() -> None:
    """The message names the kind of value, never the value."""
    assert decode(b'["secret"]').bad == [BadEntry(0, Reason.NOT_AN_OBJECT, "an entry is an object, not str")]
