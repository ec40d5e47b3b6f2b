"""A worker leaves its group whatever else fails: others wait for what it owns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from pydantic import SecretStr
from structlog.testing import capture_logs

from log_partitioner.config.s3_settings import S3Settings
from log_partitioner.config.settings import HttpSettings, KafkaSettings, Settings, SpoolSettings
from log_partitioner.control.state import Phase
from log_partitioner.errors import LeavingError, SpoolError, StopError
from log_partitioner.runtime.app import Process
from log_partitioner.runtime.runloop import StopFlag


@pytest.fixture
def process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Process]:
    """Give a worker that has neither brokers nor a store, requires none, and is not run."""
    monkeypatch.setattr(Process, "_require_outside", lambda _process: None)
    settings = Settings(
        kafka=KafkaSettings(bootstrap_servers="127.0.0.1:9", source_topics=("source",)),
        s3=S3Settings(
            bucket="bucket",
            endpoint_url="http://127.0.0.1:9",
            access_key=SecretStr("key"),
            secret_key=SecretStr("secret"),
        ),
        http=HttpSettings(host="127.0.0.1", port=0),
        spool=SpoolSettings(directory=tmp_path / "spool"),
    )
    with ExitStack() as cleanup:
        yield Process(settings, "b00t", StopFlag(), cleanup)


def raising(error: BaseException) -> Callable[[], None]:
    """Make a function that raises."""

    def fail() -> None:
        raise error

    return fail


@pytest.mark.parametrize("then", [SpoolError("not cleared"), OSError(5, "Input/output error"), AssertionError("W2")])
@pytest.mark.parametrize("first", [SpoolError("cleared after the commit"), StopError("no more"), KeyError("a bug")])
def test_group_is_left_although_the_batch_cannot_be_discarded(
    process: Process, monkeypatch: pytest.MonkeyPatch, first: Exception, then: Exception
) -> None:
    """An error after the commit ends the loop, forgetting the batch fails too; the first is raised."""
    left: list[str] = []
    monkeypatch.setattr(process.worker.loop, "run", raising(first))
    monkeypatch.setattr(process.worker.controller, "fail", raising(then))
    monkeypatch.setattr(process._consumer, "close", lambda: left.append("group"))
    with capture_logs() as logs, pytest.raises(type(first)) as caught:
        process.run()

    assert caught.value is first
    assert left == ["group"]
    assert [line["event"] for line in logs][-2:] == ["worker_failed", "not_discarded"]


def test_worker_that_is_asked_to_leave_while_it_waits_has_not_failed(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It forgets what is open and leaves; nobody says that it failed."""
    left: list[str] = []
    monkeypatch.setattr(process.worker.loop, "run", raising(LeavingError("asked to leave")))
    monkeypatch.setattr(process._consumer, "close", lambda: left.append("group"))
    with capture_logs() as logs, pytest.raises(LeavingError):
        process.run()

    assert left == ["group"]
    assert process.worker.controller.state.phase is Phase.FAILED
    assert "worker_failed" not in {line["event"] for line in logs}
