"""One budget for all steps of a flush, on a clock that the test moves."""

from log_partitioner.control.deadline import Deadline
from tests.fakes.clock import FakeClock


def test_deadline_counts_down_to_zero_and_not_below() -> None:
    """The rest shrinks as time goes by; a spent budget is zero."""
    clock = FakeClock()
    deadline = Deadline.after(10, clock.now_s)
    assert (deadline.remaining_s(), deadline.has_passed()) == (10, False)
    clock.advance(4)
    assert (deadline.remaining_s(), deadline.has_passed()) == (6, False)
    clock.advance(6)
    assert (deadline.remaining_s(), deadline.has_passed()) == (0, True)
    clock.advance(1)
    assert (deadline.remaining_s(), deadline.has_passed()) == (0, True)


def test_deadline_of_a_step_is_the_nearer_one() -> None:
    """W10: a step never gets more time than the whole has left."""
    clock = FakeClock()
    deadline = Deadline.after(10, clock.now_s)
    assert deadline.at_most(3).remaining_s() == 3
    assert deadline.at_most(30).remaining_s() == 10
    clock.advance(8)
    assert deadline.at_most(3).remaining_s() == 2
