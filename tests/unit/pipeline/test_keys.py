"""A reference is told apart from the key of its object: who looks by path must find the same."""

import pytest
from msgspec.structs import replace

from log_partitioner.formats.model import PartitionKey
from log_partitioner.formats.object_key import data_key, pack_key
from log_partitioner.formats.reference import Reference
from log_partitioner_pipeline.audit.statements import is_under_its_key
from tests.pipeline.packs import KEY, Entry, write_object

(REFERENCE,) = write_object([Entry(KEY, {"n": 1})]).references


def reference_to(key: str, user: str) -> Reference:
    """Make a reference to an object, of this user at five o'clock."""
    location = replace(REFERENCE.location, object=key)
    return replace(REFERENCE, location=location, partition_key=PartitionKey(user, "2026-03-04", 5))


@pytest.mark.parametrize("user", ["u", "a/b:c@d", "user=/date=x", "ä ö", "~", "%41", "A" * 100, "Ü" * 4000])
def test_a_key_names_its_users_hour(user: str) -> None:
    """Whatever the user is called: as the worker writes it, it is right, and nothing else is."""
    key = data_key("p/user=x/date=y", PartitionKey(user, "2026-03-04", 5), batch_id="b", number=1)
    one = reference_to(key, user)
    assert is_under_its_key(one)
    assert not is_under_its_key(reference_to(key, user + "!"))
    assert not is_under_its_key(replace(one, partition_key=PartitionKey(user, "2026-03-05", 5)))
    assert not is_under_its_key(replace(one, partition_key=PartitionKey(user, "2026-03-04", 6)))
    assert is_under_its_key(reference_to("p/b-1.avro", user))


def test_a_key_of_a_pack_names_its_hour_if_it_has_one() -> None:
    """Whoever is in it, and nothing where it is of several hours."""
    one = reference_to(pack_key("p", ("2026-03-04", 5), batch_id="b", number=1), "u")
    assert is_under_its_key(one)
    assert not is_under_its_key(replace(one, partition_key=PartitionKey("u", "2026-03-04", 6)))
    assert not is_under_its_key(replace(one, partition_key=PartitionKey("u", "2026-03-05", 5)))
    assert is_under_its_key(reference_to(pack_key("p", None, batch_id="b", number=1), "u"))
