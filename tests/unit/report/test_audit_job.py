"""The audit as a command leaves its page beside everything else that it leaves; without Spark, of a result by hand."""

import argparse
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from log_partitioner.formats.findings import Kind
from log_partitioner_pipeline.audit.metrics import AuditMetrics
from log_partitioner_pipeline.audit.result import decode
from log_partitioner_pipeline.cli import main
from log_partitioner_pipeline.config import load_all
from log_partitioner_pipeline.errors import ObjectError, PipelineError
from log_partitioner_pipeline.jobs import audit
from log_partitioner_pipeline.jobs.audit import Runs
from log_partitioner_pipeline.jobs.audit_options import add_audit_arguments
from tests.unit.report.reading import Page
from tests.unit.report.world import T0_MS, WorkerLog, missing, result


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    """A command with a history, a page and the log of a worker."""
    for name, value in {
        "LOGP_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:1",
        "LOGP_KAFKA__SOURCE_TOPICS": '["none"]',
        "LOGP_S3__BUCKET": "none",
        "PIPELINE_AUDIT__HISTORY_DIRECTORY": str(tmp_path / "history"),
    }.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "w1.log").write_bytes(b"".join(WorkerLog().assigned(T0_MS, 0).lines))
    parser = argparse.ArgumentParser()
    add_audit_arguments(parser)
    asked = ["--html", str(tmp_path / "page.html"), "--logs", str(tmp_path / "w1.log")]
    return Runs(lambda: None, load_all(), parser.parse_args(asked), AuditMetrics("group"))  # type: ignore[arg-type, return-value]


def test_a_page_is_left_with_the_audits_before_it(runs: Runs, tmp_path: Path) -> None:
    """Each audit replaces the page; the exit code is the verdict's."""
    assert runs._publish(result(run_id="one", started_at_ms=T0_MS)) == 0
    assert "The last 1 audit as a table" in (tmp_path / "page.html").read_text()
    found = result([(Kind.MISSING, [missing(1)])], run_id="two", started_at_ms=T0_MS + 1)
    assert runs._publish(found) == 1
    text = Page((tmp_path / "page.html").read_text()).text
    assert "The last 2 audits as a table" in text
    assert "From 1 line of workers' logs, log ended: 1, partitions assigned: 1" in text


def test_an_audit_is_told_though_its_page_cannot_be_written(
    runs: Runs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The log is gone: the error says so, behind the result."""
    (tmp_path / "w1.log").unlink()
    with pytest.raises(PipelineError, match="a log cannot be read"):
        runs._publish(result())
    assert "clean (0)" in capsys.readouterr().out


def test_an_audit_that_fails_could_not_tell(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any error of Spark, Kafka or the code is a 2, not a trace's 1, which means findings; a periodic audit goes on."""

    def broken(*_: object, **__: object) -> None:
        raise ValueError("long overflow\n  at java.lang.Math")

    monkeypatch.setattr(audit, "Auditor", broken)
    monkeypatch.setattr(audit, "is_running", lambda _: True)
    told = runs._audit_or_say_why_not()
    assert (told.exit_code, told.could_not_tell) == (2, ["ValueError: long overflow"])
    monkeypatch.setattr(audit, "open_session", lambda *_, **__: None)
    assert main(["audit"]) == 2
    monkeypatch.setattr(audit, "open_session", broken)
    assert main(["audit"]) == 2


@pytest.mark.parametrize("status", [200, 403])
def test_a_result_is_kept_in_the_store(runs: Runs, monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    """One that the store refuses is an error: a reader would take the one before it for the newest."""
    kept: dict[str, bytes] = {}

    class Store(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            kept[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status)
            self.send_header("ETag", '"1"')
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Store) as server:
        monkeypatch.setenv("PIPELINE_AUDIT__RESULTS_PREFIX", "_audits/a")
        monkeypatch.setenv("LOGP_S3__ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("LOGP_S3__ACCESS_KEY", "made-up")
        monkeypatch.setenv("LOGP_S3__SECRET_KEY", "made-up")
        thread = Thread(target=server.serve_forever)
        thread.start()
        told = Runs(runs._open_spark, load_all(), runs._arguments, AuditMetrics("group"))
        try:
            if status == 200:
                assert told._publish(result(run_id="one", started_at_ms=T0_MS)) == 0
            else:
                with pytest.raises(ObjectError, match="cannot be written"):
                    told._publish(result(run_id="one", started_at_ms=T0_MS))
        finally:
            server.shutdown()
            thread.join()
    ((path, body),) = kept.items()
    assert path.startswith("/none/_audits/a/audit-20")
    assert path.endswith("Z-one.json")
    assert decode(body).run_id == "one"
