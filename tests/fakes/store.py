"""An object store in memory that never overwrites, with the faults of S3 by script."""

from __future__ import annotations

import hashlib
import zlib
from collections import deque
from collections.abc import Mapping
from enum import Enum

from log_partitioner.boundary import StoredObject
from log_partitioner.control.deadline import Deadline
from log_partitioner.errors import KeyTakenError, ReadBackError, StoreRefusedError, UploadError
from log_partitioner.privacy import veiled
from log_partitioner.runtime.uploader import ObjectStore, Task, Uploader
from tests.fakes.clock import FakeClock
from tests.fakes.consumer import Point, no_point


class PutFault(Enum):
    """A fault of one PUT, or none."""

    NONE = "none"
    NOT_STORED = "never arrives before the deadline"
    ANSWER_LOST = "stored; the repetition finds the key taken"
    ANSWER_LOST_LATE = "stored; the deadline comes before the repetition"
    TAKEN = "somebody else's object has that key"
    SLOW = "arrives after the deadline"
    REFUSED = "no permission"


class Bucket:
    """The objects in the store, shared by all workers; every PUT that arrived is counted."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.metadata: dict[str, dict[str, str]] = {}
        self.puts: list[str] = []

    def create(self, key: str, body: bytes, metadata: Mapping[str, str]) -> None:
        """Store; refuses a key that exists (`If-None-Match: *`)."""
        if key in self.objects:
            raise KeyTakenError(key)
        self.objects[key] = body
        self.metadata[key] = dict(metadata)


class FakeObjectStore:
    """Fulfils `runtime.uploader.ObjectStore` over a bucket."""

    def __init__(self, bucket: Bucket, clock: FakeClock, *, point: Point = no_point) -> None:
        self.script: deque[PutFault] = deque()
        self.may_read = True
        self.slow_s = 1_000.0
        self._bucket = bucket
        self._clock = clock
        self._point = point

    def put(
        self,
        key: str,
        body: bytes,
        *,
        sha256: bytes,
        crc32: int,
        metadata: Mapping[str, str],
        deadline: Deadline,
    ) -> StoredObject:
        """Create an object, or what the script says."""
        fault = self.script.popleft() if self.script else PutFault.NONE
        self._point("put")
        self._bucket.puts.append(key)
        if deadline.has_passed():
            raise UploadError(f"{veiled(key)}: after the deadline", object_key=key)
        if hashlib.sha256(body).digest() != sha256 or zlib.crc32(body) != crc32:
            raise UploadError(f"{veiled(key)}: BadDigest", object_key=key)
        if fault is PutFault.REFUSED:
            raise StoreRefusedError("403 AccessDenied")
        if fault is PutFault.NOT_STORED:
            raise UploadError(f"{veiled(key)}: 503 SlowDown", object_key=key)
        if fault is PutFault.TAKEN:
            self._bucket.objects.setdefault(key, b"somebody else's")
            self._bucket.metadata.setdefault(key, {})
        self._bucket.create(key, body, metadata)
        if fault is PutFault.ANSWER_LOST:
            raise KeyTakenError(key)
        if fault is PutFault.SLOW:
            self._clock.advance(self.slow_s)
        if fault in (PutFault.SLOW, PutFault.ANSWER_LOST_LATE):
            raise UploadError(f"{veiled(key)}: no answer", object_key=key)
        self._point("put_acknowledged")
        return _stored(key, body)

    def read(self, bucket: str, key: str, version_id: str | None, *, deadline: Deadline) -> bytes | None:
        """Give an object back."""
        del bucket, version_id
        self._point("get")
        if deadline.has_passed():
            raise ReadBackError("no time is left")
        if not self.may_read:
            raise StoreRefusedError("403 AccessDenied")
        return self._bucket.objects.get(key)

    def find(self, key: str, *, sha256: bytes, size: int) -> StoredObject | None:
        """Give the object if it is the one meant and we may look."""
        body = self._bucket.objects.get(key)
        if not self.may_read or body is None:
            return None
        if len(body) != size or hashlib.sha256(body).digest() != sha256:
            return None
        return _stored(key, body)


def _stored(key: str, body: bytes) -> StoredObject:
    return StoredObject(key, hashlib.md5(body, usedforsecurity=False).hexdigest(), None)


class InlineUploader(Uploader):
    """The real uploader's rules for keys, faults and deadlines, on the caller's thread: a run repeats exactly."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store, threads=0)

    def _begin(self, tasks: list[Task]) -> None:
        """Upload now; a failure waits in the future as it would in a thread's."""
        for future, put in tasks:
            try:
                future.set_result(put())
            except Exception as error:  # noqa: BLE001 - a kill passes
                future.set_exception(error)
