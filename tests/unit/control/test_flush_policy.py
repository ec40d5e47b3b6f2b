"""When a batch is full or old, and how long its flush takes, with literal loads and times."""

import pytest

from log_partitioner.control.flush_policy import (
    UNKNOWN_SHARE,
    FlushBounds,
    FlushCost,
    FlushLoad,
    FlushReason,
    FlushWork,
    Size,
    StepSeconds,
    decide_by_load,
)

BOUNDS = FlushBounds(
    interval_s=30, bytes_max=1000, entries_max=100, fixed_bytes_max=500, spool_bytes_max=5000, estimate_max_s=5
)
LOAD = FlushLoad(
    source_bytes=999, memory_bytes=10**9, fixed_bytes=499, spool_bytes=4000, entries=99, row_bytes=999,
    partition_keys=10**6, dead_letters=10**6,
)  # fmt: skip
LARGE = Size(10**6, 10**6)
WORK = FlushWork(entries=10_000, row_bytes=10_000_000, objects=1000, messages=1000)
DONE = StepSeconds(1.0, 1.0, 1.0)


def test_load_under_every_bound_is_no_reason() -> None:
    """One below each bound: the batch stays open, however many PartitionKeys it has, and what can be spilled."""
    assert decide_by_load(LOAD, BOUNDS, estimate_s=4.9, size_max=None) is None
    assert decide_by_load(LOAD, BOUNDS, estimate_s=2.4, size_max=Size(1000, 100)) is None


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"entries": 100}, FlushReason.ENTRIES),
        ({"source_bytes": 1000}, FlushReason.BYTES),
        ({"fixed_bytes": 500}, FlushReason.MEMORY),
        ({"spool_bytes": 4001}, FlushReason.SPOOL),
        ({"row_bytes": 1000}, FlushReason.SPOOL),
    ],
)
def test_load_at_one_bound_is_its_reason(change: dict[str, int], reason: FlushReason) -> None:
    """Each bound alone makes the batch full, W9 among them: what sealing writes has room beside what was spilled."""
    assert decide_by_load(LOAD._replace(**change), BOUNDS, estimate_s=0, size_max=None) is reason


def test_estimate_at_its_bound_is_a_reason() -> None:
    """A flush must fit into its deadline."""
    assert decide_by_load(LOAD, BOUNDS, estimate_s=5, size_max=None) is FlushReason.ESTIMATE


def test_estimate_may_fill_half_of_its_time_after_a_batch_was_too_large() -> None:
    """Three workers share what a store gives: what one had of it last time says less than an estimate needs."""
    large = Size(10**9, 10**9)
    assert decide_by_load(LOAD, BOUNDS, estimate_s=2.5, size_max=None) is None
    assert decide_by_load(LOAD, BOUNDS, estimate_s=2.5, size_max=large) is FlushReason.ESTIMATE


@pytest.mark.parametrize("size_max", [Size(999, 10**6), Size(10**6, 99), Size(1, 1)])
def test_batch_after_one_that_was_too_large_is_full_at_its_size(size_max: Size) -> None:
    """In bytes or in entries, whichever comes first; a batch is never smaller than one record."""
    assert decide_by_load(LOAD, BOUNDS, estimate_s=0, size_max=size_max) is FlushReason.SHRUNK
    assert decide_by_load(FlushLoad(), BOUNDS, estimate_s=0, size_max=size_max) is None


def test_estimate_grows_with_each_part_of_the_work() -> None:
    """Entries and bytes are sealed, objects and bytes uploaded, lines announced."""
    small = FlushCost().estimate(WORK)
    assert FlushCost().estimate(WORK._replace(entries=20_000)).seal > small.seal
    assert FlushCost().estimate(WORK._replace(row_bytes=20_000_000)) > small
    assert FlushCost().estimate(WORK._replace(objects=2_000)).upload > small.upload
    assert FlushCost().estimate(WORK._replace(messages=2_000)).announce > small.announce


@pytest.mark.parametrize("share", [0.9, 0.5, 0.15, 0.06])
@pytest.mark.parametrize("seconds", [30.0, 90.0, 4000.0])
def test_flush_cut_short_is_expected_to_take_as_long_as_its_share_says(share: float, seconds: float) -> None:
    """At once, not smoothed: the batch that follows has to fit, or the worker discards for ever."""
    cost = FlushCost().after(WORK, StepSeconds(0.3, seconds, 0), StepSeconds(1, share, 1))
    assert cost.estimate(WORK).upload >= seconds / share * 0.99
    assert cost.estimate(WORK).upload <= seconds / share + 1


def test_flush_that_has_shown_nothing_at_its_deadline_teaches_that_it_takes_much_longer() -> None:
    """Not that it takes for ever: a store that was away for a while comes back."""
    cost = FlushCost().after(WORK, StepSeconds(0.3, 90, 0), StepSeconds(1, 0, 1))
    assert cost.estimate(WORK).upload == pytest.approx(90 / UNKNOWN_SHARE, rel=0.01)


def test_flush_cut_short_early_teaches_nothing() -> None:
    """A revoke or a full disk ended it: no reason to think that it is faster, or slower, than it was."""
    cost = FlushCost(upload=50)
    assert cost.after(WORK, StepSeconds(0, 1.0, 0), StepSeconds(1, 0.5, 1)).upload == 50
    assert cost.after(WORK, StepSeconds(0, 0, 0), StepSeconds(0, 0, 0)) == cost


def test_steps_are_learnt_one_by_one() -> None:
    """A slow store is no slow disk."""
    cost = FlushCost().after(WORK, StepSeconds(0, 90, 0), StepSeconds(1, 0.1, 1))
    assert (cost.seal, cost.announce) == (1, 1)


def test_fast_flush_lowers_the_estimate_slowly() -> None:
    """By some tenths at most, and after a few of them it is right."""
    cost = FlushCost(upload=100)
    slow_s = cost.estimate(WORK).upload
    usual_s = FlushCost().estimate(WORK).upload
    once = cost.after(WORK, StepSeconds(1, usual_s, 1), DONE)
    assert 0.6 * slow_s < once.estimate(WORK).upload < slow_s
    for _ in range(30):
        cost = cost.after(WORK, StepSeconds(1, usual_s, 1), DONE)
    assert cost.estimate(WORK).upload == pytest.approx(usual_s, rel=0.1)


def test_slow_flush_raises_the_estimate_by_a_bounded_factor() -> None:
    """One process that was stopped for an hour is no reason for tiny batches all day."""
    cost = FlushCost().after(WORK, StepSeconds(0.3, 3600, 0.1), DONE)
    assert 2 < cost.upload < 5


def test_small_batch_says_little_of_what_a_large_one_takes() -> None:
    """The fixed cost of a flush hides the cost that grows with the batch."""
    small = FlushWork(entries=1, row_bytes=100, objects=1, messages=1)
    cost = FlushCost()
    for seconds in (0.001, 0.3):
        assert cost.after(small, StepSeconds(seconds, seconds, seconds), DONE).upload == pytest.approx(1, rel=0.3)


def test_flush_of_nothing_teaches_nothing() -> None:
    """Records without entries: nothing is sealed or uploaded."""
    cost = FlushCost(3, 4, 5)
    assert cost.after(FlushWork(0, 0, 0, 0), StepSeconds(9, 9, 9), DONE) == cost
