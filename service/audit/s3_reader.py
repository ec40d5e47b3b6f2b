"""S3 as the audit reads it; may be used by many threads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import boto3
import botocore.config
import botocore.exceptions

from service.audit.fetch import FetchedObject, ObjectMissingError
from service.audit.findings import CouldNotTellError
from service.config.s3_settings import CONNECT_TIMEOUT_S, READ_TIMEOUT_S, S3Settings

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_GONE = frozenset({"NoSuchKey", "NoSuchVersion", "404", "NotFound"})


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

    def get(self, bucket: str, key: str, version_id: str | None) -> FetchedObject:
        """Read an object.

        Raises:
            ObjectMissingError: there is none.
            CouldNotTellError: the store does not let us read it.
        """
        try:
            if version_id is None:
                answer = self._client.get_object(Bucket=bucket, Key=key)
            else:
                answer = self._client.get_object(Bucket=bucket, Key=key, VersionId=version_id)
            return FetchedObject(answer["Body"].read(), answer.get("ETag"))
        except botocore.exceptions.ClientError as error:
            code = error.response.get("Error", {}).get("Code")
            if code in _GONE or (code == "NoSuchBucket" and bucket != self._bucket):
                raise ObjectMissingError(key) from error
            raise CouldNotTellError(f"object {key}: {error}") from error
        except (botocore.exceptions.BotoCoreError, botocore.exceptions.HTTPClientError, OSError) as error:
            raise CouldNotTellError(f"object {key}: {error}") from error
