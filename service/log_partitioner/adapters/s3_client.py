"""The client of S3: its endpoint and addressing, and the leash that ends its requests in time.

A request ends with its deadline, however slowly its answer trickles and whatever stands between: `Leash` shuts its
connection, because the time-outs of botocore begin anew with every byte.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import boto3
from botocore.awsrequest import AWSHTTPConnection, AWSHTTPConnectionPool, AWSHTTPSConnectionPool
from botocore.config import Config
from botocore.exceptions import BotoCoreError, HTTPClientError, ReadTimeoutError

from log_partitioner.adapters.s3_words import what_of
from log_partitioner.config.s3_settings import CONNECT_TIMEOUT_S, READ_TIMEOUT_S, S3Settings
from log_partitioner.errors import StoreRefusedError

if TYPE_CHECKING:
    from botocore.model import OperationModel
    from mypy_boto3_s3 import S3Client

_LEASH_S = 0.5


def make_client(
    settings: S3Settings, *, answer_s: float = READ_TIMEOUT_S, attempts: int = 1, connections: int | None = None
) -> S3Client:
    """Make a client; without retries of its own where a deadline bounds ours.

    Raises:
        StoreRefusedError: credentials are incomplete, or whoever has them does not answer.
    """
    secret = settings.secret_key.get_secret_value() if settings.secret_key else None
    config = Config(
        connect_timeout=CONNECT_TIMEOUT_S,
        read_timeout=answer_s,
        max_pool_connections=connections or settings.upload_threads,
        retries={"total_max_attempts": attempts, "mode": "standard"},
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
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
