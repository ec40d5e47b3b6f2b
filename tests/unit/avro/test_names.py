"""Original keys to Avro names by literal cases (DESIGN 3.3)."""

import itertools

import pytest

from log_partitioner.avro.names import avro_names, sanitise


@pytest.mark.parametrize(
    ("original", "name"),
    [("_private", "_private"), ("1a", "_1a"), ("@timestamp", "_x40timestamp"), ("a.b", "a_x2Eb"), ("é", "_xE9"),
     ("😀", "_x1F600"), ("\0", "_x0"), ("²", "_xB2"), ("٣", "_x663"), ("", "_"), ("a\n", "a_xA")],
)  # fmt: skip
def test_sanitised_name_follows_icebergs_rule(original: str, name: str) -> None:
    """A leading digit gets `_`, other characters become `_x` and their code point; only ASCII is legal in Avro."""
    assert sanitise(original) == name


@pytest.mark.parametrize(
    ("originals", "names"),
    [
        ({"a", "A"}, {"A": "A", "a": "a_2"}),
        ({"a-b", "a_x2Db"}, {"a-b": "a_x2Db", "a_x2Db": "a_x2Db_2"}),
        ({"a", "A", "a_2"}, {"A": "A", "a": "a_3", "a_2": "a_2"}),
        ({"a", "A", "A_2", "a_2"}, {"A": "A", "A_2": "A_2", "a": "a_3", "a_2": "a_2_2"}),
        ({"", "_"}, {"": "_", "_": "__2"}),
        ({"1", "_1"}, {"1": "_1", "_1": "_1_2"}),
        ({"e\u0301", "é"}, {"e\u0301": "e_x301", "é": "_xE9"}),
    ],
)
def test_names_that_collide_are_numbered_in_code_point_order(originals: set[str], names: dict[str, str]) -> None:
    """Also those that differ by case alone, and never onto a name that another key asks for."""
    assert avro_names(originals) == names


def test_reserved_name_is_a_collision_like_any_other() -> None:
    """An entry's own `_meta` and `_META` give way."""
    assert avro_names({"_meta", "_META"}, reserved=("_meta",)) == {"_META": "_META_2", "_meta": "_meta_3"}


@pytest.mark.timeout(20)
def test_thousands_of_names_that_collide_take_linear_time() -> None:
    """All spellings of twelve letters are 4,096 collisions in one record (DESIGN 4.5)."""
    spellings = {"".join(letters) for letters in itertools.product(*((c, c.upper()) for c in "abcdefghijkl"))}
    names = avro_names(spellings)
    assert {name.lower() for name in names.values()} == {"abcdefghijkl", *(f"abcdefghijkl_{n}" for n in range(2, 4097))}
