"""What the liveness benchmark is told, and how it judges."""

import pytest

from bench.liveness import Phase, Told
from tools.local.errors import StackError


@pytest.mark.parametrize(
    ("text", "phase"),
    [
        ("1:free", Phase("1:free", 1)),
        ("3:50/s", Phase("3:50/s", 3, puts_per_s=50.0)),
        ("1:1MB/s", Phase("1:1MB/s", 1, bytes_per_s=1e6)),
        ("3:0.25cpu", Phase("3:0.25cpu", 3, cpus=0.25)),
    ],
)
def test_phase_is_read_as_written(text: str, phase: Phase) -> None:
    """One word says how many workers there are and what is held to what."""
    assert phase == Phase.parse(text)


@pytest.mark.parametrize("text", ["", "free", "3", "3:50", "3:50 PUT/s", "x:free"])
def test_phase_of_another_form_is_refused(text: str) -> None:
    """A slip of the hand is not a phase without limits."""
    with pytest.raises(StackError, match="is not WORKERS:PACE"):
        Phase.parse(text)


def test_one_discard_of_each_worker_and_two_minutes_without_an_advance_are_within_the_bounds() -> None:
    """These are the bounds of issue 10."""
    told = Told(layout="auto", phase="3:free", discards={"worker-1": 1, "worker-2": 1}, longest_s=150.0, gap_s=120.0)

    assert told.broken() == []


def test_each_broken_bound_is_named() -> None:
    """The table says which one."""
    told = Told(layout="auto", phase="3:free", discards={"worker-1": 2}, gap_s=121.0, restarts=1)

    assert told.broken() == [
        "worker-1 discarded 2 batches",
        "no advance for 121 s",
        "1 workers ended by themselves",
    ]
