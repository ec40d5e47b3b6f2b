"""The contract of every object store; subclass it with a `place` fixture."""

from __future__ import annotations

import hashlib
import zlib
from typing import NamedTuple, Protocol

import pytest

from log_partitioner.boundary import Clock, StoredObject
from log_partitioner.control.deadline import Deadline
from log_partitioner.errors import KeyTakenError, ReadBackError, UploadError
from log_partitioner.proof.live import StoredObjects
from log_partitioner.runtime.uploader import ObjectStore


class Reader(Protocol):
    """Reads an object by another way than the store under test."""

    def __call__(self, key: str) -> bytes | None:
        """Give the bytes, or None if there is no object."""
        ...


class Place(NamedTuple):
    """A store, a prefix that is this test's own, a clock for deadlines, and a reader."""

    store: ObjectStore
    prefix: str
    clock: Clock
    read: Reader
    bucket: str = "bucket"

    def put(self, name: str, body: bytes, seconds: float = 90.0) -> StoredObject:
        """Put an object with the checksums of its body."""
        return self.store.put(
            self.key(name),
            body,
            sha256=hashlib.sha256(body).digest(),
            crc32=zlib.crc32(body),
            metadata={"lp-batch-id": "b"},
            deadline=Deadline.after(seconds, self.clock.now_s),
        )

    def key(self, name: str) -> str:
        """Give a key of this test's own."""
        return f"{self.prefix}/user=a%20b%2Fc/{name}"

    def address(self, name: str) -> tuple[str, str, None]:
        """Name an object of this test's own as a reference does: bucket, key and version."""
        return self.bucket, self.key(name), None


class ObjectStoreContract:
    """Holds for the fake and for every S3."""

    def test_put_object_is_there_with_its_bytes(self, place: Place) -> None:
        """Under exactly this key, also with escapes in it."""
        stored = place.put("one.avro", b"body")
        assert stored.key == place.key("one.avro")
        assert stored.etag
        assert place.read(stored.key) == b"body"

    def test_empty_object_is_an_object(self, place: Place) -> None:
        """An oversized dead letter may have no value."""
        assert place.read(place.put("empty", b"").key) == b""

    def test_finding_9_object_is_never_overwritten(self, place: Place) -> None:
        """I12: a key that is taken stays what it is, whatever is put."""
        place.put("one.avro", b"first")
        with pytest.raises(KeyTakenError):
            place.put("one.avro", b"second")
        with pytest.raises(KeyTakenError):
            place.put("one.avro", b"first")
        assert place.read(place.key("one.avro")) == b"first"

    def test_body_with_another_checksum_is_never_stored(self, place: Place) -> None:
        """W4: the checksum is that of the file as it was written; the store refuses a body that differs."""
        with pytest.raises(UploadError):
            place.store.put(
                place.key("bad.avro"),
                b"body",
                sha256=hashlib.sha256(b"other").digest(),
                crc32=zlib.crc32(b"other"),
                metadata={},
                deadline=Deadline.after(90.0, place.clock.now_s),
            )
        assert place.read(place.key("bad.avro")) is None

    def test_put_after_the_deadline_stores_nothing(self, place: Place) -> None:
        """Nothing is begun that comes too late."""
        with pytest.raises(UploadError):
            place.put("late.avro", b"body", seconds=0.0)
        assert place.read(place.key("late.avro")) is None

    def test_object_is_given_back_and_one_that_is_not_there_is_not(self, place: Place) -> None:
        """As a reference names it."""
        assert isinstance(place.store, StoredObjects)
        deadline = Deadline.after(60.0, place.clock.now_s)
        place.put("one.avro", b"body")
        assert place.store.read(*place.address("one.avro"), deadline=deadline) == b"body"
        assert place.store.read(*place.address("other.avro"), deadline=deadline) is None

    def test_object_is_not_read_after_the_deadline(self, place: Place) -> None:
        """Time is up: that says nothing of the object."""
        assert isinstance(place.store, StoredObjects)
        with pytest.raises(ReadBackError):
            place.store.read(*place.address("one.avro"), deadline=Deadline.after(-1.0, place.clock.now_s))

    def test_find_tells_ours_from_others(self, place: Place) -> None:
        """By length and checksum, not by name."""
        stored = place.put("one.avro", b"body")
        find = place.store.find
        assert find(stored.key, sha256=hashlib.sha256(b"body").digest(), size=4) == stored
        assert find(stored.key, sha256=hashlib.sha256(b"bodi").digest(), size=4) is None
        assert find(stored.key, sha256=hashlib.sha256(b"body").digest(), size=5) is None
        assert find(place.key("none.avro"), sha256=hashlib.sha256(b"body").digest(), size=4) is None
