"""How long recovery takes, and what a run's figures call a violation."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest

from tools.chaos.figures import _violations, as_text, quantiles
from tools.chaos.run import Happened
from tools.chaos.watch import CommitWatch, Recovery
from tools.demo.writer import Produced


class FakeLag:
    """Committed offsets as a test sets them."""

    def __init__(self) -> None:
        self.offsets: dict[int, int] = {0: 0}

    def committed(self, _partitions: Iterable[int]) -> Mapping[int, int]:
        """Give them, for whatever is asked."""
        return dict(self.offsets)

    def close(self) -> None:
        """Nothing is open."""


def wait_for(happens: Callable[[], object]) -> None:
    deadline = time.monotonic() + 10
    while not happens():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_recovery_counts_until_everything_of_before_is_committed() -> None:
    """From the begin where the fault is over at once, else from its end; not before all of before is committed."""
    lag, written = FakeLag(), {0: 10}
    shared: Any = lag
    with CommitWatch(shared, lambda: written) as watch:
        wait_for(lambda: watch.lag_records == 10)
        kill, pause = watch.begin("worker-kill", is_over=True), watch.begin("worker-pause-short", is_over=False)
        written[0] = 50
        lag.offsets[0] = 9
        wait_for(lambda: watch.committed == {0: 9})
        assert kill.seconds is None
        lag.offsets[0] = 10
        wait_for(lambda: kill.seconds is not None)
        assert pause.seconds is None, "its end has not come"
        watch.end(pause)
        wait_for(lambda: pause.seconds is not None)
        assert watch.lag_records == 40


def _happened(**changes: Any) -> Happened:
    return Happened(produced=Produced(records=5), is_drained=True, **changes)


CLEAN = {"verdict": "clean", "findings": {}, "doubts": [], "dead_letters": {"no_user": 3}}


@pytest.mark.parametrize(
    ("happened", "audit_code", "audit", "logs_code", "says"),
    [
        pytest.param(_happened(), None, {}, 0, "not everything was committed", id="not drained"),
        pytest.param(_happened(), 1, CLEAN | {"verdict": "findings", "findings": {"lost": 1}}, 0, "lost", id="lost"),
        pytest.param(_happened(), 2, CLEAN | {"verdict": "could_not_tell", "doubts": ["why"]}, 0, "why", id="doubt"),
        pytest.param(_happened(), 0, CLEAN | {"dead_letters": {"fatal": 1}}, 0, "fatal", id="put away"),
        pytest.param(_happened(), 0, CLEAN, 1, "verify-logs", id="logs"),
        pytest.param(
            _happened(recoveries=[Recovery("broker-kill", {}, 0.0)]), 0, CLEAN, 0, "broker-kill", id="no recovery"
        ),
        pytest.param(_happened(notes=["worker-1 was killed"]), 0, CLEAN, 0, "was killed", id="late"),
    ],
)
def test_what_is_wrong_is_a_violation(
    happened: Happened, audit_code: int | None, audit: dict[str, Any], logs_code: int, says: str
) -> None:
    """Each by itself; and without any of them there is none."""
    assert list(_violations(_happened(), 0, CLEAN, 0)) == []
    [violation] = _violations(happened, audit_code, audit, logs_code)
    assert says in violation


def test_difference_of_verification_mode_is_a_violation() -> None:
    """Also where the audit is clean."""
    happened = _happened()
    happened.tally.differences = Counter(missing=1)
    assert list(_violations(happened, 0, CLEAN, 0)) == ["verification mode: {'missing': 1}"]


def test_quantiles_are_of_those_seen() -> None:
    """The 99th percentile is a value that was seen."""
    assert quantiles([1.0, 2.0, 9.0]) == {"count": 3, "p50": 2.0, "p99": 9.0, "max": 9.0}


def test_text_names_violations_or_says_that_there_is_none() -> None:
    """What is printed last is the verdict."""
    figures = {
        "records": 1, "entries": 1, "seconds": 1, "faults": {"worker-kill": 2, "broker-kill": 1},
        "assignment_changes": 1, "flushes": 1, "batches_given_up": {}, "verified_entries": 1, "unverified_entries": 0,
        "recovery_s": {"worker-kill": quantiles([3.0])}, "violations": [],
    }  # fmt: skip
    assert as_text(figures).endswith("verification mode found nothing.")
    assert as_text(figures | {"violations": ["audit: lost"]}).endswith("VIOLATION: audit: lost")
