"""The control plane as a pure state machine: (state, event) -> (state, effects). Reads no clock, does nothing.

                assigned              due / revoked / stopping           committed, still owning
       IDLE --------------> CONSUMING ------------------------> FLUSHING -----------------------> CONSUMING
        ^                     |    ^                              |  |  committed, nothing owned --> IDLE
        |        lost         |    |  discarded: rewind           |  |  stopping -----------------> STOPPED
        +---------------------+    +------------------------------+  |  too many failures --------> FAILED

The shell (`runtime.controller`) performs the effects in order and reports the outcome of a Flush as the next event;
while FLUSHING nothing else can happen, because one thread does both. STOPPED and FAILED are final.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple, assert_never

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
    TopicPartitions,
    TransactionEnded,
)
from service.control.flush_policy import FlushReason, Size, grown, shrunk

FAILURES_MAX = 3
FAILURES_WINDOW_S = 300.0
BACKOFF_FIRST_S = 1.0


class MachineRules(NamedTuple):
    """The longest pause in seconds, and the size that a batch may always have."""

    backoff_max_s: float
    size_max: Size


NOTHING: TopicPartitions = frozenset()


class Phase(Enum):
    """Where the worker is."""

    IDLE = "idle"
    CONSUMING = "consuming"
    FLUSHING = "flushing"
    STOPPED = "stopped"
    FAILED = "failed"


SUCCESSORS: dict[Phase, frozenset[Phase]] = {
    Phase.IDLE: frozenset({Phase.IDLE, Phase.CONSUMING, Phase.STOPPED, Phase.FAILED}),
    Phase.CONSUMING: frozenset({Phase.CONSUMING, Phase.IDLE, Phase.FLUSHING, Phase.STOPPED, Phase.FAILED}),
    Phase.FLUSHING: frozenset({Phase.CONSUMING, Phase.IDLE, Phase.STOPPED, Phase.FAILED}),
    Phase.STOPPED: frozenset({Phase.STOPPED}),
    Phase.FAILED: frozenset({Phase.FAILED}),
}


@dataclass(frozen=True, slots=True)
class After:
    """What waits for the outcome of a flush: partitions to own, to release, or the stop."""

    own: TopicPartitions = NOTHING
    release: TopicPartitions = NOTHING
    stop: bool = False


@dataclass(frozen=True, slots=True)
class WorkerState:
    """All that the control plane knows; `generation` grows by one with each change of assignment.

    `size_max` is set after a batch was discarded: half of its size, doubled again by each commit. Records of `rewinds`
    are refused until their TopicPartition is at its committed offset again. `given_back` was released since `consume`
    was called, which may still return records that it took before. `may_be_open`: our last transaction, on the broker.
    """

    phase: Phase = Phase.IDLE
    generation: int = 0
    owned: TopicPartitions = NOTHING
    after: After = After()
    paused_until_s: float | None = None
    discards_in_row: int = 0
    failures_at_s: tuple[float, ...] = ()
    size_max: Size | None = None
    rewinds: TopicPartitions = NOTHING
    given_back: TopicPartitions = NOTHING
    may_be_open: bool = False


Step = tuple[WorkerState, tuple[Effect, ...]]


class InvalidTransitionError(AssertionError):
    """An event that is not legal in this state: a bug of ours."""


def handle(state: WorkerState, event: Event, *, rules: MachineRules) -> Step:
    """Advance the worker by one event.

    Raises:
        InvalidTransitionError: the event is not legal in this state.
    """
    new, effects = _step(state, event, rules)
    if new.phase not in SUCCESSORS[state.phase]:
        raise InvalidTransitionError(f"{event} leads from {state.phase} to {new.phase}")
    check(new)
    return new, effects


def _step(state: WorkerState, event: Event, rules: MachineRules) -> Step:
    if state.phase in (Phase.STOPPED, Phase.FAILED):
        return _when_final(state, event)
    if isinstance(event, Failed):  # also in the middle of a flush
        return replace(state, phase=Phase.FAILED, after=After()), (Discard(),)
    if isinstance(event, FlushCommitted | FlushDiscarded) != (state.phase is Phase.FLUSHING):
        raise InvalidTransitionError(f"{event} in {state.phase}")
    match event:
        case Assigned():
            return _when_assigned(state, event)
        case Revoked():
            return _when_revoked(state, event)
        case Lost():
            return _when_lost(state, event)
        case FlushDue():
            return _flush(state, event.reason, After())
        case StopRequested():
            return _when_asked_to_stop(state, event)
        case FlushCommitted():
            size_max = grown(state.size_max, rules.size_max)
            return _go_on(replace(state, discards_in_row=0, size_max=size_max), before=())
        case FlushDiscarded():
            return _when_discarded(state, event, rules)
        case RecordingFailed():  # nothing is being flushed: it is read again after a pause
            state, pause = _backed_off(state, event.at_s, rules)
            return replace(state, rewinds=state.owned), (Discard(), pause)
        case _:
            return _between(state, event)


def _between(state: WorkerState, event: RecordsRefused | ConsumeReturned | TransactionEnded | Rewound | Tick) -> Step:
    match event:
        case RecordsRefused():
            return replace(state, rewinds=state.owned), ()
        case ConsumeReturned():
            rewinds, may_be_open = state.rewinds | event.again & state.owned, state.may_be_open or event.may_be_open
            return replace(state, rewinds=rewinds, given_back=NOTHING, may_be_open=may_be_open), ()
        case TransactionEnded():
            return replace(state, may_be_open=False), ()
        case Rewound():
            return replace(state, rewinds=state.rewinds - event.tps), ()
        case Tick():
            if state.paused_until_s is not None and event.at_s >= state.paused_until_s:
                return replace(state, paused_until_s=None), (Resume(),)
            return state, ()
        case _:
            assert_never(event)


def _when_final(state: WorkerState, event: Event) -> Step:
    """Closing the consumer still revokes; nothing is flushed any more."""
    if isinstance(event, Revoked | Lost):
        gone = event.tps & state.owned
        new = replace(state, owned=state.owned - gone, rewinds=state.rewinds - gone)
        return new, (Release(gone, isinstance(event, Lost)),) if gone else ()
    return state, ()


def _when_assigned(state: WorkerState, event: Assigned) -> Step:
    if event.has_progress:  # a batch never spans generations
        return _flush(state, FlushReason.ASSIGNED, After(own=event.tps - state.owned))
    return _change_owned(state, own=event.tps - state.owned, release=NOTHING, before=())


def _when_revoked(state: WorkerState, event: Revoked) -> Step:
    gone = event.tps & state.owned
    if event.has_progress:  # files mix TopicPartitions: all are committed together
        return _flush(state, FlushReason.REVOKED, After(release=gone))
    return _change_owned(state, own=NOTHING, release=gone, before=())


def _when_asked_to_stop(state: WorkerState, event: StopRequested) -> Step:
    if event.has_progress:
        return _flush(state, FlushReason.STOPPING, After(stop=True))
    return replace(state, phase=Phase.STOPPED), (Leave(),)


def _when_lost(state: WorkerState, event: Lost) -> Step:
    """Files mix TopicPartitions: with some lost, all of the batch is discarded and the rest rewound."""
    state = replace(state, rewinds=state.owned)
    return _change_owned(state, own=NOTHING, release=event.tps & state.owned, before=(Discard(),), is_lost=True)


def _when_discarded(state: WorkerState, event: FlushDiscarded, rules: MachineRules) -> Step:
    failures = tuple(at_s for at_s in state.failures_at_s if event.at_s - at_s < FAILURES_WINDOW_S)
    if event.counts_as_failure:
        failures = (*failures, event.at_s)
    state = replace(state, failures_at_s=failures, size_max=shrunk(state.size_max, event.size), may_be_open=True)
    if len(failures) >= FAILURES_MAX:
        return replace(state, phase=Phase.FAILED, after=After()), (Discard(), Leave())
    if state.after.stop:
        return _go_on(state, before=(Discard(),))
    state, pause = _backed_off(replace(state, rewinds=state.owned), event.at_s, rules)
    return _go_on(state, before=(Discard(), pause))


def _backed_off(state: WorkerState, at_s: float, rules: MachineRules) -> tuple[WorkerState, Pause]:
    backoff_s, discards = min(rules.backoff_max_s, BACKOFF_FIRST_S * 2**state.discards_in_row), state.discards_in_row
    return replace(state, discards_in_row=min(discards + 1, 16), paused_until_s=at_s + backoff_s), Pause(backoff_s)


def _flush(state: WorkerState, reason: FlushReason, after: After) -> Step:
    return replace(state, phase=Phase.FLUSHING, after=after), (Flush(reason),)


def _go_on(state: WorkerState, *, before: tuple[Effect, ...]) -> Step:
    """Do what waited for the flush."""
    after = state.after
    if after.stop:
        return replace(state, phase=Phase.STOPPED, after=After()), (*before, Leave())
    if not after.own and not after.release:
        return replace(state, phase=Phase.CONSUMING, after=After()), before
    return _change_owned(state, own=after.own, release=after.release, before=before)


def _change_owned(
    state: WorkerState,
    *,
    own: TopicPartitions,
    release: TopicPartitions,
    before: tuple[Effect, ...],
    is_lost: bool = False,
) -> Step:
    """Release, then own. What is given back and assigned again within one `consume` is read again from its start.

    1. `consume` takes offset 10. 2. Inside it a revoke discards offsets 5 to 9. 3. Inside it, the TopicPartition is
    assigned again, from 5. 4. `consume` returns 10, which looks like the next record after a gap.
    """
    owned = (state.owned | own) - release
    new = replace(
        state,
        phase=Phase.CONSUMING if owned else Phase.IDLE,
        generation=state.generation + 1,
        owned=owned,
        after=After(),
        rewinds=(state.rewinds | own & state.given_back) - release,
        given_back=state.given_back | release,
    )
    effects = list(before)
    if release:
        effects.append(Release(release, is_lost))
    if own:
        effects.append(Own(own))
    return new, tuple(effects)


def check(state: WorkerState) -> None:
    """Assert what holds in every state."""
    assert (state.phase is Phase.FLUSHING) or state.after == After(), f"{state.after} waits in {state.phase}"
    assert state.phase is not Phase.IDLE or not state.owned, f"idle, but owns {sorted(state.owned)}"
    assert state.phase is not Phase.CONSUMING or state.owned, "consuming, but owns nothing"
    assert state.rewinds <= state.owned, f"to be rewound, but not owned: {sorted(state.rewinds - state.owned)}"
    assert not (state.after.own & state.owned), f"assigned twice: {sorted(state.after.own & state.owned)}"
