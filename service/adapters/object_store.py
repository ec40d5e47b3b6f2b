"""S3: the only user of boto3. Fulfils `runtime.ports.ObjectStore`: creates objects, never overwrites one.

Every PUT is conditional (`If-None-Match: *`) and carries a checksum that the store verifies. A PUT whose answer was
lost becomes a 412 on the next try although our own write won: then the object is compared with ours.

A request ends with its deadline, however slowly its answer trickles: `_Leash` shuts its connection, since the time-outs
of botocore begin anew with every byte. A key is logged with its user hashed, and botocore's texts, in which the whole
address stands, are not logged at all.
"""

from __future__ import annotations

import base64
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import boto3
import structlog
from botocore.awsrequest import AWSHTTPConnection, AWSHTTPConnectionPool, AWSHTTPSConnectionPool
from botocore.config import Config
from botocore.credentials import RefreshableCredentials
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    HTTPClientError,
    NoCredentialsError,
    ParamValidationError,
    ReadTimeoutError,
)

from service.boundary import StoredObject
from service.config.s3_settings import S3Settings
from service.control.deadline import Deadline
from service.errors import KeyTakenError, ReadBackError, StoreRefusedError, UploadError
from service.formats.reference import Location
from service.privacy import veiled

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_SHA256_METADATA = "lp-sha256"
_BACKOFF_FIRST_S = 0.1
_BACKOFF_MAX_S = 5.0
_TRY_S = 0.2  # less is not worth another attempt
_LEASH_S = 0.5
_NO_CREDENTIALS = "no credentials were found; they are looked for once, when the process starts"
_NOWHERE = "no-object-has-this-key"
_TAKEN = 412
_FORBIDDEN, _NOT_FOUND = 403, 404
_CLIENT_ERRORS = range(400, 500)
_THROTTLED_STATUS = {429, 503}
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

    def __init__(self, settings: S3Settings, *, client: S3Client | None = None) -> None:
        self._settings = settings
        self._client = client or make_client(settings)
        self._leash = _Leash(self._client)
        self._asking = threading.Lock()
        self._log = structlog.get_logger("object_store")

    def check(self) -> None:
        """Ask once whether the bucket is there.

        Raises:
            StoreRefusedError: there is no such bucket, or nobody may write to it, or there are no credentials.
        """
        try:
            with self._leash.until(self._answer_s):
                self._client.head_bucket(Bucket=self._settings.bucket)
        except ClientError as error:
            if _status(error) == _NOT_FOUND:
                raise StoreRefusedError(f"no bucket {self._settings.bucket}") from error
            self._log.warning("bucket_not_checked", status=_status(error), code=_code(error))
        except ParamValidationError as error:
            raise StoreRefusedError(f"bucket {self._settings.bucket}: {error}") from error
        except NoCredentialsError as error:
            raise StoreRefusedError(_NO_CREDENTIALS) from error
        except (BotoCoreError, HTTPClientError) as error:
            self._log.warning("bucket_not_checked", message=_what(error))

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
            StoreRefusedError: no such bucket, no permission, no credentials, or expired ones.
        """
        problem = "its turn came after the deadline"
        attempt = failures = 0
        while not deadline.has_passed():
            is_throttled = False
            try:
                arguments = self._arguments(key, body, sha256=sha256, crc32=crc32, metadata=metadata)
                with self._within(deadline.remaining_s):
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
                raise StoreRefusedError(f"bucket {self._settings.bucket}: {_what(error)}") from error
            except NoCredentialsError as error:
                raise StoreRefusedError(_NO_CREDENTIALS) from error
            except (BotoCoreError, HTTPClientError) as error:
                problem = _what(error)
            attempt += 1
            failures += not is_throttled  # throttled means slower, never stuck: the deadline is the bound
            pause_s = min(_backoff_s(attempt - 1), deadline.remaining_s() / 2)
            if failures >= self._settings.attempts or deadline.remaining_s() < _TRY_S:
                break  # nothing follows: neither say that it is repeated, nor wait for it
            if not is_throttled or attempt == 1:
                self._log.warning("upload_repeated", key=veiled(key), attempt=attempt, problem=problem)
            time.sleep(pause_s)
        if problem.endswith(_EXPIRED):  # what can be renewed has been by now: the last seconds were for that
            text = "the credentials have expired, and this process gets no others"
            raise StoreRefusedError(f"bucket {self._settings.bucket}: {problem}: {text}")
        raise UploadError(f"{veiled(key)}: {problem}", object_key=key)

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
        """Return the object that has this key, if it is provably the one meant.

        None where it is another, or where we may not look: that needs read permission (DESIGN 3.4).
        """
        try:
            with self._within(lambda: self._answer_s):
                found = self._client.head_object(Bucket=self._settings.bucket, Key=key)
        except (BotoCoreError, HTTPClientError, ClientError) as error:
            self._log.warning("object_not_compared", key=veiled(key), message=_what(error))
            return None
        if found["ContentLength"] != size or found["Metadata"].get(_SHA256_METADATA) != sha256.hex():
            self._log.warning("key_taken", key=veiled(key))
            return None
        self._log.info("upload_confirmed", key=veiled(key))
        return StoredObject(key, found["ETag"], found.get("VersionId"))

    def check_reading(self) -> None:
        """Ask once for an object that is not there: whether we may read is known from how it is refused.

        Raises:
            StoreRefusedError: we may not.
        """
        key = f"{self._settings.prefix}/{_NOWHERE}"
        try:
            with self._leash.until(self._answer_s):
                self._client.get_object(Bucket=self._settings.bucket, Key=key)
        except ClientError as error:
            if _status(error) == _FORBIDDEN:
                raise StoreRefusedError(self._may_not_read(error)) from error
            if _status(error) != _NOT_FOUND:
                self._log.warning("reading_not_checked", status=_status(error), code=_code(error))
        except (BotoCoreError, HTTPClientError) as error:
            self._log.warning("reading_not_checked", message=_what(error))

    def read(self, place: Location, *, deadline: Deadline) -> bytes | None:
        """Return the bytes of an object that a reference names; None where there is none. Tries within the deadline.

        Raises:
            ReadBackError: it cannot be read now, or not before the deadline.
            StoreRefusedError: no permission.
        """
        version: dict[str, Any] = {} if place.version_id is None else {"VersionId": place.version_id}
        problem = "no time is left"
        for attempt in range(self._settings.attempts):
            if deadline.has_passed():
                break
            try:
                with self._within(deadline.remaining_s):
                    return self._client.get_object(Bucket=place.bucket, Key=place.object, **version)["Body"].read()
            except ClientError as error:
                if _status(error) == _NOT_FOUND:
                    return None
                if _status(error) == _FORBIDDEN and _code(error) not in _RETRIABLE_CODES:
                    raise StoreRefusedError(self._may_not_read(error)) from error
                problem = _what(error)
            except (BotoCoreError, HTTPClientError, OSError) as error:
                problem = _what(error)
            time.sleep(min(_backoff_s(attempt), max(0.0, deadline.remaining_s() / 2)))
        raise ReadBackError(problem)

    def _may_not_read(self, error: ClientError) -> str:
        bucket, prefix = self._settings.bucket, self._settings.prefix
        return (
            f"verification mode reads objects back, and bucket {bucket} refuses it ({_what(error)}): allow "
            f"s3:GetObject on {bucket}/{prefix}/*, and s3:ListBucket on {bucket}, without which what is not "
            "there looks forbidden, or set verify.share to 0"
        )

    @contextmanager
    def _within(self, remaining_s: Callable[[], float]) -> Iterator[None]:
        """Let a request take no longer than what remains, asking for credentials included."""
        self._await_credentials(remaining_s())
        with self._leash.until(remaining_s()):
            yield

    def _await_credentials(self, seconds: float) -> None:
        """Wait for credentials that are valid for a while, if they have to be asked for.

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
        status, code = _status(error), _code(error)
        if status in _CLIENT_ERRORS and status not in _RETRIABLE_STATUS and code not in _RETRIABLE_CODES:
            raise StoreRefusedError(f"bucket {self._settings.bucket}: {_what(error)}") from error

    @property
    def _answer_s(self) -> float:
        return self._settings.connect_timeout_s + self._settings.read_timeout_s


def make_client(settings: S3Settings) -> S3Client:
    """Make a client without retries of its own: the deadline bounds ours.

    Raises:
        StoreRefusedError: credentials are incomplete, or whoever has them does not answer.
    """
    secret = settings.secret_key.get_secret_value() if settings.secret_key else None
    config = Config(
        connect_timeout=settings.connect_timeout_s,
        read_timeout=settings.read_timeout_s,
        max_pool_connections=settings.upload_threads,
        retries={"total_max_attempts": 1, "mode": "standard"},
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        s3={"addressing_style": settings.addressing},
    )
    try:
        return boto3.client(
            "s3",
            endpoint_url=settings.endpoint_url,
            region_name=settings.region_or(boto3.Session().region_name),
            aws_access_key_id=settings.access_key.get_secret_value() if settings.access_key else None,
            aws_secret_access_key=secret,
            config=config,
        )
    except BotoCoreError as error:
        raise StoreRefusedError(f"no client for bucket {settings.bucket}: {_what(error)}") from error


class _Leash:
    """Shuts the connections of requests whose time is over, so that no thread is held by an answer that trickles.

    Safe to use from many threads; its own runs while there are requests.
    """

    def __init__(self, client: S3Client) -> None:
        self._changed = threading.Condition()
        self._ends: dict[int, float] = {}
        self._connections: dict[int, AWSHTTPConnection] = {}
        self._watch: threading.Thread | None = None
        self._hold(client)

    def _hold(self, client: S3Client) -> None:
        """Have every connection of a client tell which thread uses it; urllib3 chooses the class by scheme."""
        pools: dict[str, Any] = {"http": AWSHTTPConnectionPool, "https": AWSHTTPSConnectionPool}
        manager = client._endpoint.http_session._manager  # type: ignore[attr-defined]  # noqa: SLF001 - no public way
        manager.pool_classes_by_scheme = {
            scheme: type(pool.__name__, (pool,), {"ConnectionCls": _telling(pool.ConnectionCls, self)})
            for scheme, pool in pools.items()
        }

    @contextmanager
    def until(self, seconds: float) -> Iterator[None]:
        """Let this thread's requests run for so long, and not longer."""
        me = threading.get_ident()
        with self._changed:
            self._ends[me] = time.monotonic() + seconds
            self._changed.notify()
            if self._watch is None:
                self._watch = threading.Thread(target=self._run, name="upload-leash", daemon=True)
                self._watch.start()
        try:
            yield
        finally:
            with self._changed:
                self._connections.pop(me, None)
                is_shut = self._ends.pop(me) <= 0
        if is_shut:  # a cut answer may look like a whole one: HTTP's headers end where the connection does
            raise ReadTimeoutError(endpoint_url="")

    def note(self, connection: AWSHTTPConnection) -> None:
        """Remember which connection this thread uses."""
        with self._changed:
            self._connections[threading.get_ident()] = connection

    def _run(self) -> None:
        with self._changed:
            while self._changed.wait(_LEASH_S) or self._ends:
                now_s = time.monotonic()
                for thread in [thread for thread, end_s in self._ends.items() if end_s <= now_s]:
                    self._ends[thread] = 0
                    _shut(self._connections.get(thread))
            self._watch = None


def _telling(kind: Any, leash: _Leash) -> type[Any]:
    """Return a class of connections that tell the leash which thread is about to use them."""

    class Telling(kind):  # type: ignore[misc]  # botocore has no types
        def connect(self) -> None:
            leash.note(self)
            super().connect()

        def request(self, *arguments: Any, **named: Any) -> Any:
            leash.note(self)
            return super().request(*arguments, **named)

    return Telling


def _shut(connection: AWSHTTPConnection | None) -> None:
    """Make whoever reads or writes there go on with an error."""
    if connection is not None and connection.sock is not None:
        with suppress(OSError):  # it is closed already
            socket.socket.shutdown(connection.sock, socket.SHUT_RDWR)


def _backoff_s(attempt: int) -> float:
    """Double, with full jitter, as AWS recommends."""
    return random.uniform(0, min(_BACKOFF_MAX_S, _BACKOFF_FIRST_S * 2**attempt))  # noqa: S311 - jitter is no secret


def _status(error: ClientError) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def _what(error: Exception) -> str:
    """Return what may be said of an error: status and code, or class and the system's word; texts name the key."""
    if isinstance(error, ClientError):
        return f"{_status(error)} {_code(error)}"
    cause: BaseException | None = error
    while cause is not None and not (isinstance(cause, OSError) and cause.strerror):
        cause = cause.__cause__ or cause.__context__
    return type(error).__name__ + (f": {cause.strerror}" if isinstance(cause, OSError) else "")
