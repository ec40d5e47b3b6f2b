"""The metadata of a committed offset: unknown is no error."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from log_partitioner.formats.offset_metadata import OffsetMetadata, decode, encode

TOPIC_ID = "LbB5g8fUQ9-bXqQm1cN2yA"


def test_metadata_is_versioned_json() -> None:
    """Its form is a contract with every worker of the group, older and newer ones."""
    assert encode(TOPIC_ID) == '{"v":1,"topic_id":"LbB5g8fUQ9-bXqQm1cN2yA"}'
    assert encode(None, set_ms=5) == '{"v":1,"topic_id":null,"set_ms":5}'


@given(st.none() | st.just(TOPIC_ID), st.none() | st.integers(0, 2**63 - 1))
def test_metadata_comes_back(topic_id: str | None, set_ms: int | None) -> None:
    """All of it; a newer worker may say more."""
    text = encode(topic_id, set_ms=set_ms)
    assert decode(text) == OffsetMetadata(topic_id, set_ms, is_ours=True)
    assert decode(text[:-1] + ',"new":{}}') == OffsetMetadata(topic_id, set_ms, is_ours=True)


@pytest.mark.parametrize(
    "text",
    [
        "", "x", "[]", "null", "{}", '{"v":2,"topic_id":"a"}', '{"v":"1","topic_id":"a"}', '{"v":1,"topic_id":7}',
        '{"v":1}', '{"v":1,"topic_id":"a","set_ms":-1}', '{"v":1,"topic_id":"a"', "[" * 5000,
    ],
)  # fmt: skip
def test_what_is_not_of_this_version_is_unknown(text: str) -> None:
    """Another tool, an administrator, a newer worker: unknown, never different, and not ours."""
    assert decode(text) == OffsetMetadata()


def test_nul_that_the_client_library_adds_is_no_part_of_it() -> None:
    """Readers with another client library get it to see."""
    assert decode(encode(TOPIC_ID) + "\0") == OffsetMetadata(TOPIC_ID, is_ours=True)


@given(st.text(max_size=60))
def test_no_text_raises(text: str) -> None:
    """Anybody may have committed anything."""
    decode(text)
