"""The metadata of a committed offset: the topic id always, root state as far as there is room; unknown is no error."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from log_partitioner.formats.model import RootLink
from log_partitioner.formats.offset_metadata import BYTES_MAX, OffsetMetadata, decode, encode

TOPIC_ID = "LbB5g8fUQ9-bXqQm1cN2yA"
ROOTS = (RootLink("raw-a", 3, 17), RootLink("größe", 0, 2**63 - 1, 2**31 - 1))

roots = st.lists(
    st.builds(
        RootLink,
        st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=249),
        st.integers(0, 2**31 - 1),
        st.integers(0, 2**63 - 1),
        st.none() | st.integers(0, 2**31 - 1),
    ),
    unique_by=lambda root: (root.topic, root.partition),
)


def test_metadata_is_versioned_json() -> None:
    """Its form is a contract with every worker of the group, older and newer ones."""
    assert encode(TOPIC_ID) == ('{"v":1,"topic_id":"LbB5g8fUQ9-bXqQm1cN2yA","roots":{}}', 0)
    assert encode(None) == ('{"v":1,"topic_id":null,"roots":{}}', 0)
    assert json.loads(encode(TOPIC_ID, ROOTS).text) == {
        "v": 1,
        "topic_id": TOPIC_ID,
        "roots": {"raw-a-3": [17], "größe-0": [2**63 - 1, 2**31 - 1]},
    }


@given(st.none() | st.just(TOPIC_ID), roots)
def test_metadata_comes_back_but_for_the_least_recently_used_roots(topic_id: str | None, some: list[RootLink]) -> None:
    """Never more than the broker takes; the id stays whatever happens."""
    text, dropped = encode(topic_id, some)
    assert len(text.encode()) <= BYTES_MAX
    assert decode(text) == OffsetMetadata(topic_id, tuple(some[dropped:]), is_ours=True)


def test_roots_are_dropped_only_where_there_is_no_room() -> None:
    """To the byte: the same roots without the last one's last character fit."""
    some = [RootLink("x" * 249, number, 10**9) for number in range(14)]
    left = BYTES_MAX - len(encode(TOPIC_ID, some).text.encode())
    name = "y" * (left - len(',"-0":[1]'))
    assert encode(TOPIC_ID, [RootLink(name, 0, 1), *some]).dropped == 0
    assert len(encode(TOPIC_ID, [RootLink(name, 0, 1), *some]).text) == BYTES_MAX
    assert encode(TOPIC_ID, [RootLink(name + "y", 0, 1), *some]).dropped == 1


@pytest.mark.parametrize(
    "text",
    [
        "", "x", "[]", "null", "{}", '{"v":2,"topic_id":"a","roots":{}}', '{"v":"1","topic_id":"a"}',
        '{"v":1,"topic_id":7}', '{"v":1,"topic_id":"a","roots":{"raw-x":[1]}}', '{"v":1,"roots":{"raw-1":[]}}',
        '{"v":1,"roots":{"raw-1":[-1]}}', '{"v":1,"roots":{"raw-1":[1,2,3]}}', '{"v":1,"topic_id":"a"', "[" * 5000,
    ],
)  # fmt: skip
def test_what_is_not_of_this_version_is_unknown(text: str) -> None:
    """Another tool, an administrator, a newer worker: unknown, never different, and not ours."""
    assert decode(text) == OffsetMetadata(None, ())


def test_nul_that_the_client_library_adds_is_no_part_of_it() -> None:
    """Readers with another client library get it to see."""
    assert decode(encode(TOPIC_ID, ROOTS).text + "\0") == OffsetMetadata(TOPIC_ID, ROOTS, is_ours=True)


@given(st.text(max_size=60))
def test_no_text_raises(text: str) -> None:
    """Anybody may have committed anything."""
    decode(text)
