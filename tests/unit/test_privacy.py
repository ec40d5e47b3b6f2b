"""No user and no secret in what a person sees (I11): error texts, exit messages, tracebacks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import structlog
from structlog.testing import capture_logs

from log_partitioner import cli, privacy
from log_partitioner.errors import StopError, UploadError
from tests import canaries
from tests.fakes.records import P0
from tests.fakes.rig import Rig
from tests.fakes.store import PutFault

KEY = f"logs/user={canaries.USER}/date=2026-01-01/hour=00/20260101T000000Z-b00t-7-12.avro"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (StopError(f"{KEY}: 403"), "/20260101T000000Z-b00t-7-12.avro: 403"),
        (UploadError(f"{KEY}: 503", object_key=KEY), "/20260101T000000Z-b00t-7-12.avro: 503"),
        (AssertionError(f"W3: {KEY}"), "W3: logs/user=~"),
        (ValueError(f"{canaries.USER} is no number"), "ValueError (its text may hold input, and is not shown)"),
        (KeyError(canaries.USER), "KeyError (its text"),
        (OSError(28, "No space left on device", f"/spool/{canaries.USER}"), "OSError: No space left on device"),
    ],
)
def test_text_of_an_error_shows_no_user_and_still_leads_to_the_object(error: Exception, said: str) -> None:
    """The service's own text is shown, users hashed; a library's text may hold input, and is not shown."""
    assert said in privacy.describe(error)
    assert canaries.found_in(privacy.describe(error)) is None


@pytest.mark.parametrize("command", ["run", "audit", "offsets show"])
def test_process_that_falls_over_shows_where_and_not_with_what(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The frames of error and cause are written to standard error, their texts and the settings' secrets are not."""

    def fall_over(*_arguments: object) -> None:
        raise ValueError(canaries.USER) from StopError(f"{KEY} with {canaries.SECRET}")

    monkeypatch.setattr(privacy, "_HIDDEN", set())
    for name, value in (("KAFKA__BOOTSTRAP_SERVERS", "k"), ("KAFKA__SOURCE_TOPICS", '["a"]'), ("S3__BUCKET", "b")):
        monkeypatch.setenv(f"LOGP_{name}", value)
    for name in ("S3__ACCESS_KEY", "S3__SECRET_KEY"):
        monkeypatch.setenv(f"LOGP_{name}", canaries.SECRET)
    for place in ("runtime.app.run", "proof.audit.run.main", "offsets.command.main"):
        monkeypatch.setattr(f"log_partitioner.{place}", fall_over)
    code = cli.main(command.split())
    out, err = capsys.readouterr()

    assert code in (1, 2)
    assert "test_privacy.py" in err
    assert "ValueError (its text" in err
    assert canaries.found_in(out + err) is None


def test_worker_says_no_user_whatever_becomes_of_its_entries() -> None:
    """Committed, dead, discarded by the store, revoked, crashed: the records are of canaries, the lines are not."""
    rig = Rig()
    worker = rig.owning()
    with capture_logs() as logs:
        rig.fill(P0, 3)
        rig.broker.logs[P0].append(canaries.USER.encode(), timestamp_ms=rig.clock.wall_ms())
        rig.drain()
        worker.store.script.extend([PutFault.NOT_STORED] * 2)
        rig.fill(P0, 3)
        rig.drain()
        worker.controller.error = KeyError(canaries.USER)
        with pytest.raises(StopError) as caught:
            worker.step()
    events = {line["event"] for line in logs}

    assert {"flush_committed", "batch_discarded"} <= events
    assert canaries.found_in(f"{logs}\n{caught.value}") is None


def test_canary_in_a_line_would_be_seen() -> None:
    """The watch over all tests finds what `capture_logs` has caught."""
    canaries.logged()
    with capture_logs():
        structlog.get_logger().info("told", user=canaries.USER)
    assert canaries.found_in(canaries.logged()) is not None
    assert canaries.found_in(json.dumps({"key": privacy.veiled(KEY)})) is None


@pytest.mark.slow
def test_test_that_shows_a_user_or_a_secret_fails() -> None:
    """However it tells it, in whichever phase; one that does not passes."""
    file = Path(__file__).with_name("telling.py")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(file)]
    run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=file.parents[2])
    assert "4 failed, 1 passed, 1 error in" in run.stdout
    assert run.stdout.count("\nI11: a user or a secret stands in the output: ") == 5
