"""The S3 of the test run does what the service relies on, and its fault proxy what its rules say."""

import base64
import hashlib
import threading
import zlib
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, ConnectionClosedError, ReadTimeoutError

from tests.stack.names import Names
from tests.stack.providers import jars
from tests.stack.s3_helper import S3Helper
from tools.local.s3 import S3Server
from tools.local.s3_fault_rules import Action, Rule, lost_answer
from tools.local.s3_faults import S3FaultProxy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mypy_boto3_s3 import S3Client

pytestmark = pytest.mark.integration

BODY = b"0123456789" * 500
SHA256 = base64.b64encode(hashlib.sha256(BODY).digest()).decode()
CRC32 = base64.b64encode(zlib.crc32(BODY).to_bytes(4, "big")).decode()


@pytest.fixture
def bucket(s3: S3Helper, names: Names) -> str:
    return s3.create_bucket(names.bucket())


@pytest.fixture
def faulty(s3_faults: S3FaultProxy) -> "Iterator[S3Client]":
    """A client that goes through the fault proxy, does not retry and is not patient."""
    client = s3_faults.endpoint.client(Config(read_timeout=2))
    yield client
    client.close()


def _status(caught: "pytest.ExceptionInfo[ClientError]") -> tuple[int, str]:
    response = caught.value.response
    return response["ResponseMetadata"]["HTTPStatusCode"], response["Error"]["Code"]


def test_of_concurrent_conditional_puts_one_wins(s3: S3Helper, bucket: str) -> None:
    winners: list[int] = []

    def put(number: int) -> None:
        try:
            s3.client.put_object(Bucket=bucket, Key="k", Body=b"%d" % number, IfNoneMatch="*")
        except ClientError:
            return
        winners.append(number)

    writers = [threading.Thread(target=put, args=(number,)) for number in range(8)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()

    assert [s3.read(bucket, "k")] == [b"%d" % number for number in winners]


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("ChecksumSHA256", SHA256, base64.b64encode(bytes(32)).decode()),
        ("ChecksumCRC32", CRC32, base64.b64encode(bytes(4)).decode()),
    ],
)
def test_checksum_is_verified_and_returned(s3: S3Helper, bucket: str, name: str, right: str, wrong: str) -> None:
    with pytest.raises(ClientError) as caught:
        s3.client.put_object(Bucket=bucket, Key="k", Body=BODY, IfNoneMatch="*", **{name: wrong})
    assert _status(caught)[0] == 400
    assert s3.keys(bucket) == []

    stored = s3.client.put_object(Bucket=bucket, Key="k", Body=BODY, IfNoneMatch="*", **{name: right})
    found = s3.client.head_object(Bucket=bucket, Key="k", ChecksumMode="ENABLED")

    assert (stored[name], found[name], found["ContentLength"]) == (right, right, len(BODY))


@pytest.mark.parametrize(
    "key",
    ["user=a%2Fb/x", "user=%41/x", "user=a b+c&d?e#f/x", "user=žluť 日本/x", "user=..x:\\*/x", "u" * 218],
)
def test_key_comes_back_as_it_was(s3: S3Helper, bucket: str, key: str) -> None:
    s3.client.put_object(Bucket=bucket, Key=key, Body=BODY, Metadata={"batch-id": "b1", "ranges": '{"t":[0,2]}'})

    assert s3.keys(bucket) == [key]
    assert s3.read(bucket, key) == BODY
    assert s3.client.head_object(Bucket=bucket, Key=key)["Metadata"] == {
        "batch-id": "b1",
        "ranges": '{"t":[0,2]}',
    }


def test_server_keeps_objects_over_kill_and_restart(tmp_path: Path) -> None:
    with S3Server(jars=jars(), root=tmp_path) as server:
        helper = S3Helper(server.endpoint, provider="test")
        helper.create_bucket("kept")
        helper.client.put_object(Bucket="kept", Key="k", Body=BODY)

        server.kill()
        with pytest.raises(BotoCoreError):
            helper.keys("kept")
        server.start()

        assert helper.read("kept", "k") == BODY
        assert (tmp_path / "s3proxy.properties").stat().st_mode & 0o777 == 0o600
        helper.close()


def test_lost_answer_makes_the_retry_fail_although_we_wrote(
    s3: S3Helper, s3_faults: S3FaultProxy, faulty: "S3Client", bucket: str
) -> None:
    s3_faults.add(lost_answer())

    with pytest.raises(ConnectionClosedError):
        faulty.put_object(Bucket=bucket, Key="k", Body=BODY, IfNoneMatch="*")
    with pytest.raises(ClientError) as caught:
        faulty.put_object(Bucket=bucket, Key="k", Body=BODY, IfNoneMatch="*")

    assert _status(caught) == (412, "PreconditionFailed")
    assert s3.read(bucket, "k") == BODY


@pytest.mark.parametrize(
    ("rule", "error", "stored"),
    [
        (Rule(Action.STATUS, status=429, code="TooManyRequests"), ClientError, []),
        (Rule(Action.STATUS, status=408, code="RequestTimeout"), ClientError, []),
        (Rule(Action.DROP_REQUEST), ConnectionClosedError, []),
        (Rule(Action.STALL), ReadTimeoutError, []),
        (Rule(Action.STALL_ANSWER), ReadTimeoutError, ["k"]),
        (Rule(Action.DELAY, delay_s=60), ReadTimeoutError, []),
        (Rule(Action.ERROR_BODY, code="InternalError"), ClientError, []),
        (Rule(Action.CORRUPT_REQUEST), ClientError, []),
        (Rule(Action.TRUNCATE_REQUEST), ClientError, []),
    ],
    ids=lambda value: value.action if isinstance(value, Rule) else "",
)
def test_put_fails_as_the_rule_says(
    s3: S3Helper,
    s3_faults: S3FaultProxy,
    faulty: "S3Client",
    bucket: str,
    rule: Rule,
    error: type[Exception],
    stored: list[str],
) -> None:
    """The client sees the error; whether the object is there is another matter."""
    s3_faults.add(rule)

    with pytest.raises(error):
        faulty.put_object(Bucket=bucket, Key="k", Body=BODY, ChecksumSHA256=SHA256)

    assert s3_faults.done == {rule.action: 1}
    assert s3.keys(bucket) == stored


@pytest.mark.parametrize("action", [Action.CORRUPT_ANSWER, Action.CUT_ANSWER])
def test_get_with_a_broken_body_fails(
    s3: S3Helper, s3_faults: S3FaultProxy, faulty: "S3Client", bucket: str, action: Action
) -> None:
    s3.client.put_object(Bucket=bucket, Key="k", Body=BODY)
    s3_faults.add(Rule(action, method="GET"))

    body = faulty.get_object(Bucket=bucket, Key="k")["Body"]
    with pytest.raises(BotoCoreError), closing(body):
        body.read()


def test_trickled_answer_outlasts_the_read_timeout(s3_faults: S3FaultProxy, faulty: "S3Client", bucket: str) -> None:
    s3_faults.add(Rule(Action.TRICKLE, delay_s=0.02))

    faulty.put_object(Bucket=bucket, Key="k", Body=BODY)

    assert s3_faults.done == {Action.TRICKLE: 1}


def test_fault_proxy_without_a_server_drops_requests(
    s3: S3Helper, s3_faults: S3FaultProxy, tmp_path: Path, bucket: str
) -> None:
    del s3, s3_faults
    with S3Server(jars=jars(), root=tmp_path) as server, S3FaultProxy(server.endpoint) as proxy:
        client = proxy.endpoint.client()
        server.kill()
        with pytest.raises(ConnectionClosedError):
            client.put_object(Bucket=bucket, Key="k", Body=BODY)
        client.close()
