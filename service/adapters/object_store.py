"""S3: the only user of boto3. Fulfils `runtime.ports.ObjectStore`: creates objects, never overwrites one.

Every PUT is conditional (`If-None-Match: *`) and carries a checksum that the store verifies. A PUT whose answer was
lost becomes a 412 on the next try although our own write won: then the object is compared with ours.
"""

from __future__ import annotations

import base64
import random
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import boto3
import structlog
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError, ParamValidationError

from service.config import S3Settings
from service.core.deadline import Deadline
from service.core.exchange import StoredObject
from service.errors import KeyTakenError, StoreRefusedError, UploadError

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_SHA256_METADATA = "lp-sha256"
_BACKOFF_FIRST_S = 0.1
_BACKOFF_MAX_S = 5.0
_TAKEN = 412
_FORBIDDEN, _NOT_FOUND = 403, 404
_CLIENT_ERRORS = range(400, 500)
_THROTTLED_STATUS = {429, 503}
_THROTTLED_CODES = {"SlowDown", "Throttling", "ThrottlingException", "TooManyRequests"}
_RETRIABLE_STATUS = {408, 409, 425, 429}
_RETRIABLE_CODES = {
    "RequestTimeout", "RequestTimeTooSkewed", "SlowDown", "Throttling", "ThrottlingException", "TooManyRequests",
    "ExpiredToken", "ExpiredTokenException", "BadDigest", "InvalidDigest", "XAmzContentSHA256Mismatch",
    "IncompleteBody", "ConditionalRequestConflict", "OperationAborted",
}  # fmt: skip


class S3Store:
    """Puts objects into one bucket; safe to use from many threads."""

    def __init__(self, settings: S3Settings, *, client: S3Client | None = None) -> None:
        self._settings = settings
        self._client = client or make_client(settings)
        self._log = structlog.get_logger("object_store")

    def check(self) -> None:
        """Ask once whether the bucket is there.

        Raises:
            StoreRefusedError: there is no such bucket, or nobody may write to it.
        """
        try:
            self._client.head_bucket(Bucket=self._settings.bucket)
        except ClientError as error:
            if _status(error) == _NOT_FOUND:
                raise StoreRefusedError(f"no bucket {self._settings.bucket}") from error
            self._log.warning("bucket_not_checked", status=_status(error), code=_code(error))
        except ParamValidationError as error:
            raise StoreRefusedError(f"bucket {self._settings.bucket}: {error}") from error
        except BotoCoreError as error:
            self._log.warning("bucket_not_checked", message=str(error))

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
        """Create an object; tries again within the deadline, and for other reasons than throttling within the attempts.

        Raises:
            KeyTakenError: an object has this key; `find` tells whether it is ours.
            UploadError: not acknowledged in time.
            StoreRefusedError: no such bucket, no permission.
        """
        problem = "its turn came after the deadline"
        attempt = failures = 0
        while failures < self._settings.attempts and not deadline.has_passed():
            is_throttled = False
            try:
                arguments = self._arguments(key, body, sha256=sha256, crc32=crc32, metadata=metadata)
                answer = self._client.put_object(**arguments)
                if answer.get("ETag"):
                    return StoredObject(key, answer["ETag"], answer.get("VersionId"))
                problem = "an answer without ETag"
            except ClientError as error:
                if _status(error) == _TAKEN:
                    raise KeyTakenError(key) from error
                self._refuse_hopeless(error)
                problem = f"{_status(error)} {_code(error)}"
                is_throttled = _status(error) in _THROTTLED_STATUS or _code(error) in _THROTTLED_CODES
            except ParamValidationError as error:  # not sent: a bucket's name that is none
                raise StoreRefusedError(f"{key}: {error}") from error
            except (BotoCoreError, HTTPClientError) as error:
                problem = f"{type(error).__name__}: {error}"
            attempt += 1
            failures += not is_throttled  # throttled means slower, never stuck: the deadline is the bound
            if not is_throttled or attempt == 1:
                self._log.warning("upload_repeated", key=key, attempt=attempt, problem=problem[:300])
            time.sleep(min(_backoff_s(attempt - 1), deadline.remaining_s()))
        raise UploadError(f"{key}: {problem}", object_key=key)

    def _arguments(
        self, key: str, body: bytes, *, sha256: bytes, crc32: int, metadata: Mapping[str, str]
    ) -> dict[str, Any]:
        arguments: dict[str, Any] = {
            "Bucket": self._settings.bucket,
            "Key": key,
            "Body": body,
            "Metadata": {**metadata, _SHA256_METADATA: sha256.hex()},
        }
        if self._settings.conditional:
            arguments["IfNoneMatch"] = "*"
        if self._settings.checksum == "sha256":
            arguments["ChecksumSHA256"] = base64.b64encode(sha256).decode()
        else:
            arguments["ChecksumCRC32"] = base64.b64encode(crc32.to_bytes(4, "big")).decode()
        return arguments

    def find(self, key: str, *, sha256: bytes, size: int) -> StoredObject | None:
        """Give the object that has this key, if it is provably the one meant.

        None where it is another, or where we may not look: that needs read permission (DESIGN 3.4).
        """
        try:
            found = self._client.head_object(Bucket=self._settings.bucket, Key=key)
        except (BotoCoreError, ClientError) as error:
            self._log.warning("object_not_compared", key=key, message=str(error))
            return None
        if found["ContentLength"] != size or found["Metadata"].get(_SHA256_METADATA) != sha256.hex():
            self._log.warning("key_taken", key=key)
            return None
        self._log.info("upload_confirmed", key=key)
        return StoredObject(key, found["ETag"], found.get("VersionId"))

    def _refuse_hopeless(self, error: ClientError) -> None:
        status, code = _status(error), _code(error)
        if status in _CLIENT_ERRORS and status not in _RETRIABLE_STATUS and code not in _RETRIABLE_CODES:
            raise StoreRefusedError(f"bucket {self._settings.bucket}: {status} {code}: {error}") from error


def make_client(settings: S3Settings) -> S3Client:
    """Make a client without retries of its own: the deadline bounds ours."""
    secret = settings.secret_key.get_secret_value() if settings.secret_key else None
    return boto3.client(
        "s3",
        endpoint_url=settings.endpoint_url,
        region_name=settings.region,
        aws_access_key_id=settings.access_key.get_secret_value() if settings.access_key else None,
        aws_secret_access_key=secret,
        config=Config(
            connect_timeout=settings.connect_timeout_s,
            read_timeout=settings.read_timeout_s,
            max_pool_connections=settings.upload_threads,
            retries={"total_max_attempts": 1, "mode": "standard"},
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            s3={"addressing_style": "path" if settings.endpoint_url else "auto"},
        ),
    )


def _backoff_s(attempt: int) -> float:
    """Double, with full jitter, as AWS recommends."""
    return random.uniform(0, min(_BACKOFF_MAX_S, _BACKOFF_FIRST_S * 2**attempt))  # noqa: S311 - jitter is no secret


def _status(error: ClientError) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))
