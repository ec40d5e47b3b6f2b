"""S3 as the audit reads it; may be used by many threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import boto3
import botocore.config
import botocore.exceptions

from log_partitioner.config.s3_settings import CONNECT_TIMEOUT_S, READ_TIMEOUT_S, S3Settings
from log_partitioner.errors import CouldNotTellError

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_GONE = frozenset({"NoSuchKey", "NoSuchVersion", "404", "NotFound"})


class Address(NamedTuple):
    """Address of an object; without a version id, of its newest version."""

    bucket: str
    key: str
    version_id: str | None = None


class FetchedObject(NamedTuple):
    """An object as it came from the store."""

    data: bytes
    etag: str | None


OpenObjects = Callable[[list[Address]], Iterable[FetchedObject | None]]
"""Reads objects, in order; None stands for a missing one."""


class Store(Protocol):
    """S3, as far as the audit needs it; see `S3Reader`. Used by several threads."""

    def get(self, address: Address) -> FetchedObject | None:
        """Read an object; None if there is none, CouldNotTellError if it cannot be read."""


class S3Reader:
    """Reads objects."""

    def __init__(self, settings: S3Settings, *, threads: int) -> None:
        access, secret = settings.access_key, settings.secret_key
        self._bucket = settings.bucket
        self._client: S3Client = boto3.client(
            "s3",
            endpoint_url=settings.endpoint_url,
            region_name=settings.region_or(boto3.Session().region_name),
            aws_access_key_id=None if access is None else access.get_secret_value(),
            aws_secret_access_key=None if secret is None else secret.get_secret_value(),
            config=botocore.config.Config(
                max_pool_connections=threads,
                connect_timeout=CONNECT_TIMEOUT_S,
                read_timeout=READ_TIMEOUT_S,
                retries={"total_max_attempts": settings.attempts, "mode": "standard"},
                s3={"addressing_style": settings.addressing},
            ),
        )

    def get(self, address: Address) -> FetchedObject | None:
        """Read an object; None if there is none.

        Raises:
            CouldNotTellError: the store does not let us read it.
        """
        version: Any = {} if address.version_id is None else {"VersionId": address.version_id}
        try:
            answer = self._client.get_object(Bucket=address.bucket, Key=address.key, **version)
            return FetchedObject(answer["Body"].read(), answer.get("ETag"))
        except (botocore.exceptions.BotoCoreError, botocore.exceptions.ClientError, OSError) as error:
            code = error.response["Error"].get("Code") if isinstance(error, botocore.exceptions.ClientError) else None
            if code in _GONE or (code == "NoSuchBucket" and address.bucket != self._bucket):
                return None
            raise CouldNotTellError(f"object {address.key}: {error}") from error
