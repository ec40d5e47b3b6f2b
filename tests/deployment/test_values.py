"""The chart's values against the service's defaults, read as plain text: holds wherever Python runs."""

import re

import pytest

from log_partitioner.config.settings import Settings
from tests.deployment.tools import CHART, ROOT
from tools.demo.fleet import AS_IN_THE_IMAGE
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
    """What values.yaml says of the worker's settings is what the worker does without them; the spool is a volume."""
    defaults = settings.model_dump(mode="json")
    repeated = {path: value for path, value in values.items() if path.startswith("config.") and value != "{}"}
    own = {"config.spool.directory": "/var/spool/log-partitioner"}

    assert repeated, "values.yaml shows settings"
    for path, value in repeated.items():
        _, section, name = path.split(".")
        assert value == own.get(path, defaults[section][name]), path


def test_ports_and_spool_are_those_of_the_service(values: dict[str, str | int | bool], settings: Settings) -> None:
    """Chart, image and service agree on the port and on the spool's place."""
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")

    assert values["config.http.port"] == settings.http.port
    assert re.findall(r"^EXPOSE (\d+)$", dockerfile, re.MULTILINE) == [str(settings.http.port)]
    assert re.findall(r"^VOLUME (\S+)$", dockerfile, re.MULTILINE) == [values["config.spool.directory"]]


def test_image_is_what_the_chart_demands(values: dict[str, str | int | bool]) -> None:
    """The last stage runs as 65532, starts `log-partitioner run`, and nothing needs a registry that pins would name."""
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    last = dockerfile.rpartition("\nFROM ")[2]

    assert "USER 65532:65532" in last
    assert values["podSecurityContext.runAsUser"] == 65532
    assert last.rstrip().endswith('ENTRYPOINT ["log-partitioner"]\nCMD ["run"]')
    assert all(f"{name}={value}" in last for name, value in AS_IN_THE_IMAGE.items())
    assert "--require-hashes" in dockerfile
    assert "# syntax" not in dockerfile
    assert "@sha256" not in dockerfile


def test_versions_agree() -> None:
    """Chart.yaml names the version of the package."""
    version = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    assert version is not None

    (of_the_chart,) = (value.text for value in values_of(CHART / "Chart.yaml") if value.path == ("appVersion",))
    assert of_the_chart == version[1]
