"""Object keys as downstream tools see them (DESIGN 3.4)."""

from log_partitioner.formats.model import PartitionKey
from log_partitioner.formats.object_key import data_key, dead_letter_key, pack_key, schema_key, stored_record_key


def test_key_of_another_attempt_or_number_differs() -> None:
    """No object is ever overwritten: an attempt that may have left something gets another key."""
    key, hour = PartitionKey("ann", "2024-05-01", 7), ("2024-05-01", 7)
    for name in (
        lambda number, attempt: data_key("logs", key, batch_id="b1", number=number, attempt=attempt),
        lambda number, attempt: pack_key("logs", hour, batch_id="b1", number=number, attempt=attempt),
        lambda number, attempt: pack_key("logs", None, batch_id="b1", number=number, attempt=attempt),
    ):
        assert len({name(number, attempt) for number in range(20) for attempt in range(4)}) == 80


def test_keys_of_schemas_and_dead_letters_lie_beside_the_users() -> None:
    """No reader can take one for a user's directory."""
    assert schema_key("logs", "ab12") == "logs/_schemas/ab12.avsc"
    assert dead_letter_key("logs", batch_id="b1", number=2) == "logs/_dead-letters/b1-2"
    assert stored_record_key("logs", batch_id="b1", number=2) == "logs/_dead-letters/b1-2.record.json"
