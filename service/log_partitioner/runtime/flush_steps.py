"""Measures the steps of a flush, and the finished share of one that was cut short, for the next estimate."""

from __future__ import annotations

from concurrent.futures import Future

from log_partitioner.batch.batch import ClosedBatch
from log_partitioner.boundary import Clock, StoredObject
from log_partitioner.control.deadline import Deadline
from log_partitioner.control.flush_policy import StepSeconds

STEPS = ("seal", "upload", "announce", "commit")


class FlushSteps:
    """Measures the steps of one flush; `deadline` is that of the step under way."""

    def __init__(self, clock: Clock, batch: ClosedBatch, deadline: Deadline) -> None:
        self._clock = clock
        self._last_s = clock.now_s()
        self._rows = len(batch.rows)
        self.deadline = deadline
        self.seconds: dict[str, float] = {}
        self.rows_sealed = 0
        self.uploads = 0
        self._stored_at_s: list[float] = []

    def done(self, step: str) -> None:
        """Note the end of a step."""
        now_s = self._clock.now_s()
        self.seconds[step] = now_s - self._last_s
        self._last_s = now_s

    def so_far(self) -> tuple[StepSeconds, StepSeconds]:
        """Return the seconds of each step, and the finished share of each; 0 s if they tell nothing.

        A step that was cut short counts up to its deadline, without the time that the process was stopped.
        """
        seconds, shares = dict(self.seconds), dict.fromkeys(STEPS, 1.0)
        cut = next((step for step in STEPS if step not in seconds), None)
        if cut is not None:
            shares[cut] = self._share_of(cut)
            if shares[cut] or self.deadline.has_passed():
                seconds[cut] = min(self._clock.now_s(), self.deadline.at_s) - self._last_s
        announce = seconds["announce"] + seconds["commit"] if "commit" in seconds else 0.0
        spent = StepSeconds(seconds.get("seal", 0.0), seconds.get("upload", 0.0), announce)
        return spent, StepSeconds(shares["seal"], shares["upload"], shares["commit"])

    def _share_of(self, cut: str) -> float:
        if cut == "seal":
            return self.rows_sealed / max(1, self._rows)
        if cut == "upload":
            end_s = min(self._clock.now_s(), self.deadline.at_s)
            late = sum(at_s > (self._last_s + end_s) / 2 for at_s in self._stored_at_s)
            # Where the store has become slower meanwhile the second half tells what it is like now.
            return min(len(self._stored_at_s), 2 * late) / max(1, self.uploads)
        return 0.0  # how far a transaction came is not known

    def note_stored(self, future: Future[StoredObject]) -> None:
        """Note when an object was stored; called by its upload's thread."""
        if not future.cancelled() and future.exception() is None:
            self._stored_at_s.append(self._clock.now_s())
