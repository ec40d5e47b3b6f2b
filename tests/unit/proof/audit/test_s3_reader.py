"""A refusal of S3 tells the audit that an object is gone, or that it cannot tell."""

from __future__ import annotations

import io
from argparse import Namespace
from typing import Any, NoReturn

import botocore.exceptions
import pytest

from log_partitioner.config.s3_settings import ATTEMPTS, S3Settings
from log_partitioner.config.settings import KafkaSettings, Settings
from log_partitioner.errors import CouldNotTellError, StoreRefusedError
from log_partitioner.proof.audit import run
from log_partitioner.proof.audit.store import Address, S3Reader


class Refusing:
    """A client that refuses everything for one reason."""

    def __init__(self, code: str) -> None:
        self._code = code

    def get_object(self, **_: Any) -> NoReturn:
        """Refuse."""
        raise botocore.exceptions.ClientError({"Error": {"Code": self._code}}, "GetObject")


@pytest.mark.parametrize(
    ("code", "bucket", "is_missing"),
    [
        ("NoSuchKey", "ours", True),
        ("NoSuchBucket", "another", True),
        ("NoSuchBucket", "ours", False),
        ("AccessDenied", "another", False),
    ],
)
def test_object_in_a_bucket_that_is_not_there_is_missing_unless_it_is_the_settings_own(
    code: str, bucket: str, *, is_missing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reference may name any bucket; without that of the settings nothing can be told."""
    reader = S3Reader(S3Settings(bucket="ours", region="r"), threads=1)
    monkeypatch.setattr(reader, "_client", Refusing(code))
    if is_missing:
        assert reader.get(Address(bucket, "key")) is None
    else:
        with pytest.raises(CouldNotTellError):
            reader.get(Address(bucket, "key"))


@pytest.mark.parametrize("error", [CouldNotTellError("no answer"), StoreRefusedError("no client")])
def test_audit_that_cannot_read_could_not_tell(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, and why; 1 would mean that something is wrong with the data."""

    def refuse(*_: object) -> NoReturn:
        raise error

    monkeypatch.setattr(run, "run_audit", refuse)
    s3, kafka = S3Settings(bucket="b", region="r"), KafkaSettings(bootstrap_servers="b:1", source_topics=("t",))
    args = Namespace(require_caught_up=False, examples=5, threads=1, json_file=None, last=None, begin=None, end=None)

    assert run.main(args, Settings(kafka=kafka, s3=s3)) == 2
    assert capsys.readouterr().err == f"could not tell: {error}\n"


def test_reader_has_a_connection_for_each_thread_and_the_attempts_of_the_worker() -> None:
    """It checks bytes against the checksum that the store sends with them."""
    config = S3Reader(S3Settings(bucket="ours", region="r"), threads=5)._client.meta.config
    assert (config.max_pool_connections, config.retries["total_max_attempts"]) == (5, ATTEMPTS)
    assert config.response_checksum_validation == "when_supported"


class Giving:
    """A client that gives ranges of one object."""

    def get_object(self, *, Range: str = "bytes=0-9", **_: Any) -> dict[str, Any]:  # noqa: N803 - boto3's names
        """Give it."""
        first, last = map(int, Range.removeprefix("bytes=").split("-"))
        return {"Body": io.BytesIO(b"0123456789"[first : last + 1]), "ETag": "e"}


@pytest.mark.parametrize(("ranges", "data"), [(None, b"0123456789"), ([(0, 2), (7, 3)], b"01789")])
def test_ranges_of_an_object_come_put_together(
    ranges: list[tuple[int, int]] | None, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a reference names them: first byte and length."""
    reader = S3Reader(S3Settings(bucket="ours", region="r"), threads=1)
    monkeypatch.setattr(reader, "_client", Giving())

    assert reader.get(Address("ours", "key"), ranges) == (data, "e")
