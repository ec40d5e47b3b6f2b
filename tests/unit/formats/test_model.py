"""Plain values and what follows from their fields."""

import pytest

from log_partitioner.boundary import Membership
from log_partitioner.formats.model import SourceRecord, TopicPartition


def test_topic_partition_is_named_as_kafka_names_it() -> None:
    """In logs and messages."""
    assert str(TopicPartition("app", 3)) == "app-3"


def test_size_of_a_record_counts_key_value_and_headers() -> None:
    """A limit counts their bytes; nulls have none."""
    record = SourceRecord(TopicPartition("app", 3), 0, None, b"key", b"value", (("h", b"12"), ("none", None)))
    assert record.size == 3 + 5 + 3 + 4
    assert record._replace(key=None, value=None, headers=()).size == 0


@pytest.mark.parametrize(
    ("generation", "member_id", "is_proof"),
    [(1, "m", True), (7, "m", True), (0, "m", False), (-1, "m", False), (7, "", False)],
)
def test_membership_without_generation_or_member_id_is_no_proof(
    generation: int, member_id: str, *, is_proof: bool
) -> None:
    """A broker would not fence such metadata, so nothing is sent with it (KAFKA_FACTS F3)."""
    assert Membership(generation, member_id, raw=None).is_proof is is_proof
