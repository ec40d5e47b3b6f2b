"""Sealed objects, schemas and oversized dead letters -> acknowledged objects; the only place whose threads do work.

Threads take immutable values and return immutable values. A thread that outlives its deadline, or its batch, can only
leave an object that no reference names. Bodies in memory are bounded by bytes, not by the number of threads.
"""

from __future__ import annotations

import hashlib
import math
import zlib
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from threading import Condition, Event, Thread
from typing import NamedTuple, Protocol

from log_partitioner.boundary import BatchSpool, SealedFile, StoredObject
from log_partitioner.control.deadline import Deadline
from log_partitioner.errors import KeyTakenError, UploadError

KEYS_MAX = 3
BODIES_BYTES_MAX = 96 * 1024 * 1024  # in memory at once; one larger body goes alone
_POLL_S = 0.2

Task = tuple[Future[StoredObject], Callable[[], StoredObject]]


class Upload(NamedTuple):
    """One object to make: `key_of(attempt)` names it, its body of `size` bytes is read when its turn comes."""

    key_of: Callable[[int], str]
    body: Callable[[], bytes]
    size: int
    sha256: bytes
    crc32: int
    metadata: Mapping[str, str]
    shared: bool = False
    """Whether the key follows from the content, so that a taken key is as good as ours."""


class ObjectStore(Protocol):
    """Creates objects; never overwrites one."""

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
        """Create an object; blocks until it is acknowledged; any thread.

        Raises:
            KeyTakenError: an object has this key; `find` tells whether it is ours.
            UploadError: not acknowledged before the deadline.
            StoreRefusedError: no such bucket, no permission.
        """

    def find(self, key: str, *, sha256: bytes, size: int) -> StoredObject | None:
        """Return the object that has this key, if it is provably the one meant; any thread."""


def _work(waiting: SimpleQueue[Task]) -> None:
    """Do tasks until none waits."""
    with suppress(Empty):
        while True:
            future, put = waiting.get_nowait()
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(put())
                except BaseException as error:  # noqa: BLE001 - raised again by the loop thread
                    future.set_exception(error)
            del future, put  # an error holds the body, and this frame


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

    def release(self, size: int) -> None:
        with self._changed:
            self._bytes -= size
            self._changed.notify_all()


class Uploader:
    """Uploads many objects at once, under one deadline, by threads over an object store."""

    def __init__(self, store: ObjectStore, *, threads: int, trouble: Callable[[], str | None] = lambda: None) -> None:
        """Make it; `trouble` describes in a sentence the store's last answer that was an error."""
        self._store = store
        self._trouble = trouble
        self._bodies = _Bodies(BODIES_BYTES_MAX)
        self._threads = threads

    def put_all(
        self,
        uploads: Iterable[Upload],
        deadline: Deadline,
        *,
        abandoned: Callable[[], bool],
        note_stored: Callable[[], None],
    ) -> list[StoredObject]:
        """Upload all; the first failure ends the others. `note_stored` is called for each, by its thread.

        Raises:
            UploadError, StoreRefusedError, SpoolError: the first upload to fail has raised it.
        """
        ended = Event()  # uploads under way end then: the next flush needs room for its bodies
        until = Deadline(deadline.at_s, lambda: math.inf if ended.is_set() else deadline.now_s())
        tasks: list[Task] = [(Future(), partial(self._put, upload, until, note_stored)) for upload in uploads]
        futures = [future for future, _ in tasks]
        pending = set(futures)
        try:
            self._begin(tasks)
            while pending:
                done, pending = wait(pending, timeout=_POLL_S, return_when=FIRST_EXCEPTION)
                for future in (one for one in futures if one in done):  # of several failures always the same
                    future.result()
                if pending and (deadline.has_passed() or abandoned()):
                    why = "" if (trouble := self._trouble()) is None else f": {trouble}"
                    text = f"{len(pending)} of {len(futures)} uploads are not acknowledged{why}"
                    raise UploadError(text, object_key="")
        finally:
            ended.set()
            for future in pending:
                future.cancel()
        return [future.result() for future in futures]

    def _begin(self, tasks: list[Task]) -> None:
        """Begin in threads of this flush alone, so that a thread that a store never answers delays no later flush.

        They are daemons, unlike an executor's: none keeps the process alive.
        """
        waiting = SimpleQueue[Task]()
        for task in tasks:
            waiting.put(task)
        for number in range(min(self._threads, len(tasks))):
            Thread(target=_work, args=(waiting,), name=f"upload-{number}", daemon=True).start()

    def _put(self, upload: Upload, deadline: Deadline, note_stored: Callable[[], None]) -> StoredObject:
        self._bodies.take(upload.size, deadline)
        try:
            stored = self._put_body(upload, deadline)
        finally:
            self._bodies.release(upload.size)
        note_stored()
        return stored

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
            except KeyTakenError:  # maybe by ourselves, if an answer was lost
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
