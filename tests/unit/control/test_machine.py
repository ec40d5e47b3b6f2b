# ruff: noqa: FBT003 - events in a table are written by position
"""Each arrow of the state diagram by a literal event; random walks are in tests/property."""

import re
from dataclasses import replace

import pytest

from service.control import machine
from service.control.events import (
    Assigned,
    ConsumeReturned,
    Discard,
    Effect,
    Event,
    Failed,
    Flush,
    FlushCommitted,
    FlushDiscarded,
    FlushDue,
    Leave,
    Lost,
    Own,
    Pause,
    RecordingFailed,
    RecordsRefused,
    Release,
    Resume,
    Revoked,
    Rewound,
    StopRequested,
    Tick,
    TransactionEnded,
)
from service.control.flush_policy import FlushReason, Size
from service.control.machine import (
    NOTHING,
    After,
    InvalidTransitionError,
    MachineRules,
    Phase,
    WorkerState,
    check,
    handle,
)
from service.formats.model import TopicPartition

A, B, C = (TopicPartition("app", number) for number in range(3))
AB, ONLY_A, ONLY_C = frozenset({A, B}), frozenset({A}), frozenset({C})
IDLE = WorkerState()
SIZE = Size(1000, 100)
RULES = MachineRules(backoff_max_s=30, size_max=SIZE)
CONSUMING = WorkerState(Phase.CONSUMING, generation=3, owned=AB)


def flushing(**after: object) -> WorkerState:
    """Make the state in which a flush is under way."""
    return replace(CONSUMING, phase=Phase.FLUSHING, after=After(**after))  # type: ignore[arg-type]


def step(state: WorkerState, event: Event) -> tuple[WorkerState, tuple[Effect, ...]]:
    """Handle one event."""
    return handle(state, event, rules=RULES)


@pytest.mark.parametrize(
    ("state", "event", "phase", "owned", "generation", "effects"),
    [
        (IDLE, Assigned(AB, False, 0), Phase.CONSUMING, AB, 1, (Own(AB),)),
        (IDLE, Assigned(NOTHING, False, 0), Phase.IDLE, NOTHING, 1, ()),
        (IDLE, Revoked(AB, False, 0), Phase.IDLE, NOTHING, 1, ()),
        (IDLE, Lost(AB, 0), Phase.IDLE, NOTHING, 1, (Discard(),)),
        (IDLE, StopRequested(False, 0), Phase.STOPPED, NOTHING, 0, (Leave(),)),
        (CONSUMING, Assigned(frozenset({B, C}), False, 0), Phase.CONSUMING, AB | ONLY_C, 4, (Own(ONLY_C),)),
        (CONSUMING, Assigned(ONLY_C, True, 0), Phase.FLUSHING, AB, 3, (Flush(FlushReason.ASSIGNED),)),
        (CONSUMING, Revoked(ONLY_A, False, 0), Phase.CONSUMING, frozenset({B}), 4, (Release(ONLY_A),)),
        (CONSUMING, Revoked(AB, False, 0), Phase.IDLE, NOTHING, 4, (Release(AB),)),
        (CONSUMING, Revoked(ONLY_A, True, 0), Phase.FLUSHING, AB, 3, (Flush(FlushReason.REVOKED),)),
        (CONSUMING, Revoked(ONLY_C, False, 0), Phase.CONSUMING, AB, 4, ()),
        (CONSUMING, Lost(ONLY_A, 0), Phase.CONSUMING, frozenset({B}), 4, (Discard(), Release(ONLY_A, True))),
        (CONSUMING, Lost(AB, 0), Phase.IDLE, NOTHING, 4, (Discard(), Release(AB, True))),
        (CONSUMING, FlushDue(FlushReason.BYTES, 0), Phase.FLUSHING, AB, 3, (Flush(FlushReason.BYTES),)),
        (CONSUMING, StopRequested(True, 0), Phase.FLUSHING, AB, 3, (Flush(FlushReason.STOPPING),)),
        (CONSUMING, StopRequested(False, 0), Phase.STOPPED, AB, 3, (Leave(),)),
        (CONSUMING, Failed(0), Phase.FAILED, AB, 3, (Discard(),)),
        (CONSUMING, RecordingFailed(0), Phase.CONSUMING, AB, 3, (Discard(), Pause(1))),
        (flushing(), FlushCommitted(0), Phase.CONSUMING, AB, 3, ()),
        (flushing(own=ONLY_C), FlushCommitted(0), Phase.CONSUMING, AB | ONLY_C, 4, (Own(ONLY_C),)),
        (flushing(release=ONLY_A), FlushCommitted(0), Phase.CONSUMING, frozenset({B}), 4, (Release(ONLY_A),)),
        (flushing(release=AB), FlushCommitted(0), Phase.IDLE, NOTHING, 4, (Release(AB),)),
        (flushing(stop=True), FlushCommitted(0), Phase.STOPPED, AB, 3, (Leave(),)),
        (flushing(), FlushDiscarded(False, SIZE, 0), Phase.CONSUMING, AB, 3, (Discard(), Pause(1))),
        (flushing(own=ONLY_C), FlushDiscarded(False, SIZE, 0), Phase.CONSUMING, AB | ONLY_C, 4,
         (Discard(), Pause(1), Own(ONLY_C))),
        (flushing(release=ONLY_A), FlushDiscarded(False, SIZE, 0), Phase.CONSUMING, frozenset({B}), 4,
         (Discard(), Pause(1), Release(ONLY_A))),
        (flushing(release=AB), FlushDiscarded(True, SIZE, 0), Phase.IDLE, NOTHING, 4,
         (Discard(), Pause(1), Release(AB))),
        (flushing(stop=True), FlushDiscarded(True, SIZE, 0), Phase.STOPPED, AB, 3, (Discard(), Leave())),
        (flushing(release=AB), Failed(0), Phase.FAILED, AB, 3, (Discard(),)),
    ],
)  # fmt: skip
def test_event_in_a_state_leads_to_the_next_with_its_effects(
    state: WorkerState,
    event: Event,
    phase: Phase,
    owned: frozenset[TopicPartition],
    generation: int,
    effects: tuple[Effect, ...],
) -> None:
    """The table of the control plane, row by row."""
    new, done = step(state, event)
    assert (new.phase, new.owned, new.generation, done) == (phase, owned, generation, effects)


@pytest.mark.parametrize(
    ("state", "event", "rewinds"),
    [
        (CONSUMING, RecordsRefused(0), AB),
        (CONSUMING, RecordingFailed(0), AB),
        (CONSUMING, Lost(ONLY_A, 0), frozenset({B})),
        (CONSUMING, ConsumeReturned(ONLY_A | ONLY_C, False, 0), ONLY_A),
        (replace(CONSUMING, rewinds=AB), Rewound(ONLY_A, 0), frozenset({B})),
        (replace(CONSUMING, rewinds=AB), Revoked(ONLY_A, False, 0), frozenset({B})),
        (replace(CONSUMING, given_back=frozenset({C})), Assigned(ONLY_C, False, 0), ONLY_C),
        (flushing(), FlushCommitted(0), NOTHING),
        (flushing(), FlushDiscarded(False, SIZE, 0), AB),
        (flushing(own=ONLY_C), FlushDiscarded(False, SIZE, 0), AB),
        (flushing(release=ONLY_A), FlushDiscarded(False, SIZE, 0), frozenset({B})),
    ],
)
def test_what_was_handed_over_and_not_recorded_is_read_again(
    state: WorkerState, event: Event, rewinds: frozenset[TopicPartition]
) -> None:
    """What is owned still: nobody may seek what somebody else owns."""
    assert step(state, event)[0].rewinds == rewinds


def test_records_from_before_a_revoke_are_refused_until_consume_has_returned() -> None:
    """It may have taken them before the callbacks, which gave their TopicPartition back and took it again."""
    state, _ = step(CONSUMING, Revoked(ONLY_A, False, 0))
    state, _ = step(state, Assigned(ONLY_A, False, 0))
    state, _ = step(state, ConsumeReturned(NOTHING, False, 0))
    assert (state.rewinds, state.given_back) == (ONLY_A, NOTHING)
    state, _ = step(state, Rewound(ONLY_A, 0))
    assert not step(step(state, Assigned(ONLY_C, False, 0))[0], ConsumeReturned(NOTHING, False, 0))[0].rewinds


def test_transaction_may_be_open_from_a_discard_until_the_broker_has_ended_it() -> None:
    """Or where a start position could not be committed."""
    state, _ = step(flushing(), FlushDiscarded(False, SIZE, 0))
    assert state.may_be_open
    assert not step(state, TransactionEnded(0))[0].may_be_open
    assert step(CONSUMING, ConsumeReturned(NOTHING, True, 0))[0].may_be_open


@pytest.mark.parametrize(
    ("state", "event"),
    [
        (IDLE, FlushDue(FlushReason.BYTES, 0)),
        (IDLE, Assigned(AB, True, 0)),
        (IDLE, FlushCommitted(0)),
        (IDLE, FlushDiscarded(True, SIZE, 0)),
        (CONSUMING, FlushCommitted(0)),
        (CONSUMING, FlushDiscarded(False, SIZE, 0)),
        (flushing(), FlushDue(FlushReason.BYTES, 0)),
        (flushing(), Assigned(AB, False, 0)),
        (flushing(), Revoked(AB, False, 0)),
        (flushing(), Lost(AB, 0)),
        (flushing(), StopRequested(True, 0)),
        (flushing(), Tick(0)),
        (flushing(), RecordingFailed(0)),
    ],
)
def test_event_that_cannot_happen_in_a_state_is_a_bug(state: WorkerState, event: Event) -> None:
    """W7, W8: while FLUSHING nothing else happens, because one thread does both; an empty batch is never flushed."""
    with pytest.raises(InvalidTransitionError):
        step(state, event)


@pytest.mark.parametrize("phase", [Phase.STOPPED, Phase.FAILED])
def test_final_state_only_releases(phase: Phase) -> None:
    """W6: closing the consumer still revokes; nothing is flushed, owned or left again."""
    state = replace(CONSUMING, phase=phase)
    for event in (Assigned(ONLY_C, True, 0), StopRequested(True, 0), Tick(0), Failed(0), FlushCommitted(0),
                  FlushDiscarded(True, SIZE, 0), FlushDue(FlushReason.BYTES, 0),
                  RecordingFailed(0), Revoked(ONLY_C, True, 0)):  # fmt: skip
        assert step(state, event) == (state, ())
    new, effects = step(state, Revoked(ONLY_A, True, 0))
    assert (new.owned, effects) == (frozenset({B}), (Release(ONLY_A),))
    assert step(new, Lost(AB, 0))[1] == (Release(frozenset({B}), True),)


def test_pauses_grow_with_discards_in_a_row_and_end_with_a_commit() -> None:
    """1, 2, 4 ... seconds up to the setting; a commit begins anew."""
    state, pauses = CONSUMING, []
    for n in range(8):
        state, _ = step(state, FlushDue(FlushReason.BYTES, n))
        state, effects = step(state, FlushDiscarded(False, SIZE, n))
        pauses += [effect.seconds for effect in effects if isinstance(effect, Pause)]
    assert pauses == [1, 2, 4, 8, 16, 30, 30, 30]
    state, _ = step(state, FlushDue(FlushReason.BYTES, 9))
    state, _ = step(state, FlushCommitted(9))
    state, _ = step(state, FlushDue(FlushReason.BYTES, 10))
    assert Pause(1) in step(state, FlushDiscarded(False, SIZE, 10))[1]


def test_pause_ends_at_the_first_tick_after_its_time() -> None:
    """Polling goes on meanwhile, also through a rebalance."""
    state, _ = step(flushing(), FlushDiscarded(False, SIZE, 100))
    assert state.paused_until_s == 101
    assert step(state, Tick(100.9)) == (state, ())
    state, _ = step(state, Revoked(AB, False, 100.9))
    state, effects = step(state, Tick(101))
    assert (state.paused_until_s, effects) == (None, (Resume(),))
    assert step(state, Tick(102)) == (state, ())


def test_disk_that_refuses_is_asked_again_after_pauses_that_grow() -> None:
    """It is no failure that ends the process, and makes no batch smaller: there is room again or there is not."""
    state, pauses = CONSUMING, []
    for n in range(20):
        state, effects = step(state, RecordingFailed(n))
        pauses += [effect.seconds for effect in effects if isinstance(effect, Pause)]
    assert pauses == [1, 2, 4, 8, 16] + [30] * 15
    assert (state.phase, state.size_max, state.failures_at_s) == (Phase.CONSUMING, None, ())


def discarded(state: WorkerState, size: Size) -> WorkerState:
    """Flush a batch of a size, in vain."""
    state, _ = step(state, FlushDue(FlushReason.INTERVAL, 0))
    return step(state, FlushDiscarded(False, size, 0))[0]


def committed(state: WorkerState) -> WorkerState:
    """Flush a batch."""
    state, _ = step(state, FlushDue(FlushReason.INTERVAL, 0))
    return step(state, FlushCommitted(0))[0]


def test_batch_after_a_discard_is_half_as_large_down_to_one_record() -> None:
    """Whatever was too slow: bytes and entries are halved again and again; each record is a batch of its own then."""
    state, sizes = CONSUMING, []
    for _ in range(11):
        state = discarded(state, state.size_max or Size(1000, 100))
        sizes.append(state.size_max)
    assert sizes[:4] == [(500, 50), (250, 25), (125, 12), (62, 6)]
    assert sizes[6:] == [(7, 1), (3, 1), (1, 1), (1, 1), (1, 1)]


def test_batch_smaller_than_allowed_that_fails_halves_what_it_had() -> None:
    """A batch of the interval is often far below its bound; the bound never grows by a discard."""
    assert discarded(CONSUMING, Size(100, 10)).size_max == (50, 5)
    small = discarded(CONSUMING, Size(100, 10))
    assert discarded(small, Size(1000, 4)).size_max == (25, 2)
    assert discarded(CONSUMING, Size(0, 0)).size_max == (1, 1)


def test_commits_double_the_size_until_there_is_no_bound_any_more() -> None:
    """It takes as many commits as it took discards, at most."""
    state, sizes = replace(CONSUMING, size_max=Size(10, 1)), []
    while state.size_max is not None:
        sizes.append(state.size_max)
        state = committed(state)
    assert sizes == [(10, 1), (20, 2), (40, 4), (80, 8), (160, 16), (320, 32), (640, 64)]
    assert committed(state).size_max is None


def test_size_of_a_batch_survives_a_rebalance() -> None:
    """What was too much before is too much after it."""
    state = discarded(CONSUMING, Size(1000, 100))
    for event in (Revoked(ONLY_A, False, 0), Assigned(ONLY_C, False, 0), Lost(AB, 0), Tick(1)):
        state, _ = step(state, event)
    assert state.size_max == (500, 50)


@pytest.mark.parametrize(
    ("failures", "phase"),
    [
        ([(True, 0), (True, 100), (True, 299)], Phase.FAILED),
        ([(True, 0), (True, 100), (True, 300)], Phase.CONSUMING),
        ([(True, 0), (False, 100), (True, 200), (False, 250)], Phase.CONSUMING),
        ([(True, 0), (False, 100), (True, 200), (True, 250)], Phase.FAILED),
        ([(False, n) for n in range(20)], Phase.CONSUMING),
    ],
)
def test_three_failures_in_five_minutes_end_the_process(failures: list[tuple[bool, float]], phase: Phase) -> None:
    """Fatal and unknown outcomes count, ordinary discards do not, old ones are forgotten (DESIGN 4.1)."""
    state = CONSUMING
    for counts, at_s in failures:
        state, _ = step(state, FlushDue(FlushReason.INTERVAL, at_s))
        state, effects = step(state, FlushDiscarded(counts, SIZE, at_s))
    assert state.phase is phase
    assert (Leave() in effects) == (phase is Phase.FAILED)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (replace(CONSUMING, after=After(stop=True)), "waits in"),
        (replace(IDLE, owned=AB), "idle, but owns"),
        (replace(CONSUMING, owned=NOTHING), "owns nothing"),
        (flushing(own=ONLY_A), "assigned twice"),
    ],
)
def test_state_that_contradicts_itself_is_noticed(state: WorkerState, message: str) -> None:
    """What holds in every state is asserted after every event."""
    with pytest.raises(AssertionError, match=re.escape(message)):
        check(state)


def test_every_phase_has_successors_and_final_ones_only_themselves() -> None:
    """The table names all phases."""
    assert machine.SUCCESSORS.keys() == set(Phase)
    assert all(machine.SUCCESSORS[phase] == {phase} for phase in (Phase.STOPPED, Phase.FAILED))
