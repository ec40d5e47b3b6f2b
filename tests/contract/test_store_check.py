"""A worker checks the store before it joins, and reports each refusal with place, reason and next step."""

from __future__ import annotations

import gc
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from itertools import product

import pytest
from pydantic import SecretStr
from structlog.testing import capture_logs

from log_partitioner.adapters import object_store
from log_partitioner.adapters.object_store import S3Store
from log_partitioner.config.s3_settings import S3Settings
from log_partitioner.control.deadline import Deadline
from log_partitioner.errors import StoreBusyError, StoreRefusedError, UnmetError, UploadError
from tests.contract.deaf_brokers import closed_port, hang_up, http, serve, silent
from tests.contract.http_s3 import HttpS3, trickle
from tests.contract.http_s3 import serve as serve_s3

# A connection that is cut off in its handshake is closed when it is collected.
pytestmark = pytest.mark.filterwarnings("ignore:Exception ignored in. <ssl.SSLSocket")
SECONDS = 0.8  # in place of those that a question at the start has
HTML = b"<html><head><title>Moved</title></head><body><h1>Moved</h1><hr></body></html>"


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a question less time than in production, where a silent store has to be named within ten seconds."""
    assert object_store.CHECK_S <= 5
    monkeypatch.setattr(object_store, "CHECK_S", SECONDS)
    monkeypatch.setattr(object_store, "_BACKOFF_FIRST_S", 0.0)


@pytest.fixture
def server() -> Iterator[HttpS3]:
    """Give a store."""
    with serve_s3() as running:
        yield running


def store_of(url: str, **more: object) -> S3Store:
    """Make an adapter for the store of an address."""
    keys = {"access_key": SecretStr("key"), "secret_key": SecretStr("canary-secret-1"), "region": "eu-west-1"}
    return S3Store(S3Settings.model_validate({"bucket": "bucket", "endpoint_url": url, **keys, **more}))


def refusal(store: S3Store) -> str:
    """Ask; gives what is said, which has to come soon, in one line, without a secret."""
    begun_s = time.monotonic()
    with pytest.raises((UnmetError, StoreRefusedError)) as caught:
        store.check()
    assert time.monotonic() - begun_s < SECONDS + 9  # a TLS handshake has five of its own
    told = str(caught.value)
    assert "\n" not in told
    assert "canary-secret-1" not in told
    return told


def test_check_asks_for_one_object_however_often_it_is_asked(server: HttpS3) -> None:
    """The second request proves that the condition is honoured, as does the first of every later worker."""
    store_of(server.url).check()
    store_of(server.url).check()

    assert server.requests == [("PUT", "logs/_check")] * 3
    assert list(server.objects) == ["logs/_check"]
    assert {sent["if-none-match"] for sent in server.headers} == {"*"}
    assert all("x-amz-checksum-sha256" in sent for sent in server.headers)


def test_store_that_ignores_conditions_is_told_with_the_setting(server: HttpS3) -> None:
    """It would overwrite; with the setting it is taken as it is."""
    server.is_overwriting = True
    with pytest.raises(StoreRefusedError, match=r"bucket bucket at http://.*set s3\.conditional to false"):
        store_of(server.url).check()
    store_of(server.url, conditional=False).check()


@pytest.mark.parametrize("code", [(409, "ConditionalRequestConflict"), (412, "PreconditionFailed")])
def test_check_of_two_workers_at_once_is_no_refusal(server: HttpS3, code: tuple[int, str]) -> None:
    """Another asks at this very moment."""
    server.faults.append(code)
    store_of(server.url).check()


ANSWERS: list[tuple[tuple[int, str], str]] = [
    ((403, "InvalidAccessKeyId"), "403 InvalidAccessKeyId: it does not know this access key: set s3.access_key"),
    ((403, "SignatureDoesNotMatch"), "403 SignatureDoesNotMatch: the secret key is wrong"),
    ((403, "AccessDenied"), "allow s3:PutObject on arn:aws:s3:::bucket/logs/*"),
    ((404, "NoSuchBucket"), "there is no such bucket: create it, or set s3.bucket right"),
    ((403, "RequestTimeTooSkewed"), "the clocks of worker and store differ"),
    ((403, "SecondLevelDomainForbidden"), "set s3.addressing_style to virtual"),
    ((400, "AuthorizationHeaderMalformed"), "the worker signs for eu-west-1: set s3.region"),
    ((507, "XMinioStorageFull"), "the store is full"),
    ((400, "InvalidRequest"), "as for object lock or encryption: see its policy"),
    ((500, "InternalError"), "500 InternalError"),
    ((503, "SlowDown"), "it takes fewer requests than it is sent"),
    ((501, "NotImplemented"), "set s3.conditional to false, or s3.checksum to crc32"),
]


def test_refusal_is_told_with_bucket_endpoint_and_next_step(server: HttpS3) -> None:
    """In one sentence; a wrong key is no missing permission."""
    store = store_of(server.url)
    for fault, said in ANSWERS:
        server.faults.append(fault)
        told = refusal(store)

        assert told.startswith(f"bucket bucket at {server.url}: {fault[0]}"), told
        assert said in told


@pytest.mark.parametrize("ask", [S3Store.check, S3Store.check_reading])
def test_store_that_is_busy_for_a_while_is_told_from_one_that_lacks_something(
    server: HttpS3, ask: Callable[[S3Store], None]
) -> None:
    """Throttled or failing by itself: what the settings say may be right. One that is full is not."""
    faults = [fault for fault, _ in ANSWERS if fault[0] not in (404, 501)]
    kinds = {}
    for fault in (*faults, (429, "TooManyRequests"), (502, "BadGateway")):
        server.faults.append(fault)
        with pytest.raises(UnmetError) as caught:
            ask(store_of(server.url))
        kinds[fault] = isinstance(caught.value, StoreBusyError)
    assert {fault[0] for fault, is_busy in kinds.items() if is_busy} == {429, 500, 502, 503}


@pytest.mark.parametrize("region", [None, "eu-north-1"])
def test_redirect_is_told_with_bucket_region_and_status(server: HttpS3, region: str | None) -> None:
    """Botocore went round in circles if the answer (XML, HTML or nothing) named no region."""
    store = store_of(server.url)
    server.error_headers = {"Location": server.url} | ({} if region is None else {"x-amz-bucket-region": region})
    for status, page in product((301, 302, 307), (None, HTML, b"")):
        server.faults.extend([(status, "PermanentRedirect")] * 30)
        server.requests.clear()
        server.head_status, server.page = status, page
        told = refusal(store)
        deadline = Deadline.after(3.0, time.monotonic)
        with pytest.raises((StoreRefusedError, UploadError), match=f"bucket bucket at {server.url}: {status}"):
            store.put("logs/one.avro", b"body", sha256=b"", crc32=0, metadata={}, deadline=deadline)

        assert f"bucket bucket at {server.url}: {status}" in told
        assert ("in region eu-north-1" if region else "it does not say which") in told
        assert "the worker signs for eu-west-1: set s3.region" in told
        assert len(server.requests) < 40
        server.faults.clear()


WAYS: dict[str, tuple[Callable[[], object], str, str]] = {
    "refused": (lambda: nullcontext(closed_port()), "http", "it cannot be reached: Connection refused"),
    "unknown host": (lambda: nullcontext("no-such-host.invalid"), "http", "it cannot be reached: Name or service not"),
    "https on http": (lambda: serve(http), "https", "TLS failed"),
    "hangs up": (lambda: serve(hang_up), "http", "it closes the connection: no S3"),
    "silent": (lambda: serve(silent), "http", "no answer in time"),
    "silent, https": (lambda: serve(silent), "https", "no answer in time"),
}


@pytest.mark.parametrize("way", WAYS)
def test_store_that_does_not_answer_is_named_with_its_reason(way: str) -> None:
    """Within ten seconds, with its address."""
    where, scheme, said = WAYS[way]
    with where() as address:  # type: ignore[attr-defined]  # of several kinds
        told = refusal(store_of(f"{scheme}://{address}"))

    assert told.startswith(f"bucket bucket at {scheme}://{address}: {said}")
    gc.collect()  # what was cut off in its handshake is closed then, which is no other test's business


@contextmanager
def half_open_proxy() -> Iterator[str]:
    """Give the address of a proxy that lets a connection through, and then trickles."""
    ended = threading.Event()

    def answer(link: socket.socket) -> None:
        link.recv(65_536)
        link.sendall(b"HTTP/1.1 200 OK\r\nX-Slow: ")
        while not ended.wait(0.2):
            link.sendall(b"x")

    with serve(answer) as address:
        try:
            yield address
        finally:
            ended.set()


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("proxy", [lambda: serve(silent), half_open_proxy], ids=["silent", "trickles"])
def test_deadline_holds_behind_a_proxy(
    scheme: str, proxy: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it says nothing or a byte now and then, to a request or to CONNECT."""
    with proxy() as address:  # type: ignore[attr-defined]  # of two kinds
        monkeypatch.setenv("HTTP_PROXY", f"http://{address}")
        monkeypatch.setenv("HTTPS_PROXY", f"http://{address}")
        monkeypatch.setenv("NO_PROXY", "")
        refusal(store_of(f"{scheme}://store.example:9000"))
    gc.collect()


def test_store_that_trickles_is_named_in_time() -> None:
    """Each byte began the time-out anew."""
    with trickle(reads=True) as url:
        assert "no answer in time" in refusal(store_of(url))


def test_trouble_lasts_from_the_upload_that_failed_to_the_next_that_does_not(
    server: HttpS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readiness shows it meanwhile."""
    monkeypatch.setattr(object_store, "ATTEMPTS", 1)
    store = store_of(server.url)

    def put(name: str) -> None:
        deadline = Deadline.after(3.0, time.monotonic)
        store.put(f"logs/{name}", b"", sha256=bytes(32), crc32=0, metadata={}, deadline=deadline)

    server.faults.extend([(500, "InternalError"), (403, "AccessDenied")])
    with capture_logs(), pytest.raises(UploadError):
        put("one")
    assert store.trouble == f"bucket bucket at {server.url}: 500 InternalError"
    with pytest.raises(StoreRefusedError):
        put("one")
    store.check()
    assert store.trouble is None


def test_reading_that_is_forbidden_is_said_with_the_permission_and_a_wrong_key_as_one(server: HttpS3) -> None:
    """Verification mode hid what was wrong."""
    store = store_of(server.url)
    store.check_reading()
    server.faults.append((403, "AccessDenied"))
    with pytest.raises(UnmetError, match=r"allow s3:GetObject on arn:aws:s3:::bucket/logs/\*.* set verify\.share to"):
        store.check_reading()
    server.faults.append((403, "InvalidAccessKeyId"))
    with pytest.raises(UnmetError) as caught:
        store.check_reading()
    assert "it does not know this access key" in str(caught.value)
    assert "GetObject" not in str(caught.value)
