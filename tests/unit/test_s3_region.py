"""Region and addressing of S3, and how objects are written: what worker and audit, pipeline and Iceberg take."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pydantic import SecretStr

from log_partitioner.adapters.object_store import S3Store
from log_partitioner.config.s3_settings import S3Settings
from log_partitioner.config.settings import KafkaSettings, Settings
from log_partitioner.proof.audit.store import Address
from log_partitioner_pipeline.config import JobSettings, PipelineSettings
from log_partitioner_pipeline.objects import Objects, region_of
from log_partitioner_pipeline.session import catalog_properties
from tests.contract.http_s3 import serve

OTHER = "http://store.example:9000"
BOTO3S = "us-east-1"  # what boto3 takes by itself; it is told nothing then, nor is Iceberg


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """Leave nothing where boto3 looks."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setattr("boto3.DEFAULT_SESSION", None)
    return monkeypatch


def settings(region: str | None = None, endpoint: str | None = None, style: str = "auto") -> S3Settings:
    """Give settings of a bucket."""
    told = {"bucket": "b", "region": region, "endpoint_url": endpoint, "addressing_style": style}
    return S3Settings.model_validate({**told, "access_key": SecretStr("k"), "secret_key": SecretStr("s")})


def job_settings(s3: S3Settings) -> JobSettings:
    """Give settings of a job, which has a catalogue on that bucket."""
    kafka = KafkaSettings(bootstrap_servers="b:1", source_topics=("t",))
    return JobSettings(worker=Settings(kafka=kafka, s3=s3), pipeline=PipelineSettings())


def regions(s3: S3Settings) -> set[str | None]:
    """Make all clients; gives the regions that they sign for."""
    clients = [S3Store(s3)._client, Objects(s3)._client]
    return {client.meta.region_name for client in clients} | {
        catalog_properties(job_settings(s3)).get("client.region", BOTO3S),
        region_of(s3) or BOTO3S,
    }


@pytest.mark.parametrize(
    ("told", "endpoint", "variables", "profile", "expected"),
    [
        ("eu-north-1", None, {"AWS_REGION": "eu-west-1"}, "", "eu-north-1"),
        (None, None, {"AWS_REGION": "eu-west-1"}, "", "eu-west-1"),
        (None, None, {"AWS_DEFAULT_REGION": "eu-west-2"}, "", "eu-west-2"),
        (None, None, {}, "[default]\nregion = eu-west-3\n", "eu-west-3"),
        (None, OTHER, {"AWS_REGION": "eu-west-1"}, "", "eu-west-1"),
        (None, OTHER, {}, "", "us-east-1"),
        (None, None, {}, "", BOTO3S),
    ],
    ids=["setting", "AWS_REGION", "AWS_DEFAULT_REGION", "profile", "endpoint and AWS_REGION", "endpoint", "nothing"],
)
def test_region_is_the_settings_else_the_surroundings_in_every_client(
    told: str | None,
    endpoint: str | None,
    variables: dict[str, str],
    profile: str,
    expected: str,
    environment: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """A default of ours overrode what pods on AWS are given; only a store that is not AWS gets one."""
    (tmp_path / "config").write_text(profile)
    for name, value in variables.items():
        environment.setenv(name, value)

    assert regions(settings(told, endpoint)) == {expected}


@pytest.mark.parametrize(
    ("endpoint", "style", "expected"),
    [(OTHER, "auto", "path"), (None, "auto", "auto"), (OTHER, "virtual", "virtual"), (None, "path", "path")],
)
def test_addressing_style_is_a_setting_of_every_client(
    endpoint: str | None, style: str, expected: str, environment: pytest.MonkeyPatch
) -> None:
    """Some stores take addresses of one kind only."""
    environment.setenv("AWS_REGION", "eu-west-1")
    s3 = settings(None, endpoint, style)

    clients = [S3Store(s3)._client, Objects(s3)._client]

    assert {client.meta.config.s3["addressing_style"] for client in clients} == {expected}
    is_path = catalog_properties(job_settings(s3)).get("s3.path-style-access")
    assert is_path == ("true" if expected == "path" else None)


def test_jobs_and_the_table_write_as_workers_do() -> None:
    """Encryption, class and tags of what a backfill creates and of the table's files; jobs name the bucket's owner."""
    more = {"encryption": "aws:kms", "kms_key_id": "a-key", "storage_class": "STANDARD_IA", "tags": {"team": "logs"}}
    with serve() as store:
        s3 = settings("eu-west-1", store.url).model_copy(update={**more, "bucket_owner": "111122223333"})
        objects = Objects(s3)
        objects.create("b", "logs/one", b"body", {})
        objects.fetch(Address("b", "logs/one"))

    put, get = store.calls
    assert put.headers["x-amz-server-side-encryption-aws-kms-key-id"] == "a-key"
    assert (put.headers["x-amz-storage-class"], put.headers["x-amz-tagging"]) == ("STANDARD_IA", "team=logs")
    assert {call.headers["x-amz-expected-bucket-owner"] for call in (put, get)} == {"111122223333"}
    assert catalog_properties(job_settings(s3)).items() >= {
        "s3.sse.type": "kms", "s3.sse.key": "a-key", "s3.write.storage-class": "STANDARD_IA",
        "s3.write.tags.team": "logs",
    }.items()  # fmt: skip
