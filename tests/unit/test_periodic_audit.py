"""`audit --every`: one audit after the other, whatever one of them meets; with history and metrics, until a signal."""

import argparse
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from log_partitioner.formats.findings import Kind
from log_partitioner_pipeline.audit import history
from log_partitioner_pipeline.audit.history import kept
from log_partitioner_pipeline.audit.metrics import AuditMetrics
from log_partitioner_pipeline.audit.result import Result, decode
from log_partitioner_pipeline.config import load_all
from log_partitioner_pipeline.errors import BrokerError, PipelineError
from log_partitioner_pipeline.jobs import audit
from log_partitioner_pipeline.jobs.audit import Runs
from log_partitioner_pipeline.jobs.audit_options import add_audit_arguments
from tests.unit.report.world import missing, result
from tools.local.ports import find_free_ports

ON_EXECUTOR = RuntimeError(
    "Job aborted: log_partitioner_pipeline.errors.ObjectError: s3://logs/a.avro: S3 answered 503\n at Java"
)


class StoppedError(BaseException):
    """A signal ends the process."""


def run_until_stopped(runs: Runs) -> None:
    """Let it audit until the signal."""
    with pytest.raises(StoppedError):
        runs.run()


@pytest.fixture
def periodic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Runs]:
    """Give a command whose audits come out as told, and which a signal ends in the audit after the last."""
    (port,) = find_free_ports(1)
    for name, value in {
        "LOGP_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:1",
        "LOGP_KAFKA__SOURCE_TOPICS": '["none"]',
        "LOGP_S3__BUCKET": "none",
        "PIPELINE_AUDIT__HISTORY_DIRECTORY": str(tmp_path / "history"),
        "PIPELINE_AUDIT__METRICS_FILE": str(tmp_path / "audit.prom"),
        "PIPELINE_AUDIT__METRICS_PORT": str(port),
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(history, "_RESULTS_MAX", 3)
    parser = argparse.ArgumentParser()
    add_audit_arguments(parser)

    def make(outcomes: list[Result | Exception], *, at_the_end: Callable[[int], None] = lambda _: None) -> Runs:
        runs = Runs(lambda: None, load_all(), parser.parse_args(["--every", "0.01s"]), AuditMetrics("g"))  # type: ignore[arg-type, return-value]
        left = iter(outcomes)

        class Told:
            def __init__(self, *_: object) -> None:
                self.outcome = next(left, None)

            def run(self) -> Result:
                if self.outcome is None:
                    raise StoppedError
                if self.outcome is outcomes[-1]:
                    at_the_end(port)
                if isinstance(self.outcome, Exception):
                    raise self.outcome
                return self.outcome

        monkeypatch.setattr(audit, "Auditor", Told)
        monkeypatch.setattr(audit, "is_running", lambda _: True)
        return runs

    return make


def test_it_goes_on_after_what_cannot_be_told(periodic: Callable[..., Runs], tmp_path: Path) -> None:
    """No broker, S3 refusing an executor: each is a result; then findings, then clean, and the signal."""
    found = result([(Kind.MISSING, [missing(1)])], run_id="c", started_at_ms=4_000_000_000_000)
    clean = result(run_id="d", started_at_ms=4_000_000_000_001)
    run_until_stopped(periodic([BrokerError("no broker answers"), ON_EXECUTOR, found, clean]))
    results = [decode(file.read_bytes()) for file in kept(tmp_path / "history")]
    assert [(int(one.exit_code), one.could_not_tell) for one in results] == [
        (2, ["s3://logs/a.avro: S3 answered 503"]),
        (1, []),
        (0, []),
    ], "the newest three"
    metrics = (tmp_path / "audit.prom").read_text(encoding="utf-8")
    assert 'log_partitioner_audit_exit_code{group="g"} 0.0' in metrics
    assert 'log_partitioner_audit_findings{group="g",kind="missing"} 0.0' in metrics
    assert 'log_partitioner_audit_last_success_timestamp_seconds{group="g"} 0.0' not in metrics


def test_it_goes_on_after_a_result_that_cannot_be_written(
    periodic: Callable[..., Runs], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file takes the history's place until an operator mends that: no success meanwhile, and a line says so."""
    (tmp_path / "history").touch()
    said = []

    def look_and_mend(_port: int) -> None:
        (tmp_path / "history").unlink()
        said.append((tmp_path / "audit.prom").read_text(encoding="utf-8"))

    clean = [result(run_id=name, started_at_ms=4_000_000_000_000 + at) for at, name in enumerate("ab")]
    run_until_stopped(periodic(clean, at_the_end=look_and_mend))
    assert [decode(file.read_bytes()).run_id for file in kept(tmp_path / "history")] == ["b"]
    assert 'log_partitioner_audit_exit_code{group="g"} 2.0' in said[0]
    assert 'log_partitioner_audit_last_success_timestamp_seconds{group="g"} 0.0' in said[0]
    assert "the result cannot be written" in "".join(capsys.readouterr())


def test_metrics_are_served_while_it_goes_on(periodic: Callable[..., Runs]) -> None:
    """During the second audit the port tells of the first."""
    answers = []

    def ask(port: int) -> None:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            answers.append(answer.read().decode())

    found = result([(Kind.MISSING, [missing(1), missing(2)])])
    run_until_stopped(periodic([found, BrokerError("no broker answers")], at_the_end=ask))
    assert 'log_partitioner_audit_findings{group="g",kind="missing"} 2.0' in answers[0]
    assert 'log_partitioner_audit_last_success_timestamp_seconds{group="g"} 0.0' in answers[0]


def test_mistake_of_ours_is_told_as_one(periodic: Callable[..., Runs], tmp_path: Path) -> None:
    """It is no finding, whatever it is; the next audit may do."""
    clean = result(run_id="b", started_at_ms=4_000_000_000_000)
    run_until_stopped(periodic([ZeroDivisionError("a bug"), clean]))
    told, _ = [decode(file.read_bytes()) for file in kept(tmp_path / "history")]
    assert (int(told.exit_code), told.could_not_tell) == (2, ["ZeroDivisionError: a bug"])


def test_it_ends_with_spark(periodic: Callable[..., Runs], monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it nothing can be told ever again: better to be started anew."""
    runs = periodic([RuntimeError("Answer from Java side is empty"), result()])
    monkeypatch.setattr(audit, "is_running", lambda _: False)
    with pytest.raises(PipelineError, match="Answer from Java side is empty"):
        runs.run()
