"""Results become series that can be plotted: no gaps, not too many steps, nothing pushed into a corner."""

from hypothesis import given
from hypothesis import strategies as st

from log_partitioner.formats.findings import Kind
from log_partitioner_pipeline.audit.result import Verdict
from log_partitioner_pipeline.report.series import (
    HOUR_MS,
    STEPS_MAX,
    audits,
    entries_per_hour,
    findings_per_hour,
    lag_per_hour,
    sizes_per_hour,
    steps_of,
)
from tests.unit.report.world import T0_MS, missing, record_hour, result


@given(st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 100)), min_size=1, max_size=60))
def test_sums_of_steps_are_those_of_the_hours_that_are_plotted(hours: list[tuple[int, int]]) -> None:
    """Nothing is lost in wider steps but what is said to be left out; steps are few and begin in time."""
    given_hours = [(T0_MS + nth * HOUR_MS, {"n": count}) for nth, count in dict(hours).items()]
    steps = steps_of(given_hours, weigh="n")
    assert steps is not None
    edges = steps.edges_ms
    inside = [values["n"] for at_ms, values in given_hours if edges[0] <= at_ms < edges[-1]]
    assert sum(value or 0 for value in steps.values["n"]) == sum(inside)
    assert len(inside) + steps.left_out == len(given_hours)
    assert len(edges) - 1 <= STEPS_MAX + 1
    assert edges[0] <= min(at_ms for at_ms, _ in given_hours if at_ms >= edges[0])


def test_an_hour_of_1970_does_not_push_the_rest_into_a_corner() -> None:
    """It is left out, and counted; where it is the data, it stays."""
    old = -(T0_MS // HOUR_MS)
    few = entries_per_hour(result(record_hours=[record_hour(old, entries=3), *map(record_hour, range(5))]))
    assert few is not None
    assert (few.begin_ms, few.left_out, few.width_ms) == (T0_MS, 1, HOUR_MS)
    most = entries_per_hour(result(record_hours=[record_hour(old, entries=9000), *map(record_hour, range(5))]))
    assert most is not None
    assert (most.begin_ms, most.left_out) == (0, 5)


def test_wide_steps_have_the_worst_lag_of_their_hours() -> None:
    """Percentiles cannot be added up."""
    hours = [record_hour(nth, lag_ms=1000 * (nth + 1)) for nth in range(STEPS_MAX * 2)]
    steps = lag_per_hour(result(record_hours=hours))
    assert steps is not None
    assert steps.width_ms == 2 * HOUR_MS
    assert (steps.values["p50"][0], steps.values["max"][-1]) == (2, STEPS_MAX * 2 * 3)


def test_results_of_before_lag_and_sizes_were_known_have_none() -> None:
    """Nothing is plotted rather than zeros."""
    old = result(record_hours=[], hours=[])
    assert (lag_per_hour(old), sizes_per_hour(old), entries_per_hour(old), findings_per_hour(old)) == (None,) * 4


def test_each_audit_stands_once_in_the_order_of_time() -> None:
    """The newest result is in the history, too."""
    first = result(run_id="a", started_at_ms=5, could_not_tell=["why"])
    second = result([(Kind.MISSING, [missing(1)] * 3)], run_id="b", started_at_ms=9)
    listed = audits([second, first, second])
    assert [(one.started_at_ms, one.verdict, one.findings) for one in listed] == [
        (5, Verdict.COULD_NOT_TELL, {}),
        (9, Verdict.FINDINGS, {"missing": 3}),
    ]
