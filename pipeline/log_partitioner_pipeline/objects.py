"""S3: the bytes that references point to, and new objects. The pipeline's only user of boto3; driver and executors.

A reference names every object that is read; only the audit lists objects, to find those that no reference names.
Nothing is overwritten; only compaction deletes, and only objects that it has recorded before.
"""

from __future__ import annotations

import hashlib
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from log_partitioner.adapters.s3_client import make_client
from log_partitioner.boundary import StoredObject
from log_partitioner.config.s3_settings import ATTEMPTS, SHA256_METADATA, S3Settings
from log_partitioner.formats.reference import checksum_of
from log_partitioner.proof.audit.store import GONE, S3_URL, Address, FetchedObject
from log_partitioner_pipeline.errors import ObjectError, ObjectTakenError

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import LifecycleRuleOutputTypeDef, ObjectIdentifierTypeDef

    from log_partitioner_pipeline.pieces import ReadGroup

Asked = TypeVar("Asked")
Given = TypeVar("Given")

THREADS = 8
"""Requests under way at once, per task."""

_NO_RULES = "NoSuchLifecycleConfiguration"
_TAKEN, _CONFLICT = 412, 409
_CONFLICTS_MAX = 5
_CONFLICT_S = 0.2
_READS_MAX = 3
_AHEAD_BYTES_MAX = 64 * 1024 * 1024
_DELETED_AT_ONCE = 1000  # as many as S3 takes
_DELETE_ATTEMPTS = 5
_DELETE_AGAIN_S = 0.5


class Listed(NamedTuple):
    """An object as a listing names it; `modified_ms` counts from 1970."""

    key: str
    size: int
    modified_ms: int


class Content(NamedTuple):
    """Some of an object's bytes: (position of the first, the bytes)."""

    spans: tuple[tuple[int, bytes], ...]

    def of(self, start: int, length: int) -> bytes:
        """Return the bytes [start, start + length).

        Raises:
            ValueError: they are not among those that are here.
        """
        for begin, data in self.spans:
            if begin <= start and start + length <= begin + len(data):
                return data[start - begin : start - begin + length]
        raise ValueError(f"there are no {length} bytes at {start}")


class Objects:
    """Reads and creates objects in any bucket of one S3; safe to use from many threads."""

    def __init__(self, settings: S3Settings) -> None:
        self._settings = settings
        hashable = {"tags": (), "region": region_of(settings)}
        self._client = _client(settings.model_copy(update=hashable))

    def read(self, piece: ReadGroup) -> Content:
        """Read the bytes to which the references of a piece point, and their header: at most two requests.

        If the object has versions, the version that the references name is read, even if it was replaced or deleted
        since. If one request yields the whole object, its bytes are compared with the checksum; a part has no checksum.

        Raises:
            ObjectError: it is not there, is not the object that was referenced, or S3 does not answer.
        """
        return Content(tuple((start, self._span(piece, start, length)) for start, length in piece.spans))

    def _span(self, piece: ReadGroup, start: int, length: int) -> bytes:
        address = Address(piece.bucket, piece.object, piece.version_id)
        if (start, length) != (0, piece.size):
            return self._get(address, etag=piece.etag, size=length, start=start)
        content = self._get(address, etag=piece.etag, size=length)
        algorithm, said = piece.checksum.algorithm, piece.checksum.value
        if (found := checksum_of(algorithm, content)) != said:
            text = f"its {algorithm} is {found}, not {said}"
            raise ObjectError(f"{piece.where} is not the object that was referenced: {text}")
        return content

    def read_text(self, bucket: str, key: str) -> str:
        """Read a whole object of text.

        Raises:
            ObjectError: it is not there, is no text, or S3 does not answer.
        """
        try:
            return self._get(Address(bucket, key)).decode()
        except UnicodeDecodeError as error:
            raise ObjectError(f"s3://{bucket}/{key} is no text: {error}") from error

    def read_ahead(self, pieces: Iterable[ReadGroup]) -> Iterator[tuple[ReadGroup, Content]]:
        """Read many, in order, ahead of the caller; see `ahead`.

        Raises:
            ObjectError: as `read`.
        """
        return self.ahead(
            lambda piece: (piece, self.read(piece)),
            pieces,
            size_of=lambda piece: sum(length for _, length in piece.spans),
        )

    def fetch(self, address: Address) -> FetchedObject | None:
        """Read an object as it is now, whatever a reference says about it; None if there is none.

        Raises:
            ObjectError: S3 refuses or does not answer.
        """
        try:
            return self._take(address)
        except (ClientError, BotoCoreError) as error:
            if _code_of(error) in GONE:
                return None
            raise ObjectError(f"s3://{address.bucket}/{address.key}: {error}") from error

    def read_file(self, place: str) -> bytes:
        """Read a whole object by its URL, or a file by its path.

        Raises:
            ObjectError: there is no such object, or S3 refuses or does not answer.
            OSError: the file cannot be read.
        """
        if not place.startswith(S3_URL):
            return Path(place.removeprefix("file:")).read_bytes()
        stored = self.fetch(Address.named(place))
        if stored is None:
            raise ObjectError(f"{place} is not there")
        return stored.data

    def ahead(
        self, take: Callable[[Asked], Given], asked: Iterable[Asked], *, size_of: Callable[[Asked], int]
    ) -> Iterator[Given]:
        """Take many at once, in their order: at most twice `THREADS`, and 64 MiB unless one alone has more."""
        waiting: deque[tuple[Future[Given], int]] = deque()
        under_way = 0
        with ThreadPoolExecutor(THREADS, thread_name_prefix="objects") as pool:
            for one in asked:
                size = size_of(one)
                while len(waiting) >= 2 * THREADS or (waiting and under_way + size > _AHEAD_BYTES_MAX):
                    first, done = waiting.popleft()
                    under_way -= done
                    yield first.result()
                waiting.append((pool.submit(take, one), size))
                under_way += size
            for first, _ in waiting:
                yield first.result()

    def create(self, bucket: str, key: str, body: bytes, metadata: Mapping[str, str]) -> StoredObject:
        """Create an object as the worker does, under a condition and with a checksum; never overwrites one.

        If the very same bytes are there already (an answer was lost, or the key follows from the content), that object
        is returned.

        Raises:
            ObjectTakenError: other bytes are there.
            ObjectError: S3 refuses or does not answer.
        """
        digest = hashlib.sha256(body).digest()
        arguments = self._settings.put_arguments(sha256=digest, crc32=zlib.crc32(body), metadata=metadata)
        for attempt in range(_CONFLICTS_MAX):
            try:
                answer = self._client.put_object(Bucket=bucket, Key=key, Body=body, **arguments)
                return StoredObject(key, answer["ETag"], answer.get("VersionId"))
            except ClientError as error:
                status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
                if status == _TAKEN:
                    return self._same(bucket, key, digest, len(body))
                if status != _CONFLICT or attempt + 1 == _CONFLICTS_MAX:
                    raise ObjectError(f"s3://{bucket}/{key} cannot be written: {error}") from error
                time.sleep(_CONFLICT_S)  # somebody else is writing this key: it will be there, or not
            except BotoCoreError as error:
                raise ObjectError(f"s3://{bucket}/{key} cannot be written: {error}") from error
        raise AssertionError("the last attempt returns or raises")

    def _same(self, bucket: str, key: str, digest: bytes, size: int) -> StoredObject:
        try:
            found = self._client.head_object(Bucket=bucket, Key=key)
        except (ClientError, BotoCoreError) as error:
            raise ObjectError(f"s3://{bucket}/{key} is there and cannot be compared: {error}") from error
        if found["ContentLength"] != size or found["Metadata"].get(SHA256_METADATA) != digest.hex():
            raise ObjectTakenError(f"s3://{bucket}/{key} is there already, and another")
        return StoredObject(key, found["ETag"], found.get("VersionId"))

    def list(self, bucket: str, prefix: str) -> Iterator[Listed]:
        """List what is under a prefix.

        Raises:
            ObjectError: S3 refuses or does not answer.
        """
        try:
            for page in self._client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
                for item in page.get("Contents", []):
                    yield Listed(item["Key"], item["Size"], int(item["LastModified"].timestamp() * 1000))
        except (ClientError, BotoCoreError) as error:
            raise ObjectError(f"s3://{bucket}/{prefix} cannot be listed: {error}") from error

    def lifecycle(self, bucket: str) -> Sequence[LifecycleRuleOutputTypeDef] | None:
        """Return the rules by which a bucket deletes objects; None if the store does not tell them."""
        try:
            return self._client.get_bucket_lifecycle_configuration(Bucket=bucket)["Rules"]
        except ClientError as error:
            return [] if _code_of(error) == _NO_RULES else None
        except BotoCoreError:
            return None

    def delete(self, addresses: Iterable[Address]) -> None:
        """Delete objects; one that is not there is deleted already. Blocks until S3 has said so of all.

        If an address has a version, that version is deleted for good, and no other. If it has none, a bucket that keeps
        versions only hides the object behind a delete marker.

        Raises:
            ObjectError: S3 refuses one again and again, or does not answer; some of the others may be deleted.
        """
        by_bucket: dict[str, list[ObjectIdentifierTypeDef]] = {}
        for bucket, key, version in addresses:
            versioned: ObjectIdentifierTypeDef = {"Key": key} if version is None else {"Key": key, "VersionId": version}
            by_bucket.setdefault(bucket, []).append(versioned)
        for bucket, objects in by_bucket.items():
            for begin in range(0, len(objects), _DELETED_AT_ONCE):
                self._delete_some(bucket, objects[begin : begin + _DELETED_AT_ONCE])

    def _delete_some(self, bucket: str, objects: Sequence[ObjectIdentifierTypeDef]) -> None:
        for attempt in range(_DELETE_ATTEMPTS):
            try:
                answer = self._client.delete_objects(Bucket=bucket, Delete={"Objects": objects, "Quiet": True})
            except (ClientError, BotoCoreError) as error:
                raise ObjectError(f"objects of {bucket} cannot be deleted: {error}") from error
            refused = [error for error in answer.get("Errors", []) if error.get("Code") not in GONE]
            if not refused:
                return
            if attempt + 1 == _DELETE_ATTEMPTS:
                first = refused[0]
                text = f"{len(refused)} objects of {bucket} cannot be deleted, the first is {first.get('Key')}"
                raise ObjectError(f"{text}: {first.get('Code')} {first.get('Message')}")
            left = {error.get("Key") for error in refused}
            objects = [one for one in objects if one["Key"] in left]
            time.sleep(_DELETE_AGAIN_S)

    def _take(self, address: Address, **conditions: Any) -> FetchedObject:
        """Get an object with its whole body; again if the connection breaks inside it, which boto3 does not retry."""
        version: Any = {} if address.version_id is None else {"VersionId": address.version_id}
        for attempt in range(_READS_MAX):
            answer = self._client.get_object(Bucket=address.bucket, Key=address.key, **version, **conditions)
            try:
                return FetchedObject(answer["Body"].read(), answer.get("ETag"))
            except BotoCoreError:
                if attempt + 1 == _READS_MAX:
                    raise
        raise AssertionError("the last attempt returns or raises")

    def _get(
        self, address: Address, *, etag: str | None = None, size: int | None = None, start: int | None = None
    ) -> bytes:
        conditions: dict[str, Any] = {}
        if etag is not None:
            conditions["IfMatch"] = etag
        if start is not None and size is not None:
            conditions["Range"] = f"bytes={start}-{start + size - 1}"
        name = f"s3://{address.bucket}/{address.key}"
        try:
            content = self._take(address, **conditions).data
        except (ClientError, BotoCoreError) as error:
            code = _code_of(error)
            if code in GONE:
                raise ObjectError(f"{name} is referenced and not there") from error
            if code in ("412", "PreconditionFailed"):
                raise ObjectError(f"{name} is not the object that was referenced: its etag is not {etag}") from error
            raise ObjectError(f"{name}: {error}") from error
        if size is not None and len(content) != size:
            raise ObjectError(f"{name} gave {len(content)} bytes where its reference says {size}")
        return content


def _code_of(error: Exception) -> str | None:
    return error.response.get("Error", {}).get("Code") if isinstance(error, ClientError) else None


@lru_cache(maxsize=4)
def _client(settings: S3Settings) -> S3Client:
    """Make a client; one per process and settings, since making one costs more than reading a hundred objects."""
    return make_client(settings, attempts=ATTEMPTS, connections=THREADS)


def region_of(settings: S3Settings) -> str | None:
    """Return the region for objects and the table's files; None if no setting names one."""
    return settings.region_or(boto3.Session().region_name)
