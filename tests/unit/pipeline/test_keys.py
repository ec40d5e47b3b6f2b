"""A reference is told apart from the key of its object: who looks by path must find the same."""

import pytest
from msgspec.structs import replace

from pipeline.audit.executors import _is_under_its_key
from service.core.model import PartitionKey
from service.core.object_key import data_key
from service.core.reference import Partition, Reference
from tests.fakes.references import REFERENCE


def reference_to(key: str, user: str) -> Reference:
    """Make a reference to an object, of this user at five o'clock."""
    location = replace(REFERENCE.location, object=key)
    return replace(REFERENCE, location=location, partition=Partition(user, "2026-03-04", 5))


@pytest.mark.parametrize("user", ["u", "a/b:c@d", "user=/date=x", "ä ö", "~", "%41", "A" * 100, "Ü" * 4000])
def test_a_key_names_its_users_hour(user: str) -> None:
    """Whatever the user is called: as the worker writes it, it is right, and nothing else is."""
    key = data_key("p/user=x/date=y", PartitionKey(user, "2026-03-04", 5), batch_id="b", number=1)
    one = reference_to(key, user)
    assert _is_under_its_key(one)
    assert not _is_under_its_key(reference_to(key, user + "!"))
    assert not _is_under_its_key(replace(one, partition=Partition(user, "2026-03-05", 5)))
    assert not _is_under_its_key(replace(one, partition=Partition(user, "2026-03-04", 6)))
    assert _is_under_its_key(reference_to("p/b-1.avro", user))
