"""When a batch is full or old, with literal loads and times."""

import pytest

from service.core.flush_policy import FlushBounds, FlushCost, FlushLoad, FlushReason, decide_by_age, decide_by_load

BOUNDS = FlushBounds(interval_s=30, bytes_max=1000, entries_max=100, files_max=10, estimate_max_s=5)
LOAD = FlushLoad(source_bytes=999, spool_bytes=999, entries=99, files=9, estimate_s=4.9)


def test_load_under_every_bound_is_no_reason() -> None:
    """One below each bound: the batch stays open."""
    assert decide_by_load(LOAD, BOUNDS) is None


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"files": 10}, FlushReason.FILES),
        ({"entries": 100}, FlushReason.ENTRIES),
        ({"source_bytes": 1000}, FlushReason.BYTES),
        ({"spool_bytes": 1000}, FlushReason.BYTES),
        ({"estimate_s": 5}, FlushReason.ESTIMATE),
    ],
)
def test_load_at_one_bound_is_its_reason(change: dict[str, float], reason: FlushReason) -> None:
    """Each bound alone makes the batch full, W9 among them: the spool's bytes."""
    assert decide_by_load(LOAD._replace(**change), BOUNDS) is reason  # type: ignore[arg-type]


@pytest.mark.parametrize(("now_s", "reason"), [(129.9, None), (130, FlushReason.INTERVAL), (500, FlushReason.INTERVAL)])
def test_batch_is_old_after_the_interval_since_it_was_opened(now_s: float, reason: FlushReason | None) -> None:
    """The timer runs from the opening of the batch."""
    assert decide_by_age(opened_at_s=100, now_s=now_s, bounds=BOUNDS) is reason


def test_cost_learns_towards_what_a_flush_took_but_slowly() -> None:
    """One flush moves the estimate by a third of its error, an outlier by a bounded factor; it converges."""
    cost = FlushCost(seconds_per_file=0.01, seconds_per_byte=0)
    assert cost.estimate_s(files=100, row_bytes=10**6) == 1
    assert cost.after(files=100, row_bytes=0, seconds=2).estimate_s(files=100, row_bytes=0) == pytest.approx(1.3)
    assert cost.after(files=100, row_bytes=0, seconds=1000).estimate_s(files=100, row_bytes=0) == pytest.approx(1.9)
    assert cost.after(files=100, row_bytes=0, seconds=1e-9).estimate_s(files=100, row_bytes=0) == pytest.approx(0.775)
    for _ in range(30):
        cost = cost.after(files=100, row_bytes=0, seconds=2)
    assert cost.estimate_s(files=100, row_bytes=0) == pytest.approx(2, rel=0.01)


def test_cost_learns_nothing_from_a_flush_of_nothing() -> None:
    """No files, or no time measured: the rates stay as they are."""
    cost = FlushCost()
    assert cost.after(files=0, row_bytes=0, seconds=3) == cost
    assert cost.after(files=5, row_bytes=5, seconds=0) == cost
