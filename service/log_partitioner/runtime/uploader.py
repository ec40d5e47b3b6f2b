"""Sealed objects, schemas and oversized dead letters -> acknowledged objects; the only place with a thread pool.

Threads take immutable values and return immutable values. A thread that outlives its deadline, or its batch, can only
leave an object that no reference names. Bodies in memory are bounded by bytes, not by the number of threads.
"""

from __future__ import annotations

import hashlib
import math
import zlib
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from queue import SimpleQueue
from threading import Condition, Thread

from log_partitioner.boundary import BatchSpool, SealedFile, StoredObject
from log_partitioner.control.deadline import Deadline
from log_partitioner.errors import KeyTakenError, UploadError
from log_partitioner.runtime.ports import ObjectStore, Upload

KEYS_MAX = 3
BODIES_BYTES_MAX = 96 * 1024 * 1024  # in memory at once; one larger body goes alone
_POLL_S = 0.2


class _Pool:
    """Daemon threads: one that a store holds for ever must not keep the process alive, as an executor's would."""

    def __init__(self, threads: int) -> None:
        self._tasks: SimpleQueue[tuple[Future[StoredObject], Callable[[], StoredObject]] | None] = SimpleQueue()
        self._is_closed = False
        self._threads = [Thread(target=self._work, name=f"upload-{n}", daemon=True) for n in range(threads)]
        for thread in self._threads:
            thread.start()

    def submit(self, task: Callable[[], StoredObject]) -> Future[StoredObject]:
        future: Future[StoredObject] = Future()
        self._tasks.put((future, task))
        return future

    def until(self, deadline: Deadline) -> Deadline:
        """Return a deadline that has passed once the pool is closed, too."""
        return Deadline(deadline.at_s, lambda: math.inf if self._is_closed else deadline.now_s())

    def close(self) -> None:
        self._is_closed = True
        for _ in self._threads:
            self._tasks.put(None)

    def _work(self) -> None:
        while (entry := self._tasks.get()) is not None:
            future, task = entry
            if not future.set_running_or_notify_cancel():
                continue
            try:
                stored = task()
            except BaseException as error:  # noqa: BLE001 - raised again by the loop thread
                future.set_exception(error)
            else:
                future.set_result(stored)
            del entry, future, task  # an error of it holds the body, and this frame


class _Bodies:
    """Bounds the bytes of bodies in memory."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._changed = Condition()

    def take(self, size: int, deadline: Deadline) -> None:
        """Wait for room, at most until the deadline; after that the upload notices by itself that it has passed."""
        with self._changed:
            while self._bytes and self._bytes + size > self._bytes_max and not deadline.has_passed():
                self._changed.wait(_POLL_S)
            self._bytes += size

    def give_back(self, size: int) -> None:
        with self._changed:
            self._bytes -= size
            self._changed.notify_all()


class Uploader:
    """Fulfils `runtime.ports.Uploads` with threads, over an object store."""

    def __init__(self, store: ObjectStore, *, threads: int, trouble: Callable[[], str | None] = lambda: None) -> None:
        """Make it; `trouble` describes in a sentence the store's last answer that was an error."""
        self._store = store
        self._trouble = trouble
        self._bodies = _Bodies(BODIES_BYTES_MAX)
        self._threads = threads
        self._pool = _Pool(threads)

    def submit(self, upload: Upload, deadline: Deadline) -> Future[StoredObject]:
        """Begin one upload."""
        until = self._pool.until(deadline)
        return self._pool.submit(lambda: self._put(upload, until))

    def await_all(
        self, futures: Iterable[Future[StoredObject]], deadline: Deadline, abandoned: Callable[[], bool]
    ) -> list[StoredObject]:
        """Wait for all; the first failure ends the others.

        Raises:
            UploadError, StoreRefusedError, SpoolError: that of the first upload that failed.
        """
        futures = list(futures)
        pending = set(futures)
        try:
            while pending:
                done, pending = wait(pending, timeout=_POLL_S, return_when=FIRST_EXCEPTION)
                for future in (one for one in futures if one in done):  # of several failures always the same
                    future.result()
                if pending and (deadline.has_passed() or abandoned()):
                    why = "" if (trouble := self._trouble()) is None else f": {trouble}"
                    told = f"{len(pending)} of {len(futures)} uploads are not acknowledged{why}"
                    raise UploadError(told, object_key="")
        finally:
            if not all([future.cancel() for future in pending]):  # noqa: C419 - cancel all
                self._replace_pool()
        return [future.result() for future in futures]

    def close(self) -> None:
        """Let the threads go; their deadlines have passed now."""
        self._pool.close()

    def _replace_pool(self) -> None:
        """End uploads under way without waiting: the next flush needs threads of its own, and room for bodies."""
        self._pool.close()
        self._pool = _Pool(self._threads)

    def _put(self, upload: Upload, deadline: Deadline) -> StoredObject:
        self._bodies.take(upload.size, deadline)
        try:
            return self._put_body(upload, deadline)
        finally:
            self._bodies.give_back(upload.size)

    def _put_body(self, upload: Upload, deadline: Deadline) -> StoredObject:
        if deadline.has_passed():
            raise UploadError("its turn came after the deadline", object_key=upload.key_of(0))
        body = upload.body()
        for attempt in range(KEYS_MAX):
            key = upload.key_of(attempt)
            try:
                return self._store.put(
                    key,
                    body,
                    sha256=upload.sha256,
                    crc32=upload.crc32,
                    metadata=upload.metadata,
                    deadline=deadline,
                )
            except KeyTakenError:  # by ourselves, where an answer was lost
                if upload.shared:
                    return StoredObject(key, None, None)
                found = self._store.find(key, sha256=upload.sha256, size=len(body))
                if found is not None:
                    return found
        raise UploadError(f"{KEYS_MAX} keys are taken", object_key=upload.key_of(0))


def file_upload(
    spool: BatchSpool, sealed: SealedFile, key_of: Callable[[int], str], metadata: Mapping[str, str]
) -> Upload:
    """Describe the upload of a sealed object."""
    return Upload(key_of, lambda: spool.load(sealed), sealed.size, sealed.sha256, sealed.crc32, metadata)


def bytes_upload(body: bytes, key: str, metadata: Mapping[str, str], *, shared: bool) -> Upload:
    """Describe the upload of bytes in memory; another attempt gets another key unless the key is shared."""

    def key_of(attempt: int) -> str:
        if shared or not attempt:
            return key
        directory, slash, name = key.rpartition("/")
        stem, dot, suffix = name.partition(".")
        return f"{directory}{slash}{stem}-{attempt}{dot}{suffix}"

    return Upload(key_of, lambda: body, len(body), hashlib.sha256(body).digest(), zlib.crc32(body), metadata, shared)
