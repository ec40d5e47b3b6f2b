"""An adoption, and what it makes one history: held to the golden file of format 1."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from log_partitioner.formats.flush_record import (
    ADOPTED_AT_ONCE,
    AdoptedTopicPartition,
    Adoption,
    Lineage,
    adoptions_of,
    decode_adoption,
    decode_flushes,
    heads,
)
from tests.golden.example import ADOPTION, FLUSH_RECORD, GOLDEN


def adopts(group_id: str, from_group: str, *next_offsets: int, topic_id: str | None = None) -> Adoption:
    """Make an adoption of app-0, app-1 ... up to these offsets."""
    lines = tuple(
        AdoptedTopicPartition(topic="app", partition=number, next_offset=offset)
        for number, offset in enumerate(next_offsets)
    )
    ids = {"app": topic_id} if topic_id else {}
    return Adoption(group_id=group_id, from_group=from_group, topic_ids=ids, adopted_at_ms=1, topic_partitions=lines)


def flushed(group_id: str, *next_offsets: int) -> Any:
    """Make a flush record of app-0, app-1 ... up to these offsets."""
    line = FLUSH_RECORD.topic_partitions[0]
    lines = tuple(
        msgspec.structs.replace(line, partition=number, next_offset=offset)
        for number, offset in enumerate(next_offsets)
    )
    return msgspec.structs.replace(FLUSH_RECORD, group_id=group_id, topic_partitions=lines)


def test_message_of_the_flushes_topic_is_read_as_what_it_is() -> None:
    """Without a look at its headers."""
    adoption, record = (GOLDEN / "adoption.json").read_bytes(), (GOLDEN / "flush_record.json").read_bytes()
    assert decode_flushes(adoption) == decode_adoption(adoption) == ADOPTION
    assert decode_flushes(record) == FLUSH_RECORD


@pytest.mark.parametrize(
    "value", [b"", b"{}", b"[]", b"\xff", b'{"from_group": 1}', b'{"from_group": "a"}', b"[" * 5000]
)
def test_message_that_is_neither_is_refused(value: bytes) -> None:
    """As a flush record is."""
    with pytest.raises(msgspec.DecodeError):
        decode_flushes(value)


def test_adoption_of_a_later_version_is_refused() -> None:
    """Never guessed at."""
    with pytest.raises(msgspec.DecodeError, match="format_version 2"):
        decode_flushes(msgspec.json.encode(msgspec.structs.replace(ADOPTION, format_version=2)))


A_TO_B = adopts("b", "a", 100)
TWICE = [A_TO_B, adopts("c", "b", 500)]
BY_ID = [adopts("b", "a", 100, topic_id="one")]


@pytest.mark.parametrize(
    ("group_id", "adoptions", "asked", "has"),
    [
        ("b", [adopts("c", "a", 100)], ("b", "app", 0, 10**9), True),
        ("b", [adopts("c", "a", 100)], ("a", "app", 0, 1), False),
        ("b", [adopts("c", "a", 100)], ("c", "app", 0, 1), False),
        ("b", [A_TO_B], ("a", "app", 0, 100), True),
        ("b", [A_TO_B], ("a", "app", 0, 101), False),
        ("b", [A_TO_B], ("a", "app", 1, 1), False),
        ("b", [A_TO_B], ("a", "web", 0, 1), False),
        ("a", [A_TO_B], ("b", "app", 0, 100), False),
        ("c", TWICE, ("a", "app", 0, 100), True),
        ("c", TWICE, ("a", "app", 0, 101), False),
        ("c", TWICE, ("b", "app", 0, 500), True),
        ("b", BY_ID, ("a", "app", 0, 100, "one"), True),
        ("b", BY_ID, ("a", "app", 0, 100), True),
        ("b", BY_ID, ("a", "app", 0, 100, "another"), False),
        ("b", [A_TO_B], ("a", "app", 0, 100, "any"), True),
    ],
)
def test_lineage_has_of_an_adopted_group_what_ends_at_the_adopted_offset(
    group_id: str, adoptions: list[Adoption], asked: tuple[Any, ...], *, has: bool
) -> None:
    """This holds for a group that was renamed twice; later offsets, and a topic that was made anew, are foreign."""
    assert Lineage(group_id, adoptions).has(*asked) is has


def test_groups_of_a_lineage_are_those_that_it_has_adopted() -> None:
    """Groups that adopted each other are refused by the command; a reader does not turn in circles over them."""
    assert Lineage("b", [adopts("c", "a", 100)]).groups == ("b",)
    assert Lineage("c", TWICE).groups == ("c", "b", "a")
    assert Lineage("b", [A_TO_B, adopts("a", "b", 200)]).groups == ("b", "a")


def test_flush_belongs_to_a_lineage_where_all_its_topic_partitions_do() -> None:
    """A batch is of one history or of none."""
    lineage = Lineage("b", [adopts("b", "a", 100, 200)])
    assert lineage.has_flush(flushed("a", 100, 150))
    assert not lineage.has_flush(flushed("a", 100, 201))
    assert lineage.has_flush(flushed("b", 900))


def test_heads_are_the_groups_that_nobody_has_adopted() -> None:
    """Each stands for one history."""
    adoptions = [adopts("b", "a", 100), adopts("c", "b", 500)]
    assert heads(["a", "b", "c", "other"], adoptions) == ["c", "other"]
    assert heads(["a"], []) == ["a"]


def test_adoption_of_very_many_topic_partitions_comes_in_messages_that_fit() -> None:
    """Each holds for its own; together they are the whole."""
    whole = adopts("b", "a", *range(ADOPTED_AT_ONCE + 1))
    first, second = adoptions_of(whole)
    assert [*first.topic_partitions, *second.topic_partitions] == list(whole.topic_partitions)
    assert Lineage("b", [first, second]).has_flush(flushed("a", *range(ADOPTED_AT_ONCE + 1)))
