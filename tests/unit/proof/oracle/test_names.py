"""Avro names by the audit's own rule: those that the worker gives."""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from log_partitioner.avro.names import avro_names as names_of_the_worker
from log_partitioner.proof.oracle.published_schema import names_by_original

NAMES = st.sets(st.text(alphabet="aAbB_2 -é1", max_size=4) | st.text(max_size=3), max_size=12)


@settings(max_examples=300)
@given(originals=NAMES)
@example(originals={"a", "A", "a_2", "A_2"})
@example(originals={"_meta", "_META", ""})
def test_names_are_those_of_the_worker(originals: set[str]) -> None:
    """Both follow from the original names alone, by two pieces of code."""
    for reserved in (), ("_meta",):
        names = {original: [name] for original, name in names_of_the_worker(originals, reserved=reserved).items()}
        assert names_by_original(originals, reserved=reserved) == names


def test_names_are_legal_and_distinct_without_case() -> None:
    """One keeps its name, others get the first number that no name has or wants; other characters are code points."""
    expected = {
        "1": "_1",
        "_1": "_1_2",
        "A": "A",
        "a": "a_3",
        "a-b": "a_x2Db",
        "a_2": "a_2",
        "é": "_xE9",
        "😀": "_x1F600",
    }
    assert names_of_the_worker(expected) == expected
    assert names_by_original(set(expected)) == {original: [name] for original, name in expected.items()}
