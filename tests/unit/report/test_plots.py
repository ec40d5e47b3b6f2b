"""Hours become steps that can be plotted: no gaps, not too many, nothing pushed into a corner."""

import math

from hypothesis import given
from hypothesis import strategies as st

from log_partitioner.formats.findings import Kind
from log_partitioner_pipeline.report.page import audits_of
from log_partitioner_pipeline.report.plots import STEPS_MAX, Steps, plots_of
from tests.unit.report.world import HOUR_MS, T0_MS, missing, record_hour, result


@given(st.dictionaries(st.integers(0, 3000), st.integers(0, 100), min_size=1, max_size=60))
def test_sums_of_steps_are_those_of_the_hours_that_are_plotted(hours: dict[int, int]) -> None:
    """Nothing is lost in wider steps but what is said to be left out; steps are few and begin in time."""
    at_ms = [T0_MS + nth * HOUR_MS for nth in hours]
    steps = Steps(at_ms, list(hours.values()))
    first_ms, *_, end_ms = steps.edges_ms
    inside = [count for one, count in zip(at_ms, hours.values(), strict=True) if first_ms <= one < end_ms]
    assert sum(steps.sums(list(hours.values()))) == sum(inside)
    assert len(inside) + steps.left_out == len(hours)
    assert len(steps.edges_ms) - 1 <= STEPS_MAX
    assert first_ms in at_ms


def test_an_hour_of_1970_does_not_push_the_rest_into_a_corner() -> None:
    """It is left out, and counted; if it has most of the data, it stays."""
    at_ms = [0, *(T0_MS + nth * HOUR_MS for nth in range(5))]
    few = Steps(at_ms, [3, 100, 100, 100, 100, 100])
    assert (few.edges_ms[0], few.left_out, str(few)) == (T0_MS, 1, "hour")
    most = Steps(at_ms, [9000, 100, 100, 100, 100, 100])
    assert (most.edges_ms[0], most.left_out) == (0, 5)
    old = record_hour(-(T0_MS // HOUR_MS), entries=3)
    plots = plots_of(result(record_hours=[old, *map(record_hour, range(5))]), [])
    assert "1 hour too far from these: only in the tables." in plots["entries"].text


def test_wide_steps_have_the_worst_lag_of_their_hours() -> None:
    """Percentiles cannot be added up; a step without hours has none."""
    steps = Steps([T0_MS + nth * HOUR_MS for nth in range(STEPS_MAX * 2)], [1] * STEPS_MAX * 2)
    assert str(steps) == "2 hours"
    assert list(steps.worst(range(STEPS_MAX * 2))) == list(range(1, STEPS_MAX * 2, 2))
    gap = Steps([T0_MS, T0_MS + 2 * HOUR_MS], [1, 1])
    assert math.isnan(gap.worst([5, 7])[1])


def test_each_audit_is_listed_once_in_the_order_of_time() -> None:
    """The newest result is in the history, too; later audits are not before it."""
    first = result(run_id="a", started_at_ms=5, could_not_tell=["why"])
    second = result([(Kind.MISSING, [missing(1)] * 3)], run_id="b", started_at_ms=9)
    later = result(run_id="c", started_at_ms=10)
    assert audits_of(second, [second, later, first]) == [first, second]


def test_a_result_without_hours_has_no_plots() -> None:
    """Nothing is plotted rather than zeros."""
    assert plots_of(result(), [result()]) == {}
