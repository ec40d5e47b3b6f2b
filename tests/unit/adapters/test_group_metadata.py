"""Group metadata: two fields of the library's bytes; bytes that cannot be read prove nothing."""

from __future__ import annotations

import struct

import confluent_kafka
import pytest
from hypothesis import given
from hypothesis import strategies as st

from log_partitioner.adapters.kafka.values import parse_group_metadata


def written(generation: int, group: str, member: str, instance: str | None = None) -> bytes:
    """Write metadata as rd_kafka_consumer_group_metadata_write does (librdkafka 2.16)."""
    raw = b"CGMDv2:" + struct.pack("<i", generation) + group.encode() + b"\0" + member.encode() + b"\0"
    return raw + (b"\1" if instance is None else b"\0" + instance.encode() + b"\0")


TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"))


@given(st.integers(1, 2**31 - 1) | st.just(256), TEXTS, TEXTS.filter(bool), st.none() | TEXTS)
def test_generation_and_member_id_are_read(generation: int, group: str, member: str, instance: str | None) -> None:
    """The bytes around them do not matter, nor does a NUL in the generation; the bytes are kept as they came."""
    raw = written(generation, group, member, instance)
    membership = parse_group_metadata(raw)
    assert (membership.generation, membership.member_id, membership.raw) == (generation, member, raw)
    assert membership.is_proof


@pytest.mark.parametrize(
    ("generation", "member"), [(-1, ""), (-1, "member"), (5, ""), (0, "member-of-kip-848-that-was-put-out")]
)
def test_finding_3_what_no_broker_checks_is_no_proof(generation: int, member: str) -> None:
    """Before the first join, after the session, after ILLEGAL_GENERATION."""
    assert not parse_group_metadata(written(generation, "group", member)).is_proof


@pytest.mark.parametrize(
    "raw",
    [
        None, b"", b"CGMDv1:xxxxgroup\0member\0", b"CGMDv2:", b"CGMDv2:\1\0", b"CGMDv2:\5\0\0\0",
        b"CGMDv2:\5\0\0\0group",
        b"CGMDv2:\5\0\0\0group\0member-without-end", b"CGMDv2:\5\0\0\0group\0\xff\xfe\0\1",
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_no_proof(raw: bytes | None) -> None:
    """Another layout, a cut one or garbage is refused like empty metadata, and never raises."""
    assert not parse_group_metadata(raw).is_proof


@given(st.binary(max_size=40).map(lambda tail: b"CGMDv2:" + tail) | st.binary(max_size=60))
def test_no_bytes_raise(raw: bytes) -> None:
    """The parser takes any bytes of the library."""
    parse_group_metadata(raw)


def test_layout_is_that_of_the_installed_library() -> None:
    """A consumer that never joined has generation -1 and no member id, in the layout that is read here."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": "127.0.0.1:1", "group.id": "the-group", "log_level": 0, "error_cb": lambda _error: None}
    )
    raw = consumer.consumer_group_metadata()
    assert bytes(raw) == written(-1, "the-group", "")
    assert parse_group_metadata(raw)[:3] == (-1, "", raw)
    consumer.close()
