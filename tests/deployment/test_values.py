"""The chart's values against the service's defaults, read as plain text: holds wherever Python runs."""

import re

import pytest

from log_partitioner.config.settings import Settings
from tests.deployment.tools import ROOT
from tools.docs.chart_values import values_of


@pytest.fixture
def values() -> dict[str, str | int | bool]:
    return {".".join(value.path): value.scalar for value in values_of() if value.text}


@pytest.fixture
def settings() -> Settings:
    return Settings.model_validate(
        {"kafka": {"bootstrap_servers": "kafka:9092", "source_topics": ["logs"]}, "s3": {"bucket": "logs"}}
    )


def test_config_in_values_repeats_the_defaults(values: dict[str, str | int | bool], settings: Settings) -> None:
    """The settings in values.yaml equal the worker's defaults; only the spool's directory differs, it is a volume."""
    defaults = settings.model_dump(mode="json")
    repeated = {path: value for path, value in values.items() if path.startswith("config.") and value != "{}"}
    own = {"config.spool.directory": "/var/spool/log-partitioner"}

    assert repeated, "values.yaml shows settings"
    for path, value in repeated.items():
        _, section, name = path.split(".")
        assert value == own.get(path, defaults[section][name]), path


def test_ports_and_spool_are_those_of_the_service(values: dict[str, str | int | bool], settings: Settings) -> None:
    """Chart, image and service agree on the port and on the spool's place."""
    worker = (ROOT / "Dockerfile").read_text(encoding="utf-8").rpartition("\nFROM ")[2]

    assert values["config.http.port"] == settings.http.port
    assert re.findall(r"^EXPOSE (\d+)$", worker, re.MULTILINE) == [str(settings.http.port)]
    assert re.findall(r"^VOLUME (\S+)$", worker, re.MULTILINE) == [values["config.spool.directory"]]
