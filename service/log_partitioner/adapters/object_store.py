"""S3: the only user of boto3. Fulfils `runtime.uploader.ObjectStore`: creates objects, never overwrites one.

Every PUT is conditional (`If-None-Match: *`) and carries a checksum that the store verifies. A PUT whose answer was
lost becomes a 412 on the next try although our own write won: then the object is compared with ours.

A key is logged with its user hashed; `s3_client` explains the store's answers.
"""

from __future__ import annotations

import hashlib
import random
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import structlog
from botocore.credentials import RefreshableCredentials
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    HTTPClientError,
    NoCredentialsError,
    ParamValidationError,
)

from log_partitioner.adapters.s3_client import (
    FORBIDDEN,
    NO_CREDENTIALS,
    NOT_FOUND,
    TAKEN,
    Leash,
    code_of,
    is_key,
    is_moved,
    is_not_known,
    make_client,
    result_of,
    sentence,
    status_of,
    what_of,
)
from log_partitioner.boundary import Metrics, StoredObject
from log_partitioner.config.s3_settings import (
    ATTEMPTS,
    CONNECT_TIMEOUT_S,
    READ_TIMEOUT_S,
    SHA256_METADATA,
    S3Settings,
)
from log_partitioner.control.deadline import Deadline
from log_partitioner.control.rate import Rate
from log_partitioner.errors import (
    KeyTakenError,
    ReadBackError,
    StoreBusyError,
    StoreRefusedError,
    UnmetError,
    UploadError,
)
from log_partitioner.formats.object_key import check_key
from log_partitioner.pace import Pace
from log_partitioner.privacy import veiled

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

KEYS_AT_ONCE = 1_000  # as many as one request deletes, or lists
CHECK_S = 5.0  # for a question at the start: a store that is silent is named within 10 s of the process's life
_BACKOFF_FIRST_S = 0.1
_BACKOFF_MAX_S = 5.0
_TRY_S = 0.2  # less is not worth another attempt
_NOWHERE = "no-object-has-this-key"
_CHECK_BODY = b"Whether this prefix can be written to is asked with this object.\n"
_CLIENT_ERRORS = range(400, 500)
_CONFLICT, _TEMPORARILY = 409, 307
_THROTTLED_STATUS, _FAILING_STATUS = {429, 503}, {500, 502, 504}
_THROTTLED_CODES = {"SlowDown", "Throttling", "ThrottlingException", "TooManyRequests"}
_RETRIABLE_STATUS = {408, 409, 425, 429}
_EXPIRED = ("ExpiredToken", "ExpiredTokenException")
_RETRIABLE_CODES = {
    "RequestTimeout", "RequestTimeTooSkewed", "SlowDown", "Throttling", "ThrottlingException", "TooManyRequests",
    *_EXPIRED, "BadDigest", "InvalidDigest", "XAmzContentSHA256Mismatch",
    "IncompleteBody", "ConditionalRequestConflict", "OperationAborted",
}  # fmt: skip


class S3Store:
    """Puts objects into one bucket; safe to use from many threads."""

    def __init__(
        self,
        settings: S3Settings,
        *,
        answer_s: float = READ_TIMEOUT_S,
        client: S3Client | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self._settings = settings
        self._answer_s = CONNECT_TIMEOUT_S + answer_s
        self._client = client or make_client(settings, answer_s=answer_s)
        self._leash = Leash(self._client)
        self._metrics = metrics
        self._asking, self._turn = threading.Lock(), threading.Lock()
        self._rate = Rate(settings.puts_per_s_max)
        self._pace = Pace(time.monotonic)
        self._log = structlog.get_logger("object_store")
        self.trouble: str | None = None
        """Why the last upload failed; None if it did not."""

    def check(self) -> None:
        """Prove that objects can be created under the prefix, under a condition and with a checksum.

        The check creates one object, `check_key`; a store that honours the condition refuses it from the second time
        on.

        Raises:
            UnmetError: not now; somebody outside can mend it. A StoreBusyError: it throttles us, or fails by itself.
            StoreRefusedError: there are no credentials, or the store does not support a setting.
        """
        is_created = self._create_check()
        if is_created and self._settings.conditional and self._create_check():
            raise StoreRefusedError(
                f"{self._settings.place}: it overwrites an object under a condition that forbids it: set "
                "s3.conditional to false; keys are unique without a condition, too"
            )
        self.trouble = None

    def _create_check(self) -> bool:
        """Create the object of the check; returns whether the store did."""
        sha256, crc32 = hashlib.sha256(_CHECK_BODY).digest(), zlib.crc32(_CHECK_BODY)
        key = check_key(self._settings.prefix)
        arguments = self._settings.put_arguments(sha256=sha256, crc32=crc32, metadata={})
        try:
            with self._within(Deadline.after(CHECK_S, time.monotonic).remaining_s, "put"):
                self._client.put_object(Bucket=self._settings.bucket, Key=key, Body=_CHECK_BODY, **arguments)
        except ClientError as error:
            if status_of(error) in (TAKEN, _CONFLICT):  # of another worker that asks at this moment
                return False
            if is_not_known(error):
                raise StoreRefusedError(sentence(error, self._settings)) from error
            raise _unmet(error, sentence(error, self._settings)) from error
        except (ParamValidationError, NoCredentialsError) as error:
            raise self._hopeless(error) from error
        except (BotoCoreError, HTTPClientError) as error:
            raise UnmetError(sentence(error, self._settings)) from error
        return True

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
        """Create an object; retries within the deadline, and within the attempts unless the store throttles.

        Raises:
            KeyTakenError: an object has this key; `find` tells whether it is ours.
            UploadError: not acknowledged in time.
            StoreRefusedError: no such bucket, no permission, no credentials, or expired ones.
        """
        problem = "its turn came after the deadline"
        attempt = failures = 0
        is_expired = False
        arguments = self._settings.put_arguments(sha256=sha256, crc32=crc32, metadata=metadata)
        while not deadline.has_passed():
            is_throttled = is_expired = False
            if not self._has_turn(deadline):
                break
            try:
                with self._within(deadline.remaining_s, "put"):
                    answer = self._client.put_object(Bucket=self._settings.bucket, Key=key, Body=body, **arguments)
                if answer.get("ETag"):
                    self.trouble = None
                    return StoredObject(key, answer["ETag"], answer.get("VersionId"))
                problem = "an answer without ETag"
            except ClientError as error:
                if status_of(error) == TAKEN:
                    raise KeyTakenError(key) from error
                problem = sentence(error, self._settings)
                is_throttled = _is_throttled(error)
                is_expired = code_of(error) in _EXPIRED
                self._refuse_hopeless(error)
            except (ParamValidationError, NoCredentialsError) as error:  # not sent
                raise self._hopeless(error) from error
            except (BotoCoreError, HTTPClientError) as error:
                problem = sentence(error, self._settings)
            self.trouble = self.trouble if is_throttled else problem
            attempt += 1
            failures += not is_throttled  # throttled means slower, never stuck: the deadline is the bound
            pause_s = min(_backoff_s(attempt - 1), deadline.remaining_s() / 2)
            if failures >= ATTEMPTS or deadline.remaining_s() < _TRY_S:
                break  # no other attempt follows
            if times := self._pace.times(problem):
                self._log.warning("upload_repeated", problem=problem, times=times)
            if self._metrics is not None:
                self._metrics.add("store_retries")
            time.sleep(pause_s)
        if is_expired:  # what can be renewed has been by now: the last seconds were for that
            raise StoreRefusedError(problem)
        raise UploadError(f"{veiled(key)}: {problem}", object_key=key)

    def _has_turn(self, deadline: Deadline) -> bool:
        """Wait until the upper rate allows a PUT; a PUT whose turn is behind its deadline takes no turn."""
        with self._turn:
            now_s = time.monotonic()
            wait_s = self._rate.wait_s(now_s)
            is_in_time = wait_s < deadline.remaining_s()
            if is_in_time:
                self._rate.took(1, now_s)
        if wait_s:
            time.sleep(min(wait_s, deadline.remaining_s()))
        return is_in_time

    def find(self, key: str, *, sha256: bytes, size: int) -> StoredObject | None:
        """Return the object that has this key, if it is provably the one meant.

        None if it is another, or if we lack the permission to read (DESIGN 3.4).
        """
        try:
            with self._within(Deadline.after(self._answer_s, time.monotonic).remaining_s, "head"):
                found = self._client.head_object(Bucket=self._settings.bucket, Key=key)
        except (BotoCoreError, HTTPClientError, ClientError) as error:
            self._log.warning("object_not_compared", key=veiled(key), message=what_of(error))
            return None
        if found["ContentLength"] != size or found["Metadata"].get(SHA256_METADATA) != sha256.hex():
            self._log.warning("key_taken", key=veiled(key))
            return None
        self._log.info("upload_confirmed", key=veiled(key))
        return StoredObject(key, found["ETag"], found.get("VersionId"))

    def check_reading(self) -> None:
        """Ask for an object that is not there: the refusal tells whether we may read.

        Raises:
            UnmetError: we may not, or the store does not answer; a StoreBusyError as in `check`.
        """
        key = f"{self._settings.prefix}/{_NOWHERE}"
        try:
            with self._within(Deadline.after(CHECK_S, time.monotonic).remaining_s, "get"):
                self._client.get_object(Bucket=self._settings.bucket, Key=key)
        except ClientError as error:
            if status_of(error) != NOT_FOUND:
                raise _unmet(error, self._not_read(error)) from error
        except (BotoCoreError, HTTPClientError) as error:
            raise UnmetError(sentence(error, self._settings)) from error

    def read(self, bucket: str, key: str, version_id: str | None, *, deadline: Deadline) -> bytes | None:
        """Return the bytes of an object; None if there is none. Tries within the deadline.

        Raises:
            ReadBackError: it cannot be read now, or not before the deadline.
            StoreRefusedError: no permission.
        """
        version: dict[str, Any] = {} if version_id is None else {"VersionId": version_id}
        problem = "no time is left"
        for attempt in range(ATTEMPTS):
            if deadline.has_passed():
                break
            try:
                with self._within(deadline.remaining_s, "get"):
                    return self._client.get_object(Bucket=bucket, Key=key, **version)["Body"].read()
            except ClientError as error:
                if status_of(error) == NOT_FOUND:
                    return None
                if status_of(error) == FORBIDDEN and code_of(error) not in _RETRIABLE_CODES:
                    raise StoreRefusedError(self._not_read(error)) from error
                problem = what_of(error)
            except (BotoCoreError, HTTPClientError, OSError) as error:
                problem = what_of(error)
            time.sleep(min(_backoff_s(attempt), max(0.0, deadline.remaining_s() / 2)))
        raise ReadBackError(problem)

    def _not_read(self, error: ClientError) -> str:
        """Say why an object is not returned; if the key's credentials are wrong, no permission is missing."""
        told = sentence(error, self._settings, right="s3:GetObject")
        if status_of(error) != FORBIDDEN or is_key(error):
            return told
        return (
            f"{told}. Verification mode reads objects back: it needs s3:ListBucket on {self._settings.bucket}, too, "
            "without which what is not there looks forbidden; or set verify.share to 0"
        )

    @contextmanager
    def _within(self, remaining_s: Callable[[], float], operation: str) -> Iterator[None]:
        """Let a request take no longer than the remaining time, including the request for credentials; count it."""
        began_s, code = time.monotonic(), "200"
        try:
            self._await_credentials(remaining_s())
            with self._leash.until(remaining_s):
                yield
        except (BotoCoreError, HTTPClientError, ClientError, OSError) as error:
            code = result_of(error)
            raise
        finally:
            if self._metrics is not None:
                self._metrics.add("store_requests", operation=operation, code=code)
                seconds = time.monotonic() - began_s
                self._metrics.observe("store_request_duration_seconds", seconds, operation=operation)

    def _await_credentials(self, seconds: float) -> None:
        """Wait for credentials that are valid for a while, if they have to be requested.

        botocore asks with time-outs of its own, minutes long, one thread after the other: only one of ours does.
        """
        credentials = self._client._get_credentials()  # type: ignore[attr-defined]  # noqa: SLF001 - no public way
        if not isinstance(credentials, RefreshableCredentials):
            return
        soon_s = credentials._mandatory_refresh_timeout  # type: ignore[attr-defined]  # noqa: SLF001 - no public way
        if not credentials.refresh_needed(soon_s):
            return
        if not self._asking.acquire(timeout=seconds):
            raise CredentialRetrievalError(provider=credentials.method, error_msg="no answer")
        try:
            credentials.get_frozen_credentials()
        finally:
            self._asking.release()

    def _refuse_hopeless(self, error: ClientError) -> None:
        status, code = status_of(error), code_of(error)
        is_final = status in _CLIENT_ERRORS and status not in _RETRIABLE_STATUS and code not in _RETRIABLE_CODES
        if is_final or is_not_known(error) or (is_moved(error) and status != _TEMPORARILY):
            raise StoreRefusedError(sentence(error, self._settings)) from error

    def _hopeless(self, error: BotoCoreError) -> StoreRefusedError:
        told = NO_CREDENTIALS if isinstance(error, NoCredentialsError) else what_of(error)
        return StoreRefusedError(f"{self._settings.place}: {told}")


class ListedObject(NamedTuple):
    """An object as the store lists it."""

    key: str
    size: int
    modified_ms: int


class S3Bucket:
    """Lists and deletes objects of the bucket, and counts its requests; for one thread.

    All methods raise StoreRefusedError if the store refuses, or does not answer.
    """

    def __init__(self, settings: S3Settings) -> None:
        self.requests = 0
        self._settings = settings
        self._client = make_client(settings, attempts=ATTEMPTS)

    def list(self, prefix: str) -> Iterator[ListedObject]:
        """Yield the objects whose keys begin with a prefix, in the order of their keys."""
        try:
            for page in self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._settings.bucket, Prefix=prefix
            ):
                self.requests += 1
                for one in page.get("Contents", []):
                    yield ListedObject(one["Key"], one["Size"], round(one["LastModified"].timestamp() * 1000))
        except (BotoCoreError, ClientError) as error:
            raise StoreRefusedError(sentence(error, self._settings, right="s3:ListBucket")) from error

    def delete(self, keys: Sequence[str]) -> None:
        """Delete at most KEYS_AT_ONCE objects; a bucket with versions hides them."""
        self.requests += 1
        try:
            answer = self._client.delete_objects(
                Bucket=self._settings.bucket, Delete={"Objects": [{"Key": key} for key in keys], "Quiet": True}
            )
        except (BotoCoreError, ClientError) as error:
            raise StoreRefusedError(sentence(error, self._settings, right="s3:DeleteObject")) from error
        if refused := answer.get("Errors", []):
            text = f"{self._settings.place}: {len(refused)} of {len(keys)} objects are not deleted"
            raise StoreRefusedError(f"{text}: {refused[0].get('Code')}: s3:DeleteObject is needed")


def _is_throttled(error: ClientError) -> bool:
    return status_of(error) in _THROTTLED_STATUS or code_of(error) in _THROTTLED_CODES


def _unmet(error: ClientError, told: str) -> UnmetError:
    is_busy = _is_throttled(error) or status_of(error) in _FAILING_STATUS
    return StoreBusyError(told) if is_busy else UnmetError(told)


def _backoff_s(attempt: int) -> float:
    """Double, with full jitter, as AWS recommends."""
    return random.uniform(0, min(_BACKOFF_MAX_S, _BACKOFF_FIRST_S * 2**attempt))  # noqa: S311 - jitter is no secret
