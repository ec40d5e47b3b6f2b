"""What the demo's command line makes of the workers' settings."""

import json

import pytest

from service.config.checks import load
from service.config.settings import Settings
from tools.demo.options import parse_options

ADDRESSES = {
    "LOGP_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:9092",
    "LOGP_KAFKA__SOURCE_TOPICS": '["logs"]',
    "LOGP_S3__BUCKET": "demo",
}


def settings_of(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Settings:
    """Load the settings of a worker of this demo, all checks included."""
    for name, value in (ADDRESSES | parse_options(list(arguments)).worker_settings()).items():
        monkeypatch.setenv(name, value)
    return load()


@pytest.mark.parametrize("layout", ["auto", "pack", "file"])
@pytest.mark.parametrize("protocol", ["range", "cooperative-sticky", "consumer"])
def test_worker_settings_pass_the_products_own_checks(
    monkeypatch: pytest.MonkeyPatch, layout: str, protocol: str
) -> None:
    """The demo's short times fit each other in every protocol, and the layout arrives."""
    settings = settings_of(monkeypatch, "--layout", layout, "--protocol", protocol)

    assert (settings.layout, settings.s3.upload_threads) == (layout, 4)


def test_paths_are_those_that_the_workers_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a verdict shows as configured is what is configured: given paths as they are, else the product's own."""
    arguments = ["--input", "x", "--user-path", r"id\.orig_h", "user name"]
    settings = settings_of(monkeypatch, *arguments)
    paths = parse_options(arguments).paths

    assert settings.user.paths == paths["user"] == (r"id\.orig_h", "user name")
    assert settings.time.paths == paths["time"]
    assert settings.id.paths == paths["id"] == ()


def test_worker_settings_of_generated_logs_name_their_paths() -> None:
    """Generated logs have their own fields; replayed ones are looked at where the product looks by default."""
    assert json.loads(parse_options([]).worker_settings()["LOGP_USER__PATHS"]) == ["user"]
    assert "LOGP_USER__PATHS" not in parse_options(["--input", "x"]).worker_settings()
