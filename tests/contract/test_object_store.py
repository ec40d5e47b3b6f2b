"""The object store's contract, for the fake and for boto3 against a tiny S3 on loopback; and S3's faults."""

from __future__ import annotations

import hashlib
import os
import random
import ssl
import subprocess
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from botocore.credentials import DeferredRefreshableCredentials
from pydantic import SecretStr
from structlog.testing import capture_logs

from log_partitioner.adapters import object_store
from log_partitioner.adapters.clock import SystemClock
from log_partitioner.adapters.object_store import S3Store
from log_partitioner.boundary import StoredObject
from log_partitioner.config.s3_settings import S3Settings
from log_partitioner.control.deadline import Deadline
from log_partitioner.errors import KeyTakenError, ReadBackError, StoreRefusedError, UnmetError, UploadError
from log_partitioner.runtime.uploader import Upload, Uploader, bytes_upload
from tests.contract.endpoint import endpoint
from tests.contract.http_s3 import CUT_AFTER, CUT_BEFORE, NO_ETAG, Fault, HttpS3, serve, trickle
from tests.contract.store_suite import ObjectStoreContract, Place, Reader
from tests.fakes.clock import FakeClock
from tests.fakes.metrics import RecordingMetrics
from tests.fakes.store import Bucket, FakeObjectStore

_prefixes = count()
ASKING: dict[str, Any] = {
    "encryption": "aws:kms", "kms_key_id": "a-key", "bucket_key": True, "storage_class": "STANDARD_IA",
    "tags": {"team": "logs & more"}, "bucket_owner": "111122223333",
}  # fmt: skip
OF_OWNER = {"x-amz-expected-bucket-owner": "111122223333"}
ASKED_FOR = {
    "x-amz-server-side-encryption": "aws:kms",
    "x-amz-server-side-encryption-aws-kms-key-id": "a-key",
    "x-amz-server-side-encryption-bucket-key-enabled": "true",
    "x-amz-storage-class": "STANDARD_IA",
    "x-amz-tagging": "team=logs+%26+more",
    **OF_OWNER,
}


def sleep_by(instead: Callable[[float], object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the sleep of this thread; whatever threads other tests have left in the process sleep as they did."""
    own, sleep = threading.get_ident(), time.sleep

    def choose(seconds: float) -> None:
        (instead if threading.get_ident() == own else sleep)(seconds)

    monkeypatch.setattr(time, "sleep", choose)


def reader_of(bucket: Bucket) -> Reader:
    """Read from a fake bucket."""

    def read(key: str) -> bytes | None:
        return bucket.objects.get(key)

    return read


class TestFakeObjectStore(ObjectStoreContract):
    """The fake."""

    @pytest.fixture
    def place(self) -> Place:
        """Give a place."""
        bucket, clock = Bucket(), FakeClock()
        return Place(FakeObjectStore(bucket, clock), "logs", clock, reader_of(bucket))


@pytest.fixture(scope="module")
def running() -> Iterator[HttpS3]:
    """Run one server for all tests of this file."""
    with serve() as running:
        yield running


@pytest.fixture
def server(running: HttpS3) -> HttpS3:
    """Give the server, on which no other test has left anything but objects."""
    running.faults.clear()
    running.requests.clear()
    running.headers.clear()
    running.head_status = 200
    return running


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Repeat at once: what is tested is whether, not when."""
    monkeypatch.setattr(object_store, "_BACKOFF_FIRST_S", 0.0)


def at(url: str, **more: object) -> S3Settings:
    """Give settings for the store of an address."""
    keys = {"access_key": SecretStr("key"), "secret_key": SecretStr("secret")}
    return S3Settings.model_validate({"bucket": "bucket", "endpoint_url": url, **keys, **more})


def settings(server: HttpS3, **more: object) -> S3Settings:
    """Give settings for the server."""
    return at(server.url, **more)


@pytest.fixture
def place(server: HttpS3) -> Iterator[Place]:
    """Give a place on the server, under a prefix of this test's own."""
    yield Place(S3Store(settings(server)), f"logs-{next(_prefixes)}", FakeClock(), server.read)
    assert not server.faults, "every fault was met"


class TestS3Store(ObjectStoreContract):
    """The real adapter, through boto3."""


RETRIABLE: list[Fault] = [
    (500, "InternalError"), (502, "BadGateway"), (503, "SlowDown"), (503, "ServiceUnavailable"), (504, "Timeout"),
    (429, "TooManyRequests"), (400, "RequestTimeout"), (409, "ConditionalRequestConflict"), (409, "OperationAborted"),
    (403, "RequestTimeTooSkewed"), (400, "ExpiredToken"), (400, "BadDigest"), CUT_BEFORE,
]  # fmt: skip


@pytest.mark.parametrize("fault", RETRIABLE, ids=str)
def test_fault_that_passes_is_repeated(place: Place, server: HttpS3, fault: Fault) -> None:
    """Each of S3's passing faults, twice; boto3 itself repeats nothing."""
    server.faults.extend([fault, fault])
    place.put("one.avro", b"body")
    assert place.read(place.key("one.avro")) == b"body"
    assert len(server.requests) == 3


@pytest.mark.parametrize(
    "fault", [(403, "AccessDenied"), (404, "NoSuchBucket"), (403, "SignatureDoesNotMatch"), (400, "InvalidRequest")]
)
def test_fault_that_stays_stops_the_worker_at_once(place: Place, server: HttpS3, fault: Fault) -> None:
    """No permission, no bucket: repeating it mends nothing."""
    server.faults.append(fault)
    with pytest.raises(StoreRefusedError, match=str(fault[1])):
        place.put("one.avro", b"body")
    assert len(server.requests) == 1


def test_credentials_that_expired_and_are_not_renewed_while_it_asks_again_stop_the_worker(
    place: Place, server: HttpS3
) -> None:
    """The process gets no others; the next process may get some."""
    server.faults.extend([(400, "ExpiredToken")] * 5)
    with pytest.raises(StoreRefusedError, match="400 ExpiredToken: the credentials have expired"):
        place.put("one.avro", b"body")


def test_nothing_is_said_of_or_waited_for_a_repetition_that_does_not_come(
    place: Place, server: HttpS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five attempts have four waits between them, and one line for the one cause; the error says the last, and the key.

    They end in a discard.
    """
    waits: list[float] = []
    sleep_by(waits.append, monkeypatch)
    server.faults.extend([(500, "InternalError")] * 5)
    with capture_logs() as logs, pytest.raises(UploadError, match="500 InternalError") as caught:
        place.put("one.avro", b"body")
    assert caught.value.object_key == place.key("one.avro")
    assert (len(server.requests), len(waits)) == (5, 4)
    assert [(line["event"], line["problem"]) for line in logs] == [
        ("upload_repeated", f"bucket bucket at {server.url}: 500 InternalError")
    ]


def test_puts_are_spaced_by_the_upper_rate(server: HttpS3, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first goes at once; each other, an attempt again too, waits for its turn behind those before it."""
    waits: list[float] = []
    sleep_by(waits.append, monkeypatch)
    store = S3Store(settings(server, puts_per_s_max=0.01))
    for number in range(4):
        body = b"%d" % number
        store.put(
            f"logs/{number}", body, sha256=hashlib.sha256(body).digest(), crc32=zlib.crc32(body), metadata={},
            deadline=Deadline.after(1000, time.monotonic),
        )  # fmt: skip
    assert waits == [pytest.approx(wait_s, abs=20) for wait_s in (100, 200, 300)]


def test_put_whose_turn_is_behind_its_deadline_takes_none_from_others(
    server: HttpS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else flushes that come too late one after the other would leave less and less time to the next: never one PUT."""
    waits: list[float] = []
    sleep_by(waits.append, monkeypatch)
    store = S3Store(settings(server, puts_per_s_max=0.01))

    def put(key: str, seconds: float) -> None:
        digests: Any = {"sha256": hashlib.sha256(b"").digest(), "crc32": zlib.crc32(b"")}
        store.put(key, b"", **digests, metadata={}, deadline=Deadline.after(seconds, time.monotonic))

    put("logs/late-0", 50)
    for number in range(1, 5):
        with pytest.raises(UploadError, match="its turn came after the deadline"):
            put(f"logs/late-{number}", 50)
    put("logs/late-5", 1000)
    assert waits[-1] == pytest.approx(100, abs=20)
    assert {key for key in server.objects if "late" in key} == {"logs/late-0", "logs/late-5"}
    assert store.trouble is None


@pytest.mark.parametrize("way", ["answer", "body"])
def test_request_that_trickles_ends_with_its_deadline(way: str) -> None:
    """A byte now and then keeps botocore's time-outs from passing; the thread is free again (KAFKA_FACTS S2)."""
    with trickle(reads=way == "answer") as url:
        store = S3Store(at(url))
        begun_s, clock = time.monotonic(), SystemClock()
        with pytest.raises(UploadError):
            Place(store, "logs", clock, lambda _key: None).put("one.avro", bytes(32 * 1024 * 1024), seconds=2.0)
    assert time.monotonic() - begun_s < 10


def test_requests_are_counted_by_operation_and_by_what_came_of_them(server: HttpS3) -> None:
    """With their seconds; a PUT that is sent again is a retry. Without an answer a word says why."""
    metrics = RecordingMetrics()
    store = S3Store(settings(server), metrics=metrics)
    server.faults.extend([(503, "SlowDown"), CUT_AFTER])
    place = Place(store, f"logs-{next(_prefixes)}", SystemClock(), server.read)
    with pytest.raises(KeyTakenError):
        place.put("one.avro", b"body")
    store.find(place.key("one.avro"), sha256=hashlib.sha256(b"body").digest(), size=4)
    counts = {
        (dict(labels)["operation"], dict(labels)["code"]): n for (_, labels), n in metrics.counted.items() if labels
    }
    assert counts == {("put", "503"): 1, ("put", "closed"): 1, ("put", "412"): 1, ("head", "200"): 1}
    assert metrics.total("store_retries") == 2
    assert len(metrics.observed["store_request_duration_seconds", (("operation", "put"),)]) == 3
    with pytest.raises(UnmetError):
        S3Store(at("http://127.0.0.1:1"), metrics=metrics).check_reading()
    assert metrics.total("store_requests", operation="get", code="unreachable") == 1


def four(stem: str) -> list[Upload]:
    """Describe four uploads."""
    return [bytes_upload(b"x", f"{stem}-{n}", {}, shared=False) for n in range(4)]


def nothing() -> None:
    """Note nothing."""


@pytest.mark.parametrize("seconds", [1.0, 90.0])
def test_threads_held_by_trickling_answers_do_not_add_up(seconds: float) -> None:
    """Each flush has threads of its own, and those of a failed one end, whatever time they had."""
    before = set(threading.enumerate())
    with trickle(reads=True) as url:
        store = S3Store(at(url))
        uploader = Uploader(store, threads=4)
        for flush in range(3):
            deadline, end = Deadline.after(seconds, time.monotonic), Deadline.after(1.0, time.monotonic)
            with pytest.raises(UploadError):
                uploader.put_all(four(f"{flush}"), deadline, abandoned=end.has_passed, note_stored=nothing)
        until_s = time.monotonic() + 20
        while _uploading(before) and time.monotonic() < until_s:
            time.sleep(0.1)
        assert _uploading(before) == []


def test_threads_that_wait_for_credentials_do_not_add_up(server: HttpS3) -> None:
    """Their source is silent: one thread asks, the others end with their deadline; later uploads work again."""
    before, answers = set(threading.enumerate()), threading.Event()

    def ask() -> dict[str, str]:
        answers.wait(60)
        return {"access_key": "key", "secret_key": "secret", "token": "t", "expiry_time": "2999-01-01T00:00:00Z"}

    client = object_store.make_client(settings(server))
    client._request_signer._credentials = DeferredRefreshableCredentials(ask, "test")  # type: ignore[attr-defined]
    uploader = Uploader(S3Store(settings(server), client=client), threads=4)
    for flush in range(3):
        deadline = Deadline.after(1.0, time.monotonic)
        with pytest.raises(UploadError):
            uploader.put_all(four(f"c{flush}"), deadline, abandoned=lambda: False, note_stored=nothing)
    until_s = time.monotonic() + 10
    while len(_uploading(before)) > 1 and time.monotonic() < until_s:
        time.sleep(0.1)
    held = _uploading(before)
    answers.set()
    assert len(held) <= 1
    deadline = Deadline.after(10.0, time.monotonic)
    assert len(uploader.put_all(four("c"), deadline, abandoned=lambda: False, note_stored=nothing)) == 4


def _uploading(before: set[threading.Thread]) -> list[str]:
    """Give the names of the threads of uploads that have begun since."""
    names = {f"upload-{n}" for n in range(4)}
    return [thread.name for thread in threading.enumerate() if thread.name in names and thread not in before]


def test_question_that_trickles_ends_too() -> None:
    """HEAD has the time of one connection and one answer."""
    with trickle(reads=True) as url:
        store = S3Store(
            S3Settings(bucket="bucket", endpoint_url=url, access_key=SecretStr("key"), secret_key=SecretStr("secret")),
            answer_s=1,
        )
        begun_s = time.monotonic()
        assert store.find("one.avro", sha256=b"", size=1) is None
    assert time.monotonic() - begun_s < 10


@pytest.mark.parametrize(
    "fault", [(403, "AccessDenied"), (500, "InternalError"), CUT_BEFORE, (412, "PreconditionFailed")]
)
def test_user_of_a_key_is_in_no_line_and_no_error(place: Place, server: HttpS3, fault: Fault) -> None:
    """I11: not by the key, not by the store's text, not by the address that botocore names; the rest of the key is."""
    server.faults.extend([fault] * 5)
    server.text = "no s3:PutObject on arn:aws:s3:::bucket/logs/user=canary-user-1/date=2026-01-01/hour=00/b-1.avro"
    key = "logs/user=canary-user-1/date=2026-01-01/hour=00/b-1.avro"
    with capture_logs() as logs, pytest.raises((UploadError, StoreRefusedError, KeyTakenError)) as caught:
        place.store.put(key, b"body", sha256=b"", crc32=0, metadata={}, deadline=Deadline.after(9, place.clock.now_s))
    server.faults.clear()
    server.head_status = 500
    with capture_logs() as found:
        place.store.find(key, sha256=b"", size=1)
    text = f"{logs}{found}" + ("" if caught.type is KeyTakenError else str(caught.value))  # which the uploader catches
    assert "canary-user-1" not in text
    assert "/date=2026-01-01/hour=00/b-1.avro" in f"{found}"


def test_throttling_is_waited_out_however_often_it_is_said(place: Place, server: HttpS3) -> None:
    """A store that takes so many requests a second refuses the others again and again; the deadline is the bound."""
    server.faults.extend([(503, "SlowDown"), (429, "TooManyRequests")] * 10)
    place.put("one.avro", b"body")
    assert place.read(place.key("one.avro")) == b"body"


def test_finding_9_lost_answer_becomes_a_taken_key_that_is_found_to_be_ours(place: Place, server: HttpS3) -> None:
    """Stored, the answer lost, the repetition gets 412: by length and checksum it is ours (KAFKA_FACTS S5)."""
    import hashlib  # noqa: PLC0415

    server.faults.append(CUT_AFTER)
    with pytest.raises(KeyTakenError):
        place.put("one.avro", b"body")
    found = place.store.find(place.key("one.avro"), sha256=hashlib.sha256(b"body").digest(), size=4)
    assert isinstance(found, StoredObject)
    assert [method for method, _ in server.requests] == ["PUT", "PUT", "HEAD"]


def test_answer_without_etag_is_no_acknowledgement(place: Place, server: HttpS3) -> None:
    """W4: it is asked again, and what is there already is compared."""
    server.faults.append(NO_ETAG)
    with pytest.raises(KeyTakenError):
        place.put("one.avro", b"body")


@pytest.mark.parametrize("status", [403, 404, 500])
def test_find_without_permission_or_answer_finds_nothing(place: Place, server: HttpS3, status: int) -> None:
    """An object that the worker may not read is not provably its own, so the worker takes another key."""
    place.put("one.avro", b"body")
    server.head_status = status
    assert place.store.find(place.key("one.avro"), sha256=b"", size=4) is None


def test_deadline_ends_the_repetitions(place: Place, server: HttpS3, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wall clock bounds what boto3's own time-outs do not."""
    server.faults.extend([(503, "SlowDown")] * 2)
    sleep_by(lambda _seconds: place.clock.advance(50.0), monkeypatch)
    with pytest.raises(UploadError):
        place.put("one.avro", b"body", seconds=90.0)
    assert len(server.requests) == 2


def test_wait_before_a_repetition_never_passes_the_deadline(
    place: Place, server: HttpS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Backing off is part of the budget, and leaves time for the attempt that it is for."""
    waits: list[float] = []
    monkeypatch.setattr(object_store, "_backoff_s", lambda _attempt: 1000.0)
    sleep_by(waits.append, monkeypatch)
    server.faults.extend([(503, "SlowDown")])
    place.put("one.avro", b"body", seconds=7.0)
    assert waits == [pytest.approx(3.5)]


@pytest.mark.parametrize(
    ("checksum", "header"), [("sha256", "x-amz-checksum-sha256"), ("crc32", "x-amz-checksum-crc32")]
)
def test_put_is_conditional_and_carries_one_checksum(place: Place, server: HttpS3, checksum: str, header: str) -> None:
    """By setting: for stores that know only one."""
    place._replace(store=S3Store(settings(server, checksum=checksum))).put("one.avro", b"body")
    (sent,) = server.headers
    assert sent["if-none-match"] == "*"
    assert [name for name in sent if name.startswith("x-amz-checksum-")] == [header]
    assert sent["x-amz-meta-lp-batch-id"] == "b"


def test_put_is_unconditional_where_a_store_does_not_know_conditions(place: Place, server: HttpS3) -> None:
    """By setting; keys are unique all the same."""
    place._replace(store=S3Store(settings(server, conditional=False))).put("one.avro", b"body")
    assert "if-none-match" not in server.headers[0]


def test_body_is_sent_as_it_is(place: Place, server: HttpS3) -> None:
    """No chunked signing around it: other stores store the chunks (KAFKA_FACTS S4)."""
    place.put("one.avro", b"body")
    assert "content-encoding" not in server.headers[0]
    assert server.headers[0]["content-length"] == "4"


def test_object_larger_than_a_slow_store_takes_within_a_time_out_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is sent in pieces, each with a time-out of its own: botocore reads bytes like a file."""
    monkeypatch.setattr(object_store, "ATTEMPTS", 1)
    clock = FakeClock()
    with serve(bytes_per_s=2_000_000) as slow:
        place = Place(S3Store(settings(slow)), "logs", clock, slow.read)
        place.put("large.avro", bytes(8 * 2**20))
        assert len(slow.read(place.key("large.avro")) or b"") == 8 * 2**20


@pytest.mark.parametrize(
    "fault",
    [(500, "InternalError"), (503, "SlowDown"), (403, "RequestTimeTooSkewed"), CUT_BEFORE, CUT_AFTER],
)
def test_reading_is_tried_again(place: Place, server: HttpS3, fault: Fault) -> None:
    """The store retries every error that may pass."""
    store = S3Store(settings(server))
    place.put("one.avro", b"body")
    server.faults.extend([fault, fault])
    deadline = Deadline.after(60.0, time.monotonic)
    assert store.read(*place.address("one.avro"), deadline=deadline) == b"body"
    server.faults.extend([fault] * 5)
    with pytest.raises(ReadBackError):
        store.read(*place.address("one.avro"), deadline=deadline)


def test_reading_that_is_forbidden_is_said_with_the_permission(place: Place, server: HttpS3) -> None:
    """While it works, as at the start."""
    store = S3Store(settings(server))
    server.faults.append((403, "AccessDenied"))
    with pytest.raises(StoreRefusedError, match=r"403 AccessDenied.* s3:GetObject on arn:aws:s3:::bucket/logs/\*"):
        store.read(*place.address("one.avro"), deadline=Deadline.after(60.0, time.monotonic))


def test_bucket_name_that_cannot_be_one_is_refused(server: HttpS3) -> None:
    """boto3 refuses it before anything is sent: no repetition mends it."""
    store = S3Store(S3Settings(bucket="not a bucket", endpoint_url=server.url, region="us-east-1"))
    with pytest.raises(StoreRefusedError):
        store.check()
    clock = FakeClock()
    with pytest.raises(StoreRefusedError):
        Place(store, "logs", clock, server.read).put("one.avro", b"body")


@pytest.fixture
def no_keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """Leave nothing where boto3 looks for credentials."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setattr("boto3.DEFAULT_SESSION", None)
    monkeypatch.setattr("botocore.utils.ContainerMetadataFetcher.SLEEP_TIME", 0)
    return monkeypatch


@pytest.mark.usefixtures("no_keys")
def test_client_without_credentials_stops_the_worker(server: HttpS3) -> None:
    """It never looks again: an instance's metadata that was silent for a second is asked by the next process."""
    store = S3Store(S3Settings(bucket="bucket", endpoint_url=server.url))
    with pytest.raises(StoreRefusedError, match="no credentials"):
        store.check()
    with pytest.raises(StoreRefusedError, match="no credentials"):
        Place(store, "logs", FakeClock(), server.read).put("one.avro", b"body")


def test_credentials_that_cannot_be_asked_for_stop_the_worker_with_one_line(
    no_keys: pytest.MonkeyPatch, server: HttpS3
) -> None:
    """A pod's agent that does not answer yet: the process that follows asks again."""
    with serve() as gone:
        no_keys.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{gone.url}/credentials")
    with pytest.raises(StoreRefusedError, match="CredentialRetrievalError"):
        S3Store(S3Settings(bucket="bucket", endpoint_url=server.url))


def test_role_of_a_profile_is_assumed_by_external_id_and_its_keys_are_renewed(
    no_keys: pytest.MonkeyPatch, server: HttpS3, tmp_path: Path
) -> None:
    """By what boto3 reads: no setting is needed. Keys that live for a minute are renewed for each request."""
    config = tmp_path / "config"
    config.write_text(
        "[profile writer]\nrole_arn = arn:aws:iam::111122223333:role/writer\nexternal_id = ours\n"
        "source_profile = first\n[profile first]\naws_access_key_id = first\naws_secret_access_key = secret\n"
    )
    server.calls.clear()
    with roles() as (url, asked):
        for name, value in {
            "AWS_CONFIG_FILE": str(config), "AWS_PROFILE": "writer", "AWS_ENDPOINT_URL_STS": url,
            "AWS_REGION": "eu-central-1", "AWS_DEFAULT_REGION": "eu-central-1",
        }.items():  # fmt: skip
            no_keys.setenv(name, value)
        store = S3Store(S3Settings(bucket="bucket", endpoint_url=server.url))
        store.check()
        Place(store, f"logs-{next(_prefixes)}", FakeClock(), server.read).put("one.avro", b"body")
    tokens = [call.headers["x-amz-security-token"] for call in server.calls]
    assert len(set(tokens)) == len(tokens) > 1
    assert set(tokens) <= {f"token-{number}" for number in range(len(asked))}
    assert {(one["RoleArn"][0], one["ExternalId"][0]) for one in asked} == {
        ("arn:aws:iam::111122223333:role/writer", "ours")
    }


def test_session_token_of_the_environment_is_sent(no_keys: pytest.MonkeyPatch, server: HttpS3) -> None:
    """With its keys, as boto3 finds them."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        no_keys.setenv(name, name.lower())
    S3Store(S3Settings(bucket="bucket", endpoint_url=server.url)).check()
    assert server.calls[-1].headers["x-amz-security-token"] == "aws_session_token"


@pytest.mark.filterwarnings("ignore:Exception ignored in. <ssl.SSLSocket")
def test_store_behind_an_authority_of_ones_own_is_trusted_by_aws_ca_bundle(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The variable that every tool of AWS reads."""
    key, made = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(made)]
    subprocess.run(command, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made, key)
    with serve(context=context) as secure:
        with pytest.raises(UnmetError, match="TLS failed"):
            S3Store(settings(secure)).check()
        monkeypatch.setenv("AWS_CA_BUNDLE", str(made))
        S3Store(settings(secure)).check()


def test_every_request_has_what_the_settings_ask_for(place: Place, server: HttpS3) -> None:
    """A PUT says how the object is kept, each request whose the bucket is; without settings none of it is sent."""
    S3Store(settings(server, conditional=False)).check()
    assert ASKED_FOR.keys().isdisjoint(server.calls[-1].headers)
    store = S3Store(settings(server, **ASKING))
    server.calls.clear()
    store.check()
    written = place._replace(store=store).put("one.avro", b"body")
    assert store.find(written.key, sha256=hashlib.sha256(b"body").digest(), size=4) is not None
    store.check_reading()
    assert [call.method for call in server.calls] == ["PUT", "PUT", "HEAD", "GET"]
    for call in server.calls:
        asked = ASKED_FOR if call.method == "PUT" else OF_OWNER
        assert {name: value for name, value in call.headers.items() if name in ASKED_FOR} == asked


def test_refusal_names_the_rights_that_the_settings_need(server: HttpS3) -> None:
    """Beside the one to write: of tags, of the key, of the account."""
    server.faults.append((403, "AccessDenied"))
    with pytest.raises(UnmetError) as caught:
        S3Store(settings(server, **ASKING)).check()
    rights = "s3:PutObject and s3:PutObjectTagging on arn:aws:s3:::bucket/logs/* and kms:GenerateDataKey on a-key"
    assert f"allow {rights} in account 111122223333 (s3.bucket_owner)" in str(caught.value)


@contextmanager
def roles() -> Iterator[tuple[str, list[dict[str, list[str]]]]]:
    """Give the address of a service that lets anybody assume any role for a minute, and what it was asked."""
    asked: list[dict[str, list[str]]] = []

    def answer(body: bytes) -> bytes:
        number = len(asked)
        asked.append(parse_qs(body.decode()))
        ends = (datetime.now(UTC) + timedelta(minutes=1)).isoformat()
        keys = {"AccessKeyId": f"key-{number}", "SecretAccessKey": "s", "SessionToken": f"token-{number}"}
        inner = "".join(f"<{name}>{value}</{name}>" for name, value in {**keys, "Expiration": ends}.items())
        return f"<R><AssumeRoleResult><Credentials>{inner}</Credentials></AssumeRoleResult></R>".encode()

    with endpoint(answer, content_type="text/xml") as address:
        yield address, asked


def test_backoff_grows_to_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Doubled from the first, never beyond the last, with jitter over all of it."""
    monkeypatch.setattr(object_store, "_BACKOFF_FIRST_S", 0.1)
    monkeypatch.setattr(random, "uniform", lambda _low, high: high)
    assert [object_store._backoff_s(attempt) for attempt in (0, 1, 3, 20)] == [0.1, 0.2, 0.8, 5.0]
