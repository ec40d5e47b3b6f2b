"""The fleet: a worker that does not end though it was asked to is killed, and never forgotten."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tools.demo import fleet as fleets
from tools.demo.faults import Action, Step
from tools.demo.fleet import Fleet, Worker, WorkerState


class Frozen:
    """A process that SIGTERM does nothing to."""

    def __init__(self) -> None:
        self.lives = True

    def is_alive(self) -> bool:
        """Whether it lives."""
        return self.lives

    def terminate(self) -> None:
        """Do nothing."""

    def kill(self) -> None:
        """End."""
        self.lives = False


@pytest.fixture
def fleet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Fleet:
    """Give a fleet with one worker that has frozen."""
    monkeypatch.setattr(fleets, "_STOP_GRACE_S", 0.05)
    found = Fleet(root=tmp_path, settings={})
    process: Any = Frozen()
    found.workers["worker-1"] = Worker("worker-1", process, time.monotonic())
    return found


def test_worker_that_froze_at_a_stop_on_the_way_is_killed_and_told_at_the_end(fleet: Fleet) -> None:
    """A run that waits for it for ever would hide what it is there to find."""
    fleet.perform(Step(0.0, Action.TERMINATE, "worker-1"))
    assert fleet.mend() == [], "it has its time"
    time.sleep(0.06)
    told = fleet.mend()
    assert told == ["worker-1 did not stop within 0 s and was killed"]
    assert fleet.workers["worker-1"].state is WorkerState.KILLED
    assert fleet.stop() == told, "the run is not clean"
