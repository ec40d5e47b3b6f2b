"""A worker asks for encryption, class and tags of everything it writes, with no more rights than deploy/aws gives."""

from __future__ import annotations

import json
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from tests.contract.http_s3 import CUT_AFTER, Call, HttpS3, serve
from tests.integration.harness import REPOSITORY, Deploy
from tests.stack.kafka_helper import KafkaHelper, ToProduce
from tools.local.s3 import S3Endpoint

POLICY = REPOSITORY / "deploy" / "aws" / "iam-policy-worker.json"
KEY = "arn:aws:kms:eu-central-1:111122223333:key/example"
ASKED_FOR = {
    "x-amz-server-side-encryption": "aws:kms",
    "x-amz-server-side-encryption-aws-kms-key-id": KEY,
    "x-amz-server-side-encryption-bucket-key-enabled": "true",
    "x-amz-storage-class": "INTELLIGENT_TIERING",
    "x-amz-tagging": "team=logs",
    "x-amz-expected-bucket-owner": "111122223333",
}
SETTINGS = {
    "LOGP_S3__ENCRYPTION": "aws:kms",
    "LOGP_S3__KMS_KEY_ID": KEY,
    "LOGP_S3__BUCKET_KEY": "true",
    "LOGP_S3__STORAGE_CLASS": "INTELLIGENT_TIERING",
    "LOGP_S3__TAGS": '{"team": "logs"}',
    "LOGP_S3__BUCKET_OWNER": "111122223333",
    "LOGP_KAFKA__MESSAGE_BYTES_MAX": "100000",
    "LOGP_VERIFY__SHARE": "1",
}


@pytest.fixture
def store() -> Iterator[HttpS3]:
    """Give a store that keeps versions."""
    with serve() as running:
        running.version_id = "v1"
        yield running


def some_large_ones() -> Iterator[ToProduce]:
    """Yield an entry whose schema, and a dead letter whose record, has no room in a message."""
    wide = {f"part{part}": {f"a_rather_long_name_{name}": 1 for name in range(400)} for part in range(3)}
    entry = {"user": "canary-user-1", "time": "2026-03-04T05:06:07Z", **wide}
    yield ToProduce(value=json.dumps(entry).encode(), partition=0)
    yield ToProduce(value=json.dumps({"nobody": "x" * 200_000}).encode(), partition=0)


def rights_of(call: Call, store: HttpS3, bucket: str) -> Iterator[tuple[str, str]]:
    """Yield the permissions that a request needs: actions, each on a resource."""
    place = f"arn:aws:s3:::{bucket}/{call.key}"
    if call.method == "PUT":
        yield "s3:PutObject", place
        if "x-amz-tagging" in call.headers:
            yield "s3:PutObjectTagging", place
        if call.headers.get("x-amz-server-side-encryption", "").startswith("aws:kms"):
            yield "kms:GenerateDataKey", call.headers["x-amz-server-side-encryption-aws-kms-key-id"]
        return
    yield ("s3:GetObjectVersion" if "versionId=" in call.query else "s3:GetObject"), place
    if call.key in store.objects:
        yield "kms:Decrypt", KEY
    else:  # without it nobody is told that there is none
        yield "s3:ListBucket", f"arn:aws:s3:::{bucket}"


def statements(file: Path, bucket: str) -> list[tuple[str, str]]:
    """Return what a policy allows: actions, each on a pattern of resources."""
    found = []
    for statement in json.loads(file.read_text().replace(":::my-logs", f":::{bucket}"))["Statement"]:
        assert statement["Effect"] == "Allow"
        actions = statement["Action"]
        found += [(one, statement["Resource"]) for one in ([actions] if isinstance(actions, str) else actions)]
    return found


def test_every_request_of_a_worker_asks_for_what_is_set_and_is_allowed_by_the_policy(
    deploy: Deploy, kafka: KafkaHelper, store: HttpS3
) -> None:
    """Objects, schemas and dead letters alike; the policy allows nothing that no request needs."""
    endpoint = S3Endpoint(url=store.url, access_key="key", secret_key="canary-secret-s3", region="eu-central-1")  # noqa: S106 - none
    deployment = deploy(partitions=1, endpoint=endpoint, settings=SETTINGS)
    written = kafka.produce(deployment.source, some_large_ones())
    store.faults.extend(["", "", CUT_AFTER])  # the check asks twice, and then an answer is lost
    deployment.start("w1")
    deployment.wait_drained(written)
    deployment.require_event("flush_verified", "w1")
    assert deployment.stop_all() == {"w1": 0}

    puts = [call for call in store.calls if call.method == "PUT"]
    kinds = {next((kind for kind in ("_schemas", "_dead-letters", "_check") if kind in call.key), "") for call in puts}
    assert kinds == {"", "_schemas", "_dead-letters", "_check"}
    for call in store.calls:
        asked = {name: value for name, value in call.headers.items() if name in ASKED_FOR}
        owner = {"x-amz-expected-bucket-owner": "111122223333"}
        assert asked == (ASKED_FOR if call.method == "PUT" else owner), call

    needed = {right for call in store.calls for right in rights_of(call, store, deployment.bucket)}
    allowed = statements(POLICY, deployment.bucket)
    lacking = [
        right
        for right in needed
        if not any(right[0] == action and fnmatchcase(right[1], pattern) for action, pattern in allowed)
    ]
    assert lacking == []
    assert {action for action, _ in needed} == {action for action, _ in allowed}
