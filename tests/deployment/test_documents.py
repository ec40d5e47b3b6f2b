"""The documents made from code say what the code says; the alerts use metrics that exist."""

import re
from collections.abc import Callable

import pytest

from log_partitioner.adapters.metrics import PrometheusMetrics
from log_partitioner.config.settings import PREFIX, Settings
from log_partitioner.config.sources import SourcedSettings, variable_of
from log_partitioner_pipeline.config import PREFIX as PIPELINE_PREFIX
from log_partitioner_pipeline.config import PipelineSettings
from tests.deployment.tools import ROOT, RULES
from tools.docs.__main__ import main, outdated
from tools.docs.configuration import pipeline_page, worker_page
from tools.docs.metrics import JOBS, metric_names, metrics_page
from tools.docs.settings_schema import groups

RULES_TEST = ROOT / "tests" / "deployment" / "log-partitioner.test.yaml"


def test_documents_committed_are_up_to_date() -> None:
    """`python -m tools.docs` would change nothing."""
    assert outdated() == []
    assert main(["--check"]) == 0


@pytest.mark.parametrize(
    ("kind", "prefix", "page"), [(Settings, PREFIX, worker_page), (PipelineSettings, PIPELINE_PREFIX, pipeline_page)]
)
def test_configuration_pages_name_every_setting(
    kind: type[SourcedSettings], prefix: str, page: Callable[[], str]
) -> None:
    """Each field of each section has its row, and no other has."""
    paths = [(section, name) for section in kind.model_fields for name in _fields(kind, section)]
    paths += [(name,) for name in kind.model_fields if not _fields(kind, name)]

    rows = re.findall(rf"^\| `({prefix}\w+)` \|", page(), re.MULTILINE)

    assert sorted(rows) == sorted(variable_of(path, prefix=prefix) for path in paths)


def test_secrets_are_marked() -> None:
    """A SecretStr is called a secret, and so stays out of the chart's values."""
    secrets = {setting.path for group in groups() for setting in group.settings if setting.is_secret}

    places = {("s3", "access_key"), ("s3", "secret_key"), ("registry", "password"), ("registry", "token")}
    assert secrets == places | {("kafka", "secret_properties")}


def test_metrics_page_has_every_metric_of_the_exposition() -> None:
    """Each family that is exposed has its row, but for those of any process, which the page names together."""
    exposed = re.findall(
        r"^# TYPE (log_partitioner_\w+) (\w+)$", PrometheusMetrics().exposition().decode(), re.MULTILINE
    )
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \|", metrics_page(), re.MULTILINE)
    of_jobs = {(f"{job.prefix}_{name}", "gauge") for job in JOBS for name in job.gauges}

    assert sorted(set(rows) - of_jobs) == sorted(exposed)


def test_alerts_use_metrics_that_exist() -> None:
    """A rule about a metric that the worker does not expose would never fire."""
    used = set(re.findall(r"\b(?:log_partitioner|process)_\w+", RULES.read_text(encoding="utf-8")))
    of_process = set(re.findall(r"^(process_\w+) ", PrometheusMetrics().exposition().decode(), re.MULTILINE))

    assert used, "the rules name metrics"
    assert used - metric_names() - of_process == set()


def test_alerts_each_have_severity_summary_runbook_and_a_test() -> None:
    """A heading of the runbook tells the operator what to do; promtool sees the alert fire, and not fire."""
    runbook, tested = (ROOT / "docs" / "RUNBOOK.md").read_text(), RULES_TEST.read_text()
    for rule in RULES.read_text(encoding="utf-8").split("- alert: ")[1:]:
        name = rule.split()[0]
        assert {"severity:", "summary:"} <= set(re.findall(r"\w+:", rule)), name
        assert f"runbook_url: docs/RUNBOOK.md#{name.lower()}\n" in rule
        assert f"\n### {name}\n" in runbook
        assert f'alertname="{name}"' in tested


def test_every_page_stands_in_a_list_of_the_site() -> None:
    """Each entry of a list is a page; decisions have a list of their own."""
    lists = re.findall(r"```\{toctree\}\n(.*?)```", (ROOT / "docs" / "index.md").read_text(encoding="utf-8"), re.DOTALL)
    entries = [line for block in lists for line in block.splitlines() if line and not line.startswith(":")]
    listed = [re.sub(r".*<(.*)>", r"\1", entry) for entry in entries]
    pages = {path.stem for path in (ROOT / "docs").glob("*.md")} - {"index"}

    assert sorted(name for name in listed if "/" not in name) == sorted(pages)
    assert [name for name in listed if not (ROOT / "docs" / f"{name}.md").is_file()] == []


def test_documents_check_tells_what_is_out_of_date(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--check` names the page and fails; it writes nothing."""
    monkeypatch.setattr("tools.docs.__main__.worker_page", lambda: "something else")

    assert main(["--check"]) == 1
    assert "docs/CONFIGURATION.md is out of date" in capsys.readouterr().err


def _fields(kind: type[SourcedSettings], section: str) -> list[str]:
    model = kind.model_fields[section].annotation
    return list(getattr(model, "model_fields", ()))
