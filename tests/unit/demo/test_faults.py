"""The plan of faults: determined by the seed, and every step can be done to its worker."""

import pytest

from deploy.demo.faults import (
    FAULT_KINDS,
    WORKERS_MAX,
    WORKERS_MIN,
    Action,
    Round,
    first_workers,
    plan_demo,
    plan_rounds,
)


def plan(seed: int, rounds: int = 20) -> tuple[Round, ...]:
    return plan_rounds(seed=seed, rounds=rounds, kinds=FAULT_KINDS, workers=3, session_timeout_s=6)


def test_plan_rounds_equal_seed_equal_plan() -> None:
    """A soak is repeated by its seed."""
    assert plan(7) == plan(7)
    assert plan(7) != plan(8)


@pytest.mark.parametrize("seed", range(50))
def test_plan_rounds_every_step_meets_a_worker_that_it_fits(seed: int) -> None:
    """Only living workers are killed, paused or ended, only paused ones resumed, only others started."""
    running, paused = set(first_workers(3)), set[str]()
    for planned in plan(seed):
        for step in planned.steps:
            match step.action:
                case Action.START:
                    assert step.worker not in running | paused
                    running.add(step.worker)
                case Action.KILL | Action.TERMINATE:
                    running.remove(step.worker)
                case Action.PAUSE:
                    running.remove(step.worker)
                    paused.add(step.worker)
                case Action.RESUME:
                    paused.remove(step.worker)
                    running.add(step.worker)
        assert not paused
        assert WORKERS_MIN <= len(running) <= WORKERS_MAX


@pytest.mark.parametrize("seed", range(5))
def test_plan_rounds_steps_stand_in_order_within_the_round(seed: int) -> None:
    """Steps follow one another in time, and none comes after the round's end."""
    for planned in plan(seed):
        times = [step.at_s for step in planned.steps]
        assert times == sorted(times)
        assert all(0 < at_s < planned.length_s for at_s in times)


def test_plan_rounds_has_all_kinds_of_faults() -> None:
    """Twenty rounds kill, pause, add and remove, and replace under the old name and under new ones."""
    steps = [step for planned in plan(1) for step in planned.steps]

    assert {step.action for step in steps} == set(Action)
    killed = {step.worker for step in steps if step.action is Action.KILL}
    started = {step.worker for step in steps if step.action is Action.START}
    assert killed & started
    assert started - killed


def test_plan_rounds_only_the_kinds_asked_for() -> None:
    """`--faults pause` pauses and does nothing else."""
    planned = plan_rounds(seed=1, rounds=20, kinds=("pause",), workers=3, session_timeout_s=6)

    assert {step.action for each in planned for step in each.steps} == {Action.PAUSE, Action.RESUME}


def test_plan_demo_pauses_past_the_session() -> None:
    """The demo's pause is longer than the session, so that the worker comes back as a zombie."""
    (planned,) = plan_demo(session_timeout_s=6)
    at_s = {step.action: step.at_s for step in planned.steps}

    assert at_s[Action.RESUME] - at_s[Action.PAUSE] > 6
    assert at_s[Action.KILL] < at_s[Action.START]
