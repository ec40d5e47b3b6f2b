"""The client of S3: endpoint and addressing, the leash that ends its requests in time, and its errors in one sentence.

A request ends with its deadline, however slowly its answer trickles and whatever stands between: `Leash` shuts its
connection, because the time-outs of botocore begin anew with every byte. A sentence names the place, the answer, and
the setting, bucket or right to correct. It never names a key, because that holds a user; nor does it repeat texts of
botocore, which hold the whole address.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Literal

import boto3
from botocore.awsrequest import AWSHTTPConnection, AWSHTTPConnectionPool, AWSHTTPSConnectionPool
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionClosedError,
    ConnectTimeoutError,
    CredentialRetrievalError,
    EndpointConnectionError,
    HTTPClientError,
    NoCredentialsError,
    ProxyConnectionError,
    ReadTimeoutError,
    SSLError,
)

from log_partitioner.config.s3_settings import (
    CONNECT_TIMEOUT_S,
    READ_TIMEOUT_S,
    UPLOAD_THREADS,
    S3Settings,
    expecting,
)
from log_partitioner.errors import StoreRefusedError

if TYPE_CHECKING:
    from botocore.model import OperationModel
    from mypy_boto3_s3 import S3Client


_LEASH_S = 0.5
FORBIDDEN, NOT_FOUND, TAKEN = 403, 404, 412
NO_CREDENTIALS = "no credentials were found; they are looked for once, when the process starts"
_MOVED_STATUS = {301, 302, 307, 308}
_MOVED = {
    "AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "PermanentRedirect", "TemporaryRedirect",
}  # fmt: skip
_NOT_IMPLEMENTED, _FULL_STATUS = 501, 507
_KEYS = "set s3.access_key and s3.secret_key right, or the credentials that boto3 finds"
_MEANINGS = {
    "InvalidAccessKeyId": f"it does not know this access key: {_KEYS}",
    "SignatureDoesNotMatch": f"the secret key is wrong, or a proxy changes requests: {_KEYS}",
    "InvalidToken": f"the session token is wrong: {_KEYS}",
    "ExpiredToken": f"the credentials have expired: {_KEYS}",
    "ExpiredTokenException": f"the credentials have expired: {_KEYS}",
    "NoSuchBucket": "there is no such bucket: create it, or set s3.bucket right",
    "RequestTimeTooSkewed": "the clocks of worker and store differ: set that of the worker's machine right",
    "SecondLevelDomainForbidden": "it wants the bucket in the host's name: set s3.addressing_style to virtual",
    "XMinioStorageFull": "the store is full",
    "QuotaExceeded": "the store is full: raise the bucket's quota",
    "InvalidRequest": "the bucket wants what is not sent, as for object lock or encryption: see its policy",
    "SlowDown": "it takes fewer requests than it is sent",
}
_NO_CONDITIONS = (
    "it does not know conditional PUTs, or this checksum: set s3.conditional to false, or s3.checksum to crc32; keys "
    "are unique without a condition, too"
)


def make_client(
    settings: S3Settings,
    *,
    answer_s: float = READ_TIMEOUT_S,
    attempts: int = 1,
    connections: int | None = None,
    validate: Literal["when_required", "when_supported"] = "when_required",
) -> S3Client:
    """Make a client; without retries of its own if a deadline bounds ours.

    Raises:
        StoreRefusedError: credentials are incomplete, or their provider does not answer.
    """
    secret = settings.secret_key.get_secret_value() if settings.secret_key else None
    config = Config(
        connect_timeout=CONNECT_TIMEOUT_S,
        read_timeout=answer_s,
        max_pool_connections=connections or UPLOAD_THREADS,
        retries={"total_max_attempts": attempts, "mode": "standard"},
        request_checksum_calculation="when_required",
        response_checksum_validation=validate,
        s3={"addressing_style": settings.addressing},
    )
    try:
        client: S3Client = boto3.client(
            "s3",
            endpoint_url=settings.endpoint_url,
            region_name=settings.region_or(boto3.Session().region_name),
            aws_access_key_id=settings.access_key.get_secret_value() if settings.access_key else None,
            aws_secret_access_key=secret,
            config=config,
        )
    except BotoCoreError as error:
        raise StoreRefusedError(f"no client for {settings.place}: {what_of(error)}") from error
    client.meta.events.register("provide-client-params.s3", expecting(settings.bucket_owner))
    client.meta.events.register_last("before-parameter-build.s3", _redirect_no_head)
    return client


def _redirect_no_head(model: OperationModel, context: dict[str, Any], **_: object) -> None:
    """Keep a HEAD of a bucket from being redirected: without a region, botocore would repeat it for ever."""
    if model.name == "HeadBucket":
        context["s3_redirect"]["redirected"] = True


class Leash:
    """Shuts the connections of requests whose time is over, so that no thread is held by an answer that trickles.

    Safe to use from many threads; its own runs while there are requests.
    """

    def __init__(self, client: S3Client) -> None:
        self._changed = threading.Condition()
        self._remaining_s: dict[int, Callable[[], float] | None] = {}
        self._connections: dict[int, AWSHTTPConnection] = {}
        self._watch: threading.Thread | None = None
        self._hold(client)

    def _hold(self, client: S3Client) -> None:
        """Make every connection of a client report the thread that uses it; urllib3 chooses the class by scheme."""
        pools: dict[str, Any] = {"http": AWSHTTPConnectionPool, "https": AWSHTTPSConnectionPool}
        session = client._endpoint.http_session  # type: ignore[attr-defined]  # noqa: SLF001 - no public way
        session._pool_classes_by_scheme = session._manager.pool_classes_by_scheme = {  # noqa: SLF001 - for proxies, too
            scheme: type(pool.__name__, (pool,), {"ConnectionCls": _telling(pool.ConnectionCls, self)})
            for scheme, pool in pools.items()
        }

    @contextmanager
    def until(self, remaining_s: Callable[[], float]) -> Iterator[None]:
        """Let this thread's requests run as long as time remains."""
        me = threading.get_ident()
        with self._changed:
            self._remaining_s[me] = remaining_s
            self._changed.notify()
            if self._watch is None:
                self._watch = threading.Thread(target=self._run, name="upload-leash", daemon=True)
                self._watch.start()
        failure: HTTPClientError | None = None
        try:
            yield
        except HTTPClientError as error:
            failure = error
        finally:
            with self._changed:
                self._connections.pop(me, None)
                is_shut = self._remaining_s.pop(me) is None
        if is_shut:  # a cut answer may look like a whole one: HTTP's headers end where the connection does
            raise ReadTimeoutError(endpoint_url="") from failure
        if failure is not None:
            raise failure

    def note(self, connection: AWSHTTPConnection) -> None:
        """Remember which connection this thread uses."""
        with self._changed:
            self._connections[threading.get_ident()] = connection

    def _run(self) -> None:
        with self._changed:
            while self._changed.wait(_LEASH_S) or self._remaining_s:
                for thread, remaining_s in self._remaining_s.items():
                    if remaining_s is None or not remaining_s():
                        self._remaining_s[thread] = None
                        _shut(self._connections.get(thread))
            self._watch = None


def _telling(kind: Any, leash: Leash) -> type[Any]:
    """Return a class of connections that report to the leash the thread about to use them."""

    class Telling(kind):  # type: ignore[misc]  # botocore has no types
        def connect(self) -> None:
            leash.note(self)
            super().connect()

        def request(self, *arguments: Any, **named: Any) -> Any:
            leash.note(self)
            return super().request(*arguments, **named)

    return Telling


def _shut(connection: AWSHTTPConnection | None) -> None:
    """Shut a connection, so that its reader or writer goes on with an error."""
    if connection is not None and connection.sock is not None:
        with suppress(OSError):  # it is closed already
            socket.socket.shutdown(connection.sock, socket.SHUT_RDWR)


def sentence(error: Exception, s3: S3Settings, *, right: str = "s3:PutObject") -> str:
    """Explain a failed request; `right` is the permission that the request needs."""
    if isinstance(error, ClientError):
        meaning = _meaning(error, s3, right)
        return f"{s3.place}: {what_of(error)}" + (f": {meaning}" if meaning else "")
    return f"{s3.place}: {_connection(error)}"


def status_of(error: ClientError) -> int:
    """Return the status of HTTP."""
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def code_of(error: ClientError) -> str:
    """Return the store's own code; if the store gives none, botocore has put the status there."""
    return str(error.response.get("Error", {}).get("Code", ""))


def what_of(error: Exception) -> str:
    """Return the printable part of an error: status and code, or class and system text; other texts name the key."""
    if isinstance(error, ClientError):
        status, code = status_of(error), code_of(error)
        return f"{status}" if code in ("", str(status)) else f"{status} {code}"
    cause = _cause(error)
    return type(error).__name__ + ("" if cause is None else f": {cause.strerror}")


def result_of(error: Exception) -> str:
    """Return the status of a failed request, or in a word why it has none; a label of metrics."""
    match error:
        case ClientError():
            return str(status_of(error) or "other")
        case ConnectTimeoutError() | ReadTimeoutError():
            return "timeout"
        case SSLError():
            return "tls"
        case EndpointConnectionError() | ProxyConnectionError():
            return "unreachable"
        case ConnectionClosedError():
            return "closed"
        case CredentialRetrievalError() | NoCredentialsError():
            return "credentials"
    return "other"


def is_moved(error: ClientError) -> bool:
    """Return whether the bucket is elsewhere, as this store says."""
    return status_of(error) in _MOVED_STATUS or code_of(error) in _MOVED


def is_not_known(error: ClientError) -> bool:
    """Return whether the store does not support a PUT of ours; waiting cannot help."""
    return status_of(error) == _NOT_IMPLEMENTED or code_of(error) == "NotImplemented"


def is_key(error: ClientError) -> bool:
    """Return whether the store refuses the credentials themselves, not a permission."""
    return _KEYS in _MEANINGS.get(code_of(error), "")


def _meaning(error: ClientError, s3: S3Settings, right: str) -> str:
    if is_moved(error):
        return _elsewhere(error, s3)
    if is_not_known(error):
        return _NO_CONDITIONS
    if code_of(error) in _MEANINGS:
        return _MEANINGS[code_of(error)]
    if status_of(error) == FORBIDDEN:
        return f"allow {_rights(right, s3)}, or {_KEYS}"
    if status_of(error) == NOT_FOUND:
        return "there is no such bucket, or this is no S3: set s3.bucket and s3.endpoint_url right"
    return _MEANINGS["XMinioStorageFull"] if status_of(error) == _FULL_STATUS else ""


def _rights(right: str, s3: S3Settings) -> str:
    """Name the rights that a request may lack, by what the settings make it ask for."""
    is_put = right == "s3:PutObject"
    rights = f"{right}{' and s3:PutObjectTagging' if is_put and s3.tags else ''}"
    rights += f" on arn:aws:s3:::{s3.bucket}/{s3.prefix}/*"
    if s3.encryption.startswith("aws:kms"):
        rights += f" and {'kms:GenerateDataKey' if is_put else 'kms:Decrypt'} on {s3.kms_key_id or 'its key'}"
    return rights if s3.bucket_owner is None else f"{rights} in account {s3.bucket_owner} (s3.bucket_owner)"


def _elsewhere(error: ClientError, s3: S3Settings) -> str:
    headers = error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    body: dict[str, object] = {**error.response.get("Error", {})}
    region = headers.get("x-amz-bucket-region") or body.get("Region")
    told = s3.region_or(None) or "none"
    where = f"in region {region}" if region else "in another region or at another address, and it does not say which"
    ways = f"set s3.region{f' to {region}' if region else ''}, or s3.endpoint_url"
    return f"the bucket is {where}, the worker signs for {told}: {ways}"


def _connection(error: Exception) -> str:
    cause = _cause(error)
    system = "" if cause is None else f": {cause.strerror}"
    match error:
        case ConnectTimeoutError() | ReadTimeoutError():
            return "no answer in time"
        case ProxyConnectionError():
            return f"the proxy (HTTP_PROXY, HTTPS_PROXY) does not let it through{system}"
        case SSLError():
            return f"TLS failed{system}: an address without TLS, or a certificate that this machine does not trust"
        case EndpointConnectionError():
            return f"it cannot be reached{system}: set s3.endpoint_url right"
        case ConnectionClosedError():
            return "it closes the connection: no S3, or https:// where s3.endpoint_url says http://"
        case HTTPClientError() if cause is None:
            return f"{type(error).__name__}: what answers there is no S3"
    return what_of(error)


def _cause(error: BaseException) -> OSError | None:
    """Find the system's error behind an exception."""
    cause: BaseException | None = error
    while cause is not None and not (isinstance(cause, OSError) and cause.strerror):
        cause = cause.__cause__ or cause.__context__
    return cause if isinstance(cause, OSError) else None
