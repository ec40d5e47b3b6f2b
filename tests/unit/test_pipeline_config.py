"""Settings of the jobs: everything wrong at once, from the same sources as a worker's."""

import os
import re
from pathlib import Path

import pytest

from log_partitioner.errors import SettingsError
from log_partitioner_pipeline.config import load_all
from log_partitioner_pipeline.jobs import sentences
from log_partitioner_pipeline.session import catalog_options, catalog_properties

_WORKER = {
    "LOGP_KAFKA__BOOTSTRAP_SERVERS": "broker:9092",
    "LOGP_KAFKA__SOURCE_TOPICS": '["logs"]',
    "LOGP_USER__PATHS": '["user"]',
    "LOGP_TIME__PATHS": '["time"]',
    "LOGP_S3__BUCKET": "logs",
}


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """An environment with what a worker needs and nothing else of ours."""
    for name in list(os.environ):
        if name.startswith(("LOGP_", "PIPELINE_")):
            monkeypatch.delenv(name)
    for name, value in _WORKER.items():
        monkeypatch.setenv(name, value)
    return monkeypatch


def test_everything_wrong_is_said_at_once(environment: pytest.MonkeyPatch) -> None:
    """A misspelt section, a value out of range, JSON that is none, and the worker's own problem."""
    environment.delenv("LOGP_S3__BUCKET")
    environment.setenv("PIPELINE_SPAK__MASTER", "local[2]")
    environment.setenv("PIPELINE_TABLE__COLUMNS_MAX", "1")
    environment.setenv("PIPELINE_CATALOG__PROPERTIES", "a=b")
    with pytest.raises(SettingsError) as refused:
        load_all()
    problems = "\n".join(refused.value.problems)
    assert "PIPELINE_SPAK__MASTER names no setting" in problems
    assert "(PIPELINE_CATALOG__PROPERTIES) must be a JSON object" in problems
    assert "(PIPELINE_TABLE__COLUMNS_MAX) must be at least 20" in problems
    assert "LOGP_S3__BUCKET is not set" in problems


def test_file_and_secrets(environment: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A TOML file holds settings, a secret file the password; the environment wins."""
    file, secrets = tmp_path / "pipeline.toml", tmp_path / "secrets"
    file.write_text('[table]\nname = "a.b"\nuser_buckets = 3\n', encoding="utf-8")
    secrets.mkdir()
    (secrets / "pipeline_catalog__password").write_text("made-up", encoding="utf-8")
    environment.setenv("PIPELINE_CONFIG_FILE", str(file))
    environment.setenv("PIPELINE_SECRETS_DIR", str(secrets))
    environment.setenv("PIPELINE_TABLE__USER_BUCKETS", "5")
    pipeline = load_all().pipeline
    assert (pipeline.table.name, pipeline.table.user_buckets) == ("a.b", 5)
    assert pipeline.catalog.password is not None
    assert pipeline.catalog.password.get_secret_value() == "made-up"


def test_a_catalogue_in_a_file_is_not_one_of_a_cluster(environment: pytest.MonkeyPatch) -> None:
    """Each pod has its own file: a job that starts anew finds no table, and makes an empty one."""
    environment.setenv("PIPELINE_SPARK__MASTER", "k8s://https://cluster:443")
    with pytest.raises(SettingsError) as refused:
        load_all()
    (problem,) = refused.value.problems
    assert "PIPELINE_CATALOG__TYPE" in problem
    assert "postgres or rest" in problem
    environment.setenv("PIPELINE_CATALOG__URI", "/data/catalog.db")
    with pytest.raises(SettingsError):
        load_all()
    environment.setenv("PIPELINE_CATALOG__TYPE", "rest")
    environment.setenv("PIPELINE_CATALOG__URI", "http://catalogue")
    assert load_all().pipeline.catalog.type == "rest"


def test_nothing_is_retired_by_a_catalogue_below_the_working_directory(environment: pytest.MonkeyPatch) -> None:
    """The table has the only copy then: it must not be found from one directory and not from another."""
    environment.setenv("PIPELINE_COMPACT__RETENTION_S", "86400")
    with pytest.raises(SettingsError) as refused:
        load_all()
    (problem,) = refused.value.problems
    assert all(name in problem for name in ("COMPACT__RETENTION_S", "CATALOG__TYPE", "CATALOG__URI"))
    environment.setenv("PIPELINE_CATALOG__URI", "/data/catalog.db")
    assert load_all().pipeline.compact.retention_s == 86_400
    environment.setenv("PIPELINE_CATALOG__URI", "database:5432/catalogue")
    environment.setenv("PIPELINE_CATALOG__TYPE", "postgres")
    assert load_all().pipeline.compact.retention_s == 86_400


def test_glue_is_found_by_region_and_role(environment: pytest.MonkeyPatch) -> None:
    """Nothing but the warehouse and the region is needed; results name no file that is not used."""
    environment.setenv("PIPELINE_CATALOG__TYPE", "glue")
    environment.setenv("PIPELINE_SPARK__MASTER", "k8s://https://cluster:443")
    environment.setenv("LOGP_S3__REGION", "eu-west-1")
    settings = load_all()
    assert catalog_properties(settings) == {
        "type": "glue",
        "warehouse": "s3://logs/_tables",
        "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "client.region": "eu-west-1",
    }
    assert "catalogue glue." in sentences.counted(settings, hours=1)


def test_page_for_readers_has_the_properties_of_the_jobs_own_session(environment: pytest.MonkeyPatch) -> None:
    """A session of another's finds the table by them."""
    catalogue = {"TYPE": "postgres", "URI": "postgres.example:5432/catalog", "USER": "reader", "PASSWORD": "..."}
    for name, value in catalogue.items():
        environment.setenv(f"PIPELINE_CATALOG__{name}", value)
    environment.setenv("LOGP_S3__BUCKET", "my-logs")
    environment.setenv("LOGP_S3__REGION", "eu-central-1")
    page = (Path(__file__).parents[2] / "docs" / "READING.md").read_text(encoding="utf-8")
    (lines,) = re.findall(r"```properties\n(.+?)```", page, re.DOTALL)
    assert dict(line.split("=", 1) for line in lines.splitlines()) == catalog_options(load_all())


def test_token_of_a_catalogue_is_a_secret(environment: pytest.MonkeyPatch) -> None:
    """It must not stand in log lines; how long tokens live may."""
    properties = '{"token": "made-up-1", "s3.session-token": "made-up-2", "token-expires-in-ms": "3600000"}'
    environment.setenv("PIPELINE_CATALOG__PROPERTIES", properties)
    assert load_all().secrets == ["made-up-1", "made-up-2"]
