"""Objects by address, several at a time, in the order asked for.

Owns the bound on what is held in memory at once; the store itself is the caller's.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from service.formats.reference import Reference

_AHEAD_PER_THREAD = 2
_AHEAD_BYTES_MAX = 128 * 1024 * 1024


class ObjectMissingError(Exception):
    """The store has no such object."""


class FetchedObject(NamedTuple):
    """An object as it came from the store."""

    data: bytes
    etag: str | None


class Address(NamedTuple):
    """Where an object lies; without a version id, its newest version."""

    bucket: str
    key: str
    version_id: str | None


class Store(Protocol):
    """S3, as far as the audit needs it; see `s3_reader.S3Reader`. Used by several threads."""

    def get(self, bucket: str, key: str, version_id: str | None) -> FetchedObject:
        """Read an object; raises ObjectMissingError, or CouldNotTellError where it cannot be read."""


def address_of(reference: Reference) -> Address:
    """Return the address of a reference's object."""
    location = reference.location
    return Address(location.bucket, location.object, location.version_id)


class Fetcher:
    """Reads objects with a pool of threads."""

    def __init__(self, store: Store, *, threads: int) -> None:
        self._store = store
        self._threads = threads

    def one(self, address: Address) -> FetchedObject | None:
        """Read one object; None where there is none."""
        try:
            return self._store.get(*address)
        except ObjectMissingError:
            return None

    def all(self, sizes: Mapping[Address, int]) -> Iterator[tuple[Address, FetchedObject | None]]:
        """Read many objects, of about so many bytes each, a few ahead of who takes them."""
        with ThreadPoolExecutor(self._threads, thread_name_prefix="audit") as pool:
            ahead: deque[tuple[Address, Future[FetchedObject | None]]] = deque()
            ahead_bytes = 0
            try:
                for address, size in sizes.items():
                    ahead.append((address, pool.submit(self.one, address)))
                    ahead_bytes += size
                    while len(ahead) >= self._threads * _AHEAD_PER_THREAD or ahead_bytes > _AHEAD_BYTES_MAX:
                        oldest, future = ahead.popleft()
                        ahead_bytes -= sizes[oldest]
                        yield oldest, future.result()
                        del future  # it holds the object
                while ahead:
                    oldest, future = ahead.popleft()
                    yield oldest, future.result()
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
