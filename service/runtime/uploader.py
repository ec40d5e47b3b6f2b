"""Sealed files, schemas and oversized dead letters -> acknowledged objects; the only place with a thread pool.

Threads take immutable values and return immutable values. A thread that outlives its deadline can only leave an
object that no reference names.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from typing import NamedTuple

from service.core.deadline import Deadline
from service.core.exchange import SealedFile, StoredObject
from service.errors import KeyTakenError, UploadError
from service.runtime.ports import ObjectStore, Spool

KEYS_MAX = 3
_POLL_S = 0.2


class Upload(NamedTuple):
    """One object to make: `key_of(attempt)` names it, its body is read when its turn comes."""

    key_of: Callable[[int], str]
    body: Callable[[], bytes]
    sha256: bytes
    crc32: int
    metadata: Mapping[str, str]
    shared: bool = False
    """Whether the key follows from the content, so that a taken key is as good as ours."""


class Uploader:
    """Uploads many objects at once, under one deadline."""

    def __init__(self, store: ObjectStore, spool: Spool, *, threads: int) -> None:
        self._store = store
        self._spool = spool
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="upload")

    def submit(self, upload: Upload, deadline: Deadline) -> Future[StoredObject]:
        """Start one upload."""
        return self._pool.submit(self._put, upload, deadline)

    def await_all(
        self, futures: Iterable[Future[StoredObject]], deadline: Deadline, abandoned: Callable[[], bool]
    ) -> list[StoredObject]:
        """Wait for all; the first failure cancels what has not begun.

        Raises:
            UploadError, StoreRefusedError, SpoolError: that of the first upload that failed.
        """
        futures = list(futures)
        pending = set(futures)
        try:
            while pending:
                done, pending = wait(pending, timeout=_POLL_S, return_when=FIRST_EXCEPTION)
                for future in done:
                    future.result()
                if pending and (deadline.has_passed() or abandoned()):
                    raise UploadError(f"{len(pending)} of {len(futures)} uploads are not acknowledged", object_key="")
        finally:
            for future in pending:
                future.cancel()
        return [future.result() for future in futures]

    def file_upload(self, sealed: SealedFile, key_of: Callable[[int], str], metadata: Mapping[str, str]) -> Upload:
        """Describe the upload of a sealed file."""
        return Upload(key_of, lambda: self._spool.load(sealed), sealed.sha256, sealed.crc32, metadata)

    def close(self) -> None:
        """Let the threads go; those under way end by their own time-outs."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _put(self, upload: Upload, deadline: Deadline) -> StoredObject:
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


def bytes_upload(body: bytes, key: str, metadata: Mapping[str, str], *, shared: bool) -> Upload:
    """Describe the upload of bytes in memory; another attempt gets another key unless the key is shared."""

    def key_of(attempt: int) -> str:
        return key if shared or not attempt else f"{key}-{attempt}"

    return Upload(key_of, lambda: body, hashlib.sha256(body).digest(), zlib.crc32(body), metadata, shared)
