"""Puts an error of the store into one sentence: the place, the answer, and the setting, bucket or right to correct.

A key is never named, because it holds a user; nor are texts of botocore, which hold the whole address.
"""

from __future__ import annotations

from botocore.exceptions import (
    ClientError,
    ConnectionClosedError,
    ConnectTimeoutError,
    EndpointConnectionError,
    HTTPClientError,
    ProxyConnectionError,
    ReadTimeoutError,
    SSLError,
)

from log_partitioner.config.s3_settings import S3Settings

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


def is_moved(error: ClientError) -> bool:
    """Return whether the bucket is elsewhere, as this store says."""
    return status_of(error) in _MOVED_STATUS or code_of(error) in _MOVED


def is_not_known(error: ClientError) -> bool:
    """Return whether the store does not support a PUT of ours; waiting cannot help."""
    return status_of(error) == _NOT_IMPLEMENTED or code_of(error) == "NotImplemented"


def is_key(error: ClientError) -> bool:
    """Return whether the store refuses the credentials as such, whatever they permit."""
    return _KEYS in _MEANINGS.get(code_of(error), "")


def _meaning(error: ClientError, s3: S3Settings, right: str) -> str:
    if is_moved(error):
        return _elsewhere(error, s3)
    if is_not_known(error):
        return _NO_CONDITIONS
    if code_of(error) in _MEANINGS:
        return _MEANINGS[code_of(error)]
    if status_of(error) == FORBIDDEN:
        return f"allow {right} on arn:aws:s3:::{s3.bucket}/{s3.prefix}/*, or {_KEYS}"
    if status_of(error) == NOT_FOUND:
        return "there is no such bucket, or this is no S3: set s3.bucket and s3.endpoint_url right"
    return _MEANINGS["XMinioStorageFull"] if status_of(error) == _FULL_STATUS else ""


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
