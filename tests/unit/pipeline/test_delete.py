"""Objects are deleted a thousand at a time; what S3 refuses is asked for again, and then an error."""

from collections.abc import Iterator

import pytest
from botocore.stub import Stubber

from log_partitioner.config.s3_settings import S3Settings
from log_partitioner_pipeline import objects
from log_partitioner_pipeline.errors import ObjectError
from log_partitioner_pipeline.objects import Objects

BUCKET = "retired"


@pytest.fixture
def stubbed(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Objects, Stubber]]:
    """Objects of a client that answers what it is told."""
    monkeypatch.setattr(objects, "_DELETE_AGAIN_S", 0)
    settings = {"bucket": BUCKET, "endpoint_url": "http://127.0.0.1:1", "access_key": "a", "secret_key": "s"}
    store = Objects(S3Settings.model_validate(settings), threads=1)
    with Stubber(store._client) as stubber:
        yield store, stubber


def expect(stubber: Stubber, keys: list[str], *, refused: dict[str, str] | None = None) -> None:
    """Expect a request for these keys; some are refused, with a code."""
    asked = {"Objects": [{"Key": key} for key in keys], "Quiet": True}
    errors = [{"Key": key, "Code": code, "Message": "no"} for key, code in (refused or {}).items()]
    stubber.add_response("delete_objects", {"Errors": errors}, {"Bucket": BUCKET, "Delete": asked})


def addresses(keys: list[str]) -> list[tuple[str, str, str | None]]:
    """Give keys as addresses."""
    return [(BUCKET, key, None) for key in keys]


def test_more_than_s3_takes_at_once(stubbed: tuple[Objects, Stubber]) -> None:
    """Two requests for 1001 objects."""
    store, stubber = stubbed
    keys = [f"{number}" for number in range(1001)]
    expect(stubber, keys[:1000])
    expect(stubber, keys[1000:])
    store.delete(addresses(keys))
    stubber.assert_no_pending_responses()


def test_refused_once(stubbed: tuple[Objects, Stubber]) -> None:
    """Only what was refused is asked for again; what is not there is deleted."""
    store, stubber = stubbed
    expect(stubber, ["a", "b", "c"], refused={"b": "InternalError", "c": "NoSuchKey"})
    expect(stubber, ["b"])
    store.delete(addresses(["a", "b", "c"]))
    stubber.assert_no_pending_responses()


def test_refused_for_good(stubbed: tuple[Objects, Stubber]) -> None:
    """The error names an object, and why."""
    store, stubber = stubbed
    for _ in range(objects._DELETE_ATTEMPTS):
        expect(stubber, ["a"], refused={"a": "AccessDenied"})
    with pytest.raises(ObjectError, match=r"1 objects of retired cannot be deleted, the first is a: AccessDenied no"):
        store.delete(addresses(["a"]))
