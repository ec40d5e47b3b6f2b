"""The command line of the jobs shows no user and no secret (I11), whatever a job raises or logs; results may."""

from __future__ import annotations

import sys

import pytest
import structlog

from log_partitioner.errors import StopError
from log_partitioner_pipeline import cli
from log_partitioner_pipeline.errors import ObjectError, PipelineError, UnforeseenError
from log_partitioner_pipeline.jobs import audit
from tests import canaries

NAME = "20260101T000000Z-b00t-7-12.avro"
KEY = f"logs/user={canaries.USER}/date=2026-01-01/hour=00/{NAME}"


@pytest.fixture(autouse=True)
def _settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "LOGP_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:1",
        "LOGP_KAFKA__SOURCE_TOPICS": '["none"]',
        "LOGP_S3__BUCKET": "none",
        "LOGP_S3__ACCESS_KEY": "key",
        "LOGP_S3__SECRET_KEY": canaries.SECRET,
        "PIPELINE_CATALOG__PASSWORD": f"{canaries.SECRET}-of-the-catalogue",
    }.items():
        monkeypatch.setenv(name, value)


def _told(error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Return exit code and standard error of a job that logs where the error came from, and ends with it."""

    def fall_over(*_arguments: object, **_options: object) -> None:
        log = structlog.get_logger("compact")
        log.warning("nothing_is_rewritten", reason=f"s3://logs/{KEY}", offsets={"none": {0: 7}})
        try:
            _raise(error)
        except Exception:
            log.exception("failed")
            raise

    monkeypatch.setattr("log_partitioner_pipeline.jobs.compact.run", fall_over)
    code = cli.main(["compact"])
    out, err = capsys.readouterr()
    assert out == ""
    return code, err


def _raise(error: Exception) -> None:
    raise error


@pytest.mark.parametrize("is_terminal", [False, True])
@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ObjectError(f"s3://logs/{KEY} is referenced and not there"), f"/{NAME} is referenced and not there\n"),
        (
            RuntimeError(f"Job aborted: log_partitioner_pipeline.errors.ObjectError: s3://logs/{KEY}: 503\n at Java"),
            f"/{NAME}: 503\n",
        ),
        (PipelineError(f"no access with {canaries.SECRET}-of-the-catalogue"), "compact: no access with ***"),
        (UnforeseenError(f"ValueError: {canaries.USER}"), "compact: UnforeseenError (its text may hold input"),
        (ValueError(f"{canaries.USER} is no number"), "compact: ValueError (its text may hold input"),
        (StopError(f"{KEY}: 403 for {canaries.SECRET}"), "compact: StopError: logs/user=~"),
    ],
)
def test_error_line_and_log_show_no_user_and_still_lead_to_the_object(
    error: Exception,
    said: str,
    is_terminal: bool,  # noqa: FBT001 - a parameter of the test
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As JSON and on a terminal; a library's text is not shown, the frames that it came from are."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    code, err = _told(error, monkeypatch, capsys)
    assert code == 2
    assert said in err
    assert "nothing_is_rewritten" in err
    assert "test_cli.py" in err
    assert canaries.found_in(err) is None


def test_what_java_raises_is_told_by_its_classes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The text may hold a row; without any word of it an operator could not tell a full heap from a lost executor."""
    code, err = _told(_java_error(), monkeypatch, capsys)
    assert code == 2
    assert "RuntimeError, org.apache.spark.SparkException, ExecutorLostFailure, java.lang.OutOfMemoryError" in err
    assert canaries.found_in(err) is None


def test_what_an_audit_ends_by_is_told_by_the_classes_of_its_causes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its result says it, too, which is all that a periodic audit leaves of it."""
    with pytest.raises(UnforeseenError) as caught, audit._no_trace():
        _raise(_java_error())
    assert "java.lang.OutOfMemoryError" in str(caught.value)
    capsys.readouterr()
    code, err = _told(caught.value, monkeypatch, capsys)
    assert code == 2
    head = next(line for line in err.splitlines() if line.startswith("compact: UnforeseenError"))
    assert head.endswith(
        "UnforeseenError, org.apache.spark.SparkException, ExecutorLostFailure, java.lang.OutOfMemoryError, "
        "RuntimeError"
    )
    assert canaries.found_in(err) is None


def _java_error() -> RuntimeError:
    lost = f"org.apache.spark.SparkException: row {canaries.USER}: ExecutorLostFailure (executor 1 exited)"
    return RuntimeError(f"{lost}\n\tat scala.Some\nCaused by: java.lang.OutOfMemoryError: heap of {canaries.USER}")


def test_backfill_without_a_range_begins_with_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is started or asked for it."""
    assert cli.main(["backfill"]) == 2
    assert capsys.readouterr().err.startswith("backfill: a range is missing: give --from and --until")
