"""S3 as audits and readers read it: whole objects by address, or byte ranges of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from botocore.exceptions import BotoCoreError, ClientError

from log_partitioner.adapters.s3_client import make_client
from log_partitioner.config.s3_settings import ATTEMPTS
from log_partitioner.errors import CouldNotTellError
from log_partitioner.formats.reference import checksum_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from log_partitioner.config.s3_settings import S3Settings
    from log_partitioner.formats.reference import Checksum, Location

S3_URL = "s3://"
GONE = frozenset({"NoSuchKey", "NoSuchVersion", "404", "NotFound"})


class Address(NamedTuple):
    """Address of an object; without a version id, of its newest version."""

    bucket: str
    key: str
    version_id: str | None = None

    @classmethod
    def of(cls, location: Location) -> Address:
        """Return the address of a reference's object."""
        return cls(location.bucket, location.object, location.version_id)

    @classmethod
    def named(cls, name: str, *, bucket: str = "") -> Address:
        """Return the address that `s3://bucket/key` names, or a key of this bucket."""
        if name.startswith(S3_URL):
            bucket, _, name = name.removeprefix(S3_URL).partition("/")
        return cls(bucket, name)


class FetchedObject(NamedTuple):
    """An object as it came from the store."""

    data: bytes
    etag: str | None

    def differences(self, size: int, checksum: Checksum, etag: str | None) -> list[str]:
        """Return how it differs from the object that a reference names by these; a store may say no etag."""
        facts = {
            "size": (len(self.data), size),
            checksum.algorithm: (checksum_of(checksum.algorithm, self.data), checksum.value),
            "etag": (self.etag or etag, etag or self.etag),
        }
        return [f"{name} is {has}, reference says {said}" for name, (has, said) in facts.items() if has != said]


class S3Reader:
    """Reads objects; may be used by many threads."""

    def __init__(self, settings: S3Settings, *, threads: int) -> None:
        self._bucket = settings.bucket
        self._client = make_client(settings, attempts=ATTEMPTS, connections=threads, validate="when_supported")

    def get(self, address: Address, ranges: Iterable[tuple[int, int]] | None = None) -> FetchedObject | None:
        """Read an object, or these [start, length) of its bytes, put together; None if there is none.

        Raises:
            CouldNotTellError: the store does not let us read it.
        """
        version: Any = {} if address.version_id is None else {"VersionId": address.version_id}
        parts: list[Any] = [{"Range": f"bytes={start}-{start + more - 1}"} for start, more in ranges or ()] or [{}]
        try:
            answers = [
                self._client.get_object(Bucket=address.bucket, Key=address.key, **version, **part) for part in parts
            ]
            return FetchedObject(b"".join(one["Body"].read() for one in answers), answers[0].get("ETag"))
        except (BotoCoreError, ClientError, OSError) as error:
            code = error.response["Error"].get("Code") if isinstance(error, ClientError) else None
            if code in GONE or (code == "NoSuchBucket" and address.bucket != self._bucket):
                return None
            raise CouldNotTellError(f"object {address.key}: {error}") from error
