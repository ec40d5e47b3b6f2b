"""Each transition of the control plane's state by literals; random walks are in tests/property."""

from dataclasses import replace

import pytest

from log_partitioner.control.flush_policy import Size
from log_partitioner.control.state import NOTHING, Phase, WorkerState
from log_partitioner.formats.model import TopicPartition

A, B, C = (TopicPartition("app", number) for number in range(3))
AB, ONLY_A, ONLY_B, ONLY_C = frozenset({A, B}), frozenset({A}), frozenset({B}), frozenset({C})
FULL = Size(1000, 100)
OWNING = WorkerState(generation=3, owned=AB)


def discarded(state: WorkerState, size: Size = FULL, *, counts: bool = False, at_s: float = 0.0) -> WorkerState:
    """Flush a batch of a size, in vain."""
    return state.discarded(size, at_s, counts_as_failure=counts)


def test_assignment_grows_and_shrinks_and_each_change_is_a_generation() -> None:
    """A change without effect is one, too: an earlier batch is not committed with a later membership."""
    state = WorkerState()
    assert state.phase is Phase.IDLE
    state = state.owning(AB)
    assert (state.owned, state.generation, state.phase) == (AB, 1, Phase.CONSUMING)
    state = state.owning(NOTHING).releasing(ONLY_A)
    assert (state.owned, state.generation, state.phase) == (ONLY_B, 3, Phase.CONSUMING)
    assert state.releasing(ONLY_B).phase is Phase.IDLE


@pytest.mark.parametrize(
    ("state", "to_seek"),
    [
        (OWNING.seeking(), AB),
        (OWNING.seeking().sought(ONLY_A), ONLY_B),
        (OWNING.seeking().releasing(ONLY_A), ONLY_B),
        (OWNING.owning(ONLY_C), ONLY_C),
        (OWNING.backed_off(0, 30), AB),
        (OWNING.committed(FULL), NOTHING),
        (OWNING.releasing(ONLY_A).owning(ONLY_A), ONLY_A),
    ],
)
def test_what_was_handed_over_and_not_recorded_is_to_be_sought(
    state: WorkerState, to_seek: frozenset[TopicPartition]
) -> None:
    """Only owned TopicPartitions are sought, because another worker may own the others. A new one has no place yet."""
    assert state.to_seek == to_seek


def test_state_that_would_seek_what_is_not_owned_is_a_bug() -> None:
    """This holds in every state."""
    with pytest.raises(AssertionError, match="to be sought, but not owned"):
        replace(OWNING, to_seek=ONLY_C)


@pytest.mark.parametrize("phase", [Phase.STOPPED, Phase.FAILED])
def test_end_is_for_good_and_still_releases(phase: Phase) -> None:
    """W6: closing the consumer revokes; no worker has the generation any more."""
    state = OWNING.ended(phase)
    assert state.ended(Phase.FAILED) == state
    assert (state.phase, state.releasing(ONLY_A)) == (phase, replace(state, owned=ONLY_B))


def test_pauses_grow_with_discards_in_a_row_and_end_with_a_commit() -> None:
    """1, 2, 4 ... seconds up to the setting; a commit begins anew. A disk that refuses ends no process by itself."""
    state, pauses = OWNING, []
    for _ in range(20):
        state = state.backed_off(100, 30)
        pauses.append((state.paused_until_s or 0) - 100)
    assert pauses == [1, 2, 4, 8, 16] + [30] * 15
    assert (state.size_max, state.has_failed_too_often) == (None, False)
    assert state.committed(FULL).backed_off(100, 30).paused_until_s == 101
    assert state.resumed().paused_until_s is None


def test_batch_after_a_discard_is_half_as_large_down_to_one_record() -> None:
    """Bytes and entries are halved with each discard, until each record is a batch of its own."""
    state, sizes = OWNING, []
    for _ in range(11):
        state = discarded(state, state.size_max or FULL)
        sizes.append(state.size_max)
    assert sizes[:4] == [(500, 50), (250, 25), (125, 12), (62, 6)]
    assert sizes[6:] == [(7, 1), (3, 1), (1, 1), (1, 1), (1, 1)]


def test_batch_smaller_than_allowed_that_fails_halves_what_it_had() -> None:
    """A batch of the interval is often far below its bound; the bound never grows by a discard."""
    small = discarded(OWNING, Size(100, 10))
    assert small.size_max == (50, 5)
    assert discarded(small, Size(1000, 4)).size_max == (25, 2)
    assert discarded(OWNING, Size(0, 0)).size_max == (1, 1)


def test_commits_double_the_size_until_there_is_no_bound_any_more() -> None:
    """It takes as many commits as it took discards, at most."""
    state, sizes = replace(OWNING, size_max=Size(10, 1)), []
    while state.size_max is not None:
        sizes.append(state.size_max)
        state = state.committed(FULL)
    assert sizes == [(10, 1), (20, 2), (40, 4), (80, 8), (160, 16), (320, 32), (640, 64)]
    assert state.committed(FULL).size_max is None


def test_size_of_a_batch_survives_a_rebalance() -> None:
    """A batch that was too large before is too large after it."""
    state = discarded(OWNING).releasing(AB).owning(ONLY_C).resumed()
    assert state.size_max == (500, 50)


@pytest.mark.parametrize(
    ("failures", "too_often"),
    [
        ([(True, 0), (True, 100), (True, 299)], True),
        ([(True, 0), (True, 100), (True, 300)], False),
        ([(True, 0), (False, 100), (True, 200), (False, 250)], False),
        ([(True, 0), (False, 100), (True, 200), (True, 250)], True),
        ([(False, n) for n in range(20)], False),
    ],
)
def test_three_failures_in_five_minutes_are_too_many(failures: list[tuple[bool, float]], too_often: bool) -> None:  # noqa: FBT001
    """Fatal and unknown outcomes count, ordinary discards do not, old ones are forgotten (DESIGN 4.1)."""
    state = OWNING
    for counts, at_s in failures:
        state = discarded(state, counts=counts, at_s=at_s)
    assert state.has_failed_too_often is too_often


def test_change_names_what_is_not_as_it_was() -> None:
    """It is the story that is told when the worker ends by a fault."""
    assert OWNING.ended(Phase.FAILED).change_of(OWNING) == "end=Phase.FAILED"
    assert OWNING.seeking().change_of(OWNING.seeking()) == ""
