"""The plan of the demo's faults."""

import pytest

from tools.demo.faults import Action, first_workers, plan_demo


@pytest.mark.parametrize("workers", [1, 3, 5])
def test_plan_demo_kills_replaces_and_pauses_past_the_session(workers: int) -> None:
    """Only living workers are killed and paused, and only one that is not there is started."""
    plan = plan_demo(session_timeout_s=6.0, workers=workers)
    kill, start, pause, resume = plan.steps
    assert [step.action for step in plan.steps] == [Action.KILL, Action.START, Action.PAUSE, Action.RESUME]
    assert kill.worker in first_workers(workers)
    assert start.worker not in first_workers(workers)
    assert pause.worker == resume.worker in {*first_workers(workers), start.worker} - {kill.worker}
    assert resume.at_s - pause.at_s > 6.0
    assert plan.length_s > resume.at_s
