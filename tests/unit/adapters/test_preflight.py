"""A worker asks for what it needs until nothing is missing: how often, what it says, and how it ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest
from structlog.testing import capture_logs

from log_partitioner.adapters.preflight import Need, Preflight, ask_once, asked
from log_partitioner.errors import LeavingError, StopError, StoreBusyError, StoreRefusedError, UnmetError
from log_partitioner.patience import Patience
from tests.fakes.clock import FakeClock


class Bench:
    """A preflight on a clock of its own, and one thing that it needs."""

    def __init__(self) -> None:
        self.clock, self.beats, self.times = FakeClock(), 0, 0
        self.unmet, self.doubted, self.heals_after = "no bucket", "", 10**6
        self.is_leaving = False
        self.begun_s = self.clock.now_s()
        self.preflight = Preflight(
            patience=Patience(lambda: self.is_leaving, grace_s=0.0),
            budget_s=120.0,
            beat=self.beat,
            now_s=self.clock.now_s,
            sleep=self.clock.advance,
        )

    def beat(self) -> None:
        """Count that the loop turned."""
        self.beats += 1

    def ask(self) -> Iterator[Need]:
        """Answer."""
        self.times += 1
        yield Need("a bucket", self.unmet if self.times <= self.heals_after else None)
        yield Need("a topic", self.doubted or None, is_warning=True)

    def require(self) -> list[str]:
        """Require; gives the lines that were written."""
        with capture_logs() as logs, suppress(LeavingError):
            self.preflight.require([self.ask])
        return [f"{line['event']} {line['message']}" for line in logs]


@pytest.fixture
def bench() -> Bench:
    """Give a bench."""
    return Bench()


def test_nothing_missing_is_asked_once_and_says_nothing(bench: Bench) -> None:
    """The usual start."""
    bench.heals_after = 0

    assert bench.require() == []
    assert (bench.times, bench.preflight.unmet) == (1, None)


def test_what_is_missing_is_asked_for_again_and_told_at_growing_distance(bench: Bench) -> None:
    """Every few seconds, so that what is mended is seen; the loop counts as alive meanwhile."""
    bench.heals_after = 15

    assert bench.require() == ["outside_unmet no bucket"] * 4
    assert bench.clock.now_s() - bench.begun_s < 75
    assert bench.beats > 100
    assert bench.preflight.unmet is None


def test_what_is_missing_for_too_long_ends_the_worker_with_its_reason(bench: Bench) -> None:
    """Another process may be given what this one was not, as a secret in its environment."""
    with pytest.raises(StopError, match="after 120 s: no bucket"):
        bench.require()
    assert bench.preflight.unmet == "no bucket"
    assert bench.clock.now_s() - bench.begun_s < 140


def test_warning_holds_nobody_up(bench: Bench) -> None:
    """It is told once."""
    bench.heals_after, bench.doubted = 0, "kept for too short a time"

    assert bench.require() == ["outside_doubted kept for too short a time"]
    assert bench.preflight.unmet is None


def test_wish_to_leave_is_heeded_between_two_questions(bench: Bench) -> None:
    """In order: the worker has nothing yet."""
    bench.is_leaving = True
    bench.require()

    assert bench.times == 1


def test_refusal_that_no_waiting_mends_ends_at_once_and_is_an_answer_where_it_is_asked_once(bench: Bench) -> None:
    """`check-config --connect` goes on to the next question."""

    def refuse() -> None:
        raise StoreRefusedError("set s3.conditional to false")

    def lack() -> None:
        raise UnmetError("the store is full")

    with pytest.raises(StoreRefusedError):
        bench.preflight.require([asked("a bucket", refuse)])
    assert [need.problem for need in ask_once([asked("a", refuse), asked("b", lack), asked("c", lambda: None)])] == [
        "set s3.conditional to false",
        "the store is full",
        None,
    ]


def test_store_that_is_busy_holds_nobody_up(bench: Bench) -> None:
    """A worker that was started again would end for what one that runs waits out (I9)."""

    def slow_down() -> None:
        raise StoreBusyError("it takes fewer requests than it is sent")

    bench.preflight.require([asked("a bucket", slow_down)])

    assert (bench.beats, bench.preflight.unmet) == (0, None)
    assert [need.is_warning for need in asked("a bucket", slow_down)()] == [True]
