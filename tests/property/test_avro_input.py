"""Avro payloads: whatever their schema, worker and second opinion read the same; a row holds it (docs/INPUTS.md)."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from log_partitioner.config.settings import InputSettings, SchemaBounds
from log_partitioner.input.decode import RecordDecoder
from log_partitioner.proof.oracle import decode as oracle
from tests.fakes.lanes import assert_decoded_alike
from tests.fakes.schemas import with_schema
from tests.property.reading import assert_reads_back
from tests.strategies import avro_inputs, times_as_many

LIMITS = SchemaBounds()
NUMBERS = [b"\xff" * 9 + b"\1", b"\xff" * 9 + b"\2", b"\xfe\xff\xff\xff\x0f", b"\x80" * 9 + b"\0", b"\x80" * 11]


def record_of(schema: Any) -> Any:
    """Put a schema into a record, between two fields."""
    before = {"name": "before", "type": "int"}
    return {"type": "record", "name": "Top", "fields": [before, {"name": "it", "type": schema}]}


def rules_of(schema: Any, **others: Any) -> InputSettings:
    """Make rules with small limits."""
    return with_schema(InputSettings(format="avro", record_bytes_max=3_000, **others), schema)


@times_as_many(4)
@given(avro_inputs(), st.sampled_from([None, "it", "it[]", "it.a", "it[].a[]", "a"]), st.booleans())
def test_payload_is_decoded_as_the_second_opinion_says(
    drawn: tuple[Any, bytes], entries_path: str | None, is_in_record: Any
) -> None:
    """Any type of Avro within any other, alone or in a record, with a path to entries and without."""
    schema, payload = drawn
    rules = rules_of(record_of(schema) if is_in_record else schema, entries_path=entries_path)
    value = b"\2" + payload if is_in_record else payload
    assert_decoded_alike(RecordDecoder(rules).decode(value), value, rules)


@times_as_many(4)
@given(avro_inputs())
def test_row_of_a_payload_reads_back_equal_and_has_the_type_of_the_second_opinion(drawn: tuple[Any, bytes]) -> None:
    """Each type and each logical type, with null and in unions of others."""
    schema, payload = drawn
    rules, value = rules_of(record_of(schema)), b"\2" + payload
    decoded = RecordDecoder(rules).decode(value)
    if not decoded.entries:
        return
    ((_, entry, text, _),) = decoded.entries
    (other,) = oracle.Decoder(rules).decode(value).entries
    assert_reads_back(entry, text, other.value)


@st.composite
def damaged(draw: st.DrawFn) -> tuple[Any, bytes]:
    """Write a payload, and cut, change or lengthen it in a few places; or write any bytes."""
    schema, payload = draw(avro_inputs())
    if draw(st.integers(0, 7)) == 0:
        payload = draw(st.binary(max_size=40))
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(payload)))
        some = draw(st.binary(max_size=3) | st.sampled_from(NUMBERS))
        payload = payload[:at] + some + payload[at + draw(st.integers(0, 3)) :]
    return schema, payload[: draw(st.integers(0, 60))] if draw(st.integers(0, 3)) == 0 else payload


@times_as_many(8)
@given(damaged())
def test_damaged_payload_is_dead_or_alive_as_the_second_opinion_says(drawn: tuple[Any, bytes]) -> None:
    """Never an exception, never more memory than a record may take, and a reason that both name."""
    schema, payload = drawn
    rules, value = rules_of(record_of(schema)), b"\2" + payload
    assert_decoded_alike(RecordDecoder(rules).decode(value), value, rules)
