"""The worker as it is put together: what the settings say reaches its rules, and a start wipes the spool alone."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import SecretStr
from structlog.testing import capture_logs

from log_partitioner.adapters.kafka.log import Brokers
from log_partitioner.adapters.preflight import Need
from log_partitioner.boundary import Membership
from log_partitioner.config.settings import (
    FlushSettings,
    HttpSettings,
    KafkaSettings,
    S3Settings,
    Settings,
    SpoolSettings,
    VerifySettings,
)
from log_partitioner.control.flush_policy import ESTIMATE_SHARE, FIXED_SHARE, SPOOL_SHARE, FlushBounds
from log_partitioner.control.state import Phase
from log_partitioner.errors import LeavingError, SourceError, SpoolError, StopError
from log_partitioner.formats.model import CommittedOffset, TopicPartition
from log_partitioner.formats.object_key import key_safe
from log_partitioner.runtime import app
from log_partitioner.runtime.app import Process, handle_signals
from log_partitioner.runtime.ports import StopFlag
from tests.fakes.clock import FakeClock


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Give settings of which those that the rules are made of are none of the defaults."""
    return Settings(
        kafka=KafkaSettings(
            bootstrap_servers="127.0.0.1:9",
            source_topics=("one", "other"),
            start_at="fail",
            accept_unknown_history=True,
            message_bytes_max=400_000,
        ),
        flush=FlushSettings(
            interval_s=8,
            bytes_max=9_000,
            entries_max=90,
            budget_s=24,
        ),
        spool=SpoolSettings(directory=tmp_path / "spool", bytes_max=1_000_000, memory_bytes_max=30_000),
        s3=S3Settings(
            bucket="bucket",
            endpoint_url="http://127.0.0.1:9",
            prefix="prefix",
            access_key=SecretStr("key"),
            secret_key=SecretStr("secret"),
        ),
        http=HttpSettings(host="127.0.0.1", port=0),
    )


def test_rules_are_those_of_the_settings(settings: Settings) -> None:
    """A rule that no setting reaches would silently keep its default."""
    with ExitStack() as cleanup:
        worker = Process(settings, "b00t", StopFlag(), cleanup).worker
    bounds = FlushBounds(8, 9_000, 90, FIXED_SHARE * 30_000, SPOOL_SHARE * 1_000_000, ESTIMATE_SHARE * (20 - 6))
    assert worker.loop.bounds == bounds


@pytest.mark.parametrize("chosen", ["report", "unready"])
def test_difference_makes_a_worker_unready_by_setting(settings: Settings, chosen: Any) -> None:
    """Else it is told by log and metrics alone."""
    with ExitStack() as cleanup:
        given = settings.model_copy(update={"verify": VerifySettings(on_difference=chosen)})
        process = Process(given, "b00t", StopFlag(), cleanup)
        process.worker.verification.differences["missing"] += 1
        process._beat()  # it may look at the group, which answers nothing here
        process.health.is_member = process.health.is_positioned = True
        assert process.health.ready().well == (chosen == "report")
        assert ("1 missing" in process.health.ready().text) == (chosen == "unready")


def test_journal_outlives_the_next_start(settings: Settings) -> None:
    """It lies beside the spool, which a start empties; both bear the worker's name."""
    spool = settings.spool.directory / key_safe(settings.worker)
    for said_before in (b"", b"in hand"):
        with ExitStack() as cleanup:
            journal = Process(settings, "b00t", StopFlag(), cleanup).worker.ports.journal
            assert [path.name for path in spool.iterdir()] == [".log-partitioner-spool"]
            assert journal.read() == said_before
            journal.write(b"in hand")


class Watched:
    """A process whose clock, membership and brokers are in a test's hand; nothing is asked of anybody."""

    def __init__(self, process: Process) -> None:
        self.process, self.clock = process, FakeClock()
        self.is_member, self.answers = False, False
        self.brokers = Brokers(self.clock.now_s)
        process.clock, process._brokers = self.clock, self.brokers  # type: ignore[assignment]
        process._without_max_s, process._part_at_s, process._looked_at_s = 600, self.clock.now_s(), self.clock.now_s()
        process._consumer = self  # type: ignore[assignment]

    def membership(self) -> Membership:
        """Give a membership that proves something, or one that does not."""
        return Membership(3 if self.is_member else -1, "member" if self.is_member else "", b"")

    @property
    def is_answered(self) -> bool:
        """Say whether the group has said what is ours."""
        return self.is_member

    def topic_ids(self, topics: Iterable[str], **_: object) -> dict[str, str]:
        """Answer, or do not."""
        return dict.fromkeys(topics, "an id") if self.answers else {}

    def beat(self, seconds: int, *, refusal: str = "", is_full: bool = False, trouble: str = "") -> None:
        """Turn the loop once a second, while this is reported."""
        for _ in range(seconds):
            self.clock.advance(1.0)
            if refusal:
                self.brokers.refused(refusal, is_full=is_full)
            if trouble:
                self.brokers.failed("broker:9092", "SASL refused", trouble)
            self.process._beat()


@pytest.fixture
def watched(settings: Settings) -> Iterator[Watched]:
    """Give a process that nothing was asked of yet."""
    with ExitStack() as cleanup:
        yield Watched(Process(settings, "b00t", StopFlag(), cleanup))


def test_worker_whom_the_group_does_not_take_ends_in_time_with_the_reason_last_heard(watched: Watched) -> None:
    """As one whose strategy is not that of the others; a membership of a moment begins the time anew."""
    watched.beat(500, refusal="no such session")
    watched.is_member = True
    watched.beat(1)
    watched.is_member = False
    watched.beat(590)
    with pytest.raises(SourceError, match=r"no part in the group for 600 s: other strategy"):
        watched.beat(10, refusal="other strategy")


def test_worker_whom_nobody_answers_ends_too(watched: Watched) -> None:
    """There may be no reason at all, and minutes between two looks, as in a flush."""
    watched.beat(360)
    watched.clock.advance(239.0)
    with pytest.raises(SourceError, match="no part in the group for 600 s: the group has not answered"):
        watched.beat(1)


def test_worker_that_was_stopped_for_long_has_its_time_anew(watched: Watched) -> None:
    """The worker did not ask for its membership meanwhile; the time begins at the first look afterwards."""
    watched.beat(1)
    watched.clock.advance(5000.0)
    watched.beat(600)
    with pytest.raises(SourceError, match="no part in the group for 600 s"):
        watched.beat(1)


def test_full_group_is_waited_for_without_end_and_readiness_says_so(watched: Watched) -> None:
    """However long it takes until there is room."""
    watched.beat(2000, refusal="the group is full", is_full=True)
    assert watched.process.health.ready() == (False, "not a member of the group yet: the group is full")
    watched.is_member = True
    watched.beat(1)
    assert watched.process.health.ready() == (True, "member of the group")


def test_member_whose_brokers_fail_for_long_ends_too(watched: Watched) -> None:
    """As with a password that has expired: with KIP-848 no session ends on this side."""
    watched.is_member = True
    watched.beat(599, trouble="authentication error")
    with pytest.raises(SourceError, match="broker broker:9092: SASL refused"):
        watched.beat(1, trouble="authentication error")


def test_trouble_of_an_idle_owner_ends_once_the_questions_are_answered_well(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic was made again: no record comes, and no flush would find out; a batch that is open does by its own."""
    monkeypatch.setattr(app, "Thread", lambda target, **_: SimpleNamespace(start=target, is_alive=lambda: False))
    process, recorder = watched.process, watched.process.worker.recorder
    recorder.start(TopicPartition("one", 0), CommittedOffset(5))
    told: list[str | None] = []
    for problem, opening in (("topic flushes is not there", None), (None, "a batch"), (None, None)):
        process._asks = lambda problem=problem: [lambda: [Need("flushes", problem)]]  # type: ignore[misc, method-assign]
        monkeypatch.setattr(type(recorder), "opening", opening)
        process._committer.trouble = "topic flushes is not there"
        process._ask_again()
        told.append(process._committer.trouble)
    assert told == ["topic flushes is not there"] * 2 + [None]


def test_member_without_records_whom_a_broker_answers_goes_on_though_another_fails(watched: Watched) -> None:
    """Nothing but a question tells that case from the one before."""
    watched.is_member = watched.answers = True
    watched.beat(1500, trouble="connection refused")


@pytest.fixture
def handlers() -> Iterator[None]:
    """Leave the handlers of this process as they were."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_first_signal_asks_to_stop_and_the_second_to_abandon(number: signal.Signals) -> None:
    """SIGINT raises no KeyboardInterrupt: that would lose the records of the call it falls into (KAFKA_FACTS F4)."""
    stop = StopFlag()
    handle_signals(stop)
    assert not stop.requested
    os.kill(os.getpid(), number)
    assert (stop.requested, stop.abandoned) == (True, False)
    os.kill(os.getpid(), number)
    assert (stop.requested, stop.abandoned) == (True, True)


# A worker leaves its group whatever else fails: others wait for what it owns.


@pytest.fixture
def process(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Process]:
    """Give a worker that has neither brokers nor a store, requires none, and is not run."""
    monkeypatch.setattr(Process, "_require_outside", lambda _process: None)
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
    """It forgets the open batch and leaves; no line says that it failed."""
    left: list[str] = []
    monkeypatch.setattr(process.worker.loop, "run", raising(LeavingError("asked to leave")))
    monkeypatch.setattr(process._consumer, "close", lambda: left.append("group"))
    with capture_logs() as logs, pytest.raises(LeavingError):
        process.run()

    assert left == ["group"]
    assert process.worker.controller.state.phase is Phase.FAILED
    assert "worker_failed" not in {line["event"] for line in logs}
