"""Metrics of the audit in a file: true at any time, whatever was written before."""

import argparse
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from log_partitioner.formats.findings import Kind
from log_partitioner_pipeline.audit.metrics import AuditMetrics, last_success_in
from log_partitioner_pipeline.config import load_all
from log_partitioner_pipeline.errors import PipelineError
from log_partitioner_pipeline.jobs import audit
from log_partitioner_pipeline.jobs.audit_options import add_audit_arguments
from log_partitioner_pipeline.metrics import AUDIT
from tests.unit.report.world import missing, result

CLEAN_S = 1_700_000_000.0
CLEAN = result(run_id="a", started_at_ms=1)
FOUND = result([(Kind.MISSING, [missing(1)])], run_id="b", started_at_ms=2)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give where a command has its metrics."""
    file = tmp_path / "textfiles" / "audit.prom"
    for name, value in {
        "LOGP_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:1",
        "LOGP_KAFKA__SOURCE_TOPICS": '["none"]',
        "LOGP_S3__BUCKET": "none",
        "PIPELINE_AUDIT__METRICS_FILE": str(file),
    }.items():
        monkeypatch.setenv(name, value)
    return file


def told(file: Path) -> dict[str, float]:
    """Read a textfile: what it says of all but findings."""
    families = text_string_to_metric_families(file.read_text(encoding="utf-8"))
    samples = (sample for family in families for sample in family.samples if "kind" not in sample.labels)
    return {sample.name.removeprefix(f"{AUDIT.prefix}_"): sample.value for sample in samples}


def audited(*outcomes: object, argument: str = "--examples=1") -> None:
    """Audit in a new process, to these results; the last may be what is raised."""
    parser = argparse.ArgumentParser()
    add_audit_arguments(parser)
    left = iter(outcomes)

    class Told:
        def __init__(self, *_: object) -> None:
            pass

        def run(self) -> object:
            outcome = next(left)
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(audit, "Auditor", Told)
        patch.setattr(audit, "open_session", lambda *_, **__: None)
        audit.run(load_all(), parser.parse_args([argument]))


def test_nothing_in_the_file_grows_old(file: Path) -> None:
    """Each age is given as a moment, because the file is read hours after it was written."""
    one = AuditMetrics("g")
    one.observe(CLEAN, now=CLEAN_S)
    one.write(file)
    assert told(file) == {
        "exit_code": 0,
        "duration_seconds": CLEAN.seconds,
        "timestamp_seconds": CLEAN_S,
        "last_success_timestamp_seconds": CLEAN_S,
    }


def test_a_new_process_knows_when_an_audit_was_last_clean(file: Path) -> None:
    """From the file that is there; findings do not make it never."""
    audited(CLEAN)
    clean_s = told(file)["last_success_timestamp_seconds"]
    assert clean_s > 0
    audited(FOUND)
    found = told(file)
    assert (found["exit_code"], found["last_success_timestamp_seconds"]) == (1, clean_s)
    audited(CLEAN)
    assert told(file)["last_success_timestamp_seconds"] > clean_s


@pytest.mark.parametrize("text", ["", "no metrics\n", "log_partitioner_audit_last_success_timestamp_seconds x\n", "\0"])
def test_a_file_that_tells_nothing(file: Path, text: str) -> None:
    """The last clean audit is not known then; the audit runs all the same."""
    assert last_success_in(file) is None
    file.parent.mkdir()
    file.write_text(text, encoding="utf-8")
    assert last_success_in(file) is None
    audited(CLEAN)
    assert last_success_in(file) == told(file)["timestamp_seconds"]


@pytest.mark.parametrize(
    ("outcome", "argument"),
    [(PipelineError("no broker answers"), "--examples=1"), (ValueError("a bug"), "--examples=1"), (CLEAN, "--csv=x")],
)
def test_a_run_that_cannot_tell_leaves_its_exit_code(file: Path, outcome: object, argument: str) -> None:
    """Otherwise the file says for ever that the last audit was clean."""
    audited(CLEAN)
    before = told(file)
    with pytest.raises(PipelineError):
        audited(outcome, argument=argument)
    after = told(file)
    assert after["exit_code"] == 2
    assert after["timestamp_seconds"] > before["timestamp_seconds"]
    assert after["last_success_timestamp_seconds"] == before["last_success_timestamp_seconds"]


def test_spark_that_does_not_start_is_told(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before there is anything that could audit."""

    def broken(*_: object, **__: object) -> None:
        raise PipelineError("3 of 9 jars are not there")

    audited(CLEAN)
    parser = argparse.ArgumentParser()
    add_audit_arguments(parser)
    monkeypatch.setattr(audit, "open_session", broken)
    monkeypatch.setattr(audit, "Auditor", lambda open_spark, *_: open_spark())
    with pytest.raises(PipelineError, match="jars"):
        audit.run(load_all(), parser.parse_args([]))
    assert told(file)["exit_code"] == 2
