"""Avro names of fields: legal, distinct without case, and the same for the same set (DESIGN 3.3)."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from log_partitioner.avro.names import avro_names, sanitise

LEGAL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
colliding = st.lists(st.sampled_from(["a", "A", "a_2", "A_2", "a-b", "a_x2Db", "A-B", "a_x2db", "", "_", "_1", "1"]))
sets_of_names = st.sets(st.text(max_size=5)) | colliding.map(set)


@given(sets_of_names)
@example({"a", "A", "a_2", "A_2", "a_3"})
def test_names_of_any_set_of_keys_are_legal_and_distinct_without_case(originals: set[str]) -> None:
    """Every key gets a name, legal in Avro, and no two are the same for a reader that ignores case."""
    names = avro_names(originals, reserved=("_meta",))
    assert names.keys() == originals
    assert all(map(LEGAL.match, names.values()))
    assert len({name.lower() for name in names.values()} | {"_meta"}) == len(originals) + 1


@given(sets_of_names, st.randoms(use_true_random=False))
def test_names_of_the_same_set_in_another_order_are_the_same(originals: set[str], random: Any) -> None:
    """Names depend on the set of keys alone."""
    shuffled = random.sample(sorted(originals), len(originals))
    assert avro_names(shuffled) == avro_names(originals)


@given(st.text(alphabet=st.characters(max_codepoint=127), min_size=1))
def test_name_of_one_key_alone_is_icebergs(original: str) -> None:
    """Without a collision the name is what Iceberg's AvroSchemaUtil makes of it."""
    assert avro_names([original]) == {original: iceberg_name(original)}


@given(sets_of_names)
@example({"a", "A", "a_2", "A_2", "a_3"})
def test_name_that_collides_with_nobody_is_the_sanitised_one(originals: set[str]) -> None:
    """A number is added to those that collide only, and the first of them in code-point order keeps the plain name."""
    names = avro_names(originals)
    by_lower: dict[str, list[str]] = {}
    for original in sorted(originals):
        by_lower.setdefault(sanitise(original).lower(), []).append(original)
    for first, *_ in by_lower.values():
        assert names[first] == sanitise(first)


def iceberg_name(original: str) -> str:
    """Sanitise as Iceberg does: first character, then the others, each by its own."""
    first, rest = original[0], original[1:]
    out = first if first.isalpha() or first == "_" else _iceberg_character(first)
    return out + "".join(c if c.isalnum() or c == "_" else _iceberg_character(c) for c in rest)


def _iceberg_character(character: str) -> str:
    return f"_{character}" if character.isdigit() else f"_x{ord(character):X}"


@pytest.mark.timeout(20)
def test_thousands_of_names_that_collide_take_linear_time() -> None:
    """All spellings of twelve letters are 4,096 collisions in one record (DESIGN 4.5)."""
    spellings = {"".join(letters) for letters in itertools.product(*((c, c.upper()) for c in "abcdefghijkl"))}
    names = avro_names(spellings)
    assert {name.lower() for name in names.values()} == {"abcdefghijkl", *(f"abcdefghijkl_{n}" for n in range(2, 4097))}
