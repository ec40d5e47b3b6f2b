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

from service.core.batch import Size, grown, shrunk
from service.core.flush_policy import FlushReason
from service.core.model import TopicPartition

FAILURES_MAX = 3
FAILURES_WINDOW_S = 300.0
BACKOFF_FIRST_S = 1.0


class MachineRules(NamedTuple):
    """The longest pause in seconds, and the size that a batch may always have."""

    backoff_max_s: float
    size_max: Size


TopicPartitions = frozenset[TopicPartition]
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

    `size_max` is set after a batch was discarded: half of its size, doubled again by each commit.
    """

    phase: Phase = Phase.IDLE
    generation: int = 0
    owned: TopicPartitions = NOTHING
    after: After = After()
    paused_until_s: float | None = None
    discards_in_row: int = 0
    failures_at_s: tuple[float, ...] = ()
    size_max: Size | None = None


# Events. `at_s` is monotonic time; `covers` tells whether the open batch covers any offset.


@dataclass(frozen=True, slots=True)
class Assigned:
    """The group gave us these, beside what we own."""

    tps: TopicPartitions
    covers: bool
    at_s: float


@dataclass(frozen=True, slots=True)
class Revoked:
    """The group asks these back and waits for us."""

    tps: TopicPartitions
    covers: bool
    at_s: float


@dataclass(frozen=True, slots=True)
class Lost:
    """These are somebody else's already."""

    tps: TopicPartitions
    at_s: float


@dataclass(frozen=True, slots=True)
class FlushDue:
    """A trigger fired on a batch that covers something."""

    reason: FlushReason
    at_s: float


@dataclass(frozen=True, slots=True)
class StopRequested:
    """SIGTERM or SIGINT."""

    covers: bool
    at_s: float


@dataclass(frozen=True, slots=True)
class FlushCommitted:
    """The transaction is committed."""

    at_s: float


@dataclass(frozen=True, slots=True)
class FlushDiscarded:
    """The batch was not committed, or nobody knows; `counts_as_failure` for fatal and unknown outcomes."""

    counts_as_failure: bool
    size: Size
    at_s: float


@dataclass(frozen=True, slots=True)
class RecordingFailed:
    """A record that was handed over could not be recorded: the disk refused."""

    at_s: float


@dataclass(frozen=True, slots=True)
class Failed:
    """The worker cannot go on; nothing is committed any more."""

    at_s: float


@dataclass(frozen=True, slots=True)
class Tick:
    """Time went by."""

    at_s: float


Event = (
    Assigned
    | Revoked
    | Lost
    | FlushDue
    | StopRequested
    | FlushCommitted
    | FlushDiscarded
    | RecordingFailed
    | Failed
    | Tick
)


# Effects, in the order in which the shell performs them.


@dataclass(frozen=True, slots=True)
class Flush:
    """Flush the open batch and report FlushCommitted or FlushDiscarded."""

    reason: FlushReason


@dataclass(frozen=True, slots=True)
class Discard:
    """Forget the open batch and its files."""


@dataclass(frozen=True, slots=True)
class Own:
    """Begin to own these at their committed offsets."""

    tps: TopicPartitions


@dataclass(frozen=True, slots=True)
class Release:
    """Stop owning these."""

    tps: TopicPartitions


@dataclass(frozen=True, slots=True)
class Rewind:
    """Seek these to their committed offsets."""

    tps: TopicPartitions


@dataclass(frozen=True, slots=True)
class Pause:
    """Take no records for a while, but go on polling."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Resume:
    """Take records again."""


@dataclass(frozen=True, slots=True)
class Leave:
    """Leave the group and end the loop."""


Effect = Flush | Discard | Own | Release | Rewind | Pause | Resume | Leave
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
    outcome = isinstance(event, FlushCommitted | FlushDiscarded)
    if outcome != (state.phase is Phase.FLUSHING):
        raise InvalidTransitionError(f"{event} in {state.phase}")
    return _dispatch(state, event, rules)


def _dispatch(
    state: WorkerState,
    event: Assigned
    | Revoked
    | Lost
    | FlushDue
    | StopRequested
    | FlushCommitted
    | FlushDiscarded
    | RecordingFailed
    | Tick,
    rules: MachineRules,
) -> Step:
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
            if event.covers:
                return _flush(state, FlushReason.STOPPING, After(stop=True))
            return replace(state, phase=Phase.STOPPED), (Leave(),)
        case FlushCommitted():
            size_max = grown(state.size_max, rules.size_max)
            return _go_on(replace(state, discards_in_row=0, size_max=size_max), rewind=NOTHING, before=())
        case FlushDiscarded():
            return _when_discarded(state, event, rules)
        case RecordingFailed():
            return _when_recording_failed(state, event, rules)
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
        return replace(state, owned=state.owned - gone), (Release(gone),) if gone else ()
    return state, ()


def _when_assigned(state: WorkerState, event: Assigned) -> Step:
    if event.covers:  # a batch never spans generations
        return _flush(state, FlushReason.ASSIGNED, After(own=event.tps - state.owned))
    return _change_owned(state, own=event.tps - state.owned, release=NOTHING, before=())


def _when_revoked(state: WorkerState, event: Revoked) -> Step:
    gone = event.tps & state.owned
    if event.covers:  # files mix TopicPartitions: all are committed together
        return _flush(state, FlushReason.REVOKED, After(release=gone))
    return _change_owned(state, own=NOTHING, release=gone, before=())


def _when_lost(state: WorkerState, event: Lost) -> Step:
    """Files mix TopicPartitions: with some lost, all of the batch is discarded and the rest rewound."""
    gone = event.tps & state.owned
    kept = state.owned - gone
    new, effects = _change_owned(state, own=NOTHING, release=gone, before=(Discard(),))
    return new, (*effects, Rewind(kept)) if kept else effects


def _when_discarded(state: WorkerState, event: FlushDiscarded, rules: MachineRules) -> Step:
    failures = tuple(at_s for at_s in state.failures_at_s if event.at_s - at_s < FAILURES_WINDOW_S)
    if event.counts_as_failure:
        failures = (*failures, event.at_s)
    state = replace(state, failures_at_s=failures, size_max=shrunk(state.size_max, event.size))
    if len(failures) >= FAILURES_MAX:
        return replace(state, phase=Phase.FAILED, after=After()), (Discard(), Leave())
    if state.after.stop:
        return _go_on(state, rewind=NOTHING, before=(Discard(),))
    rewind = state.owned - state.after.release
    state, pause = _backed_off(state, event.at_s, rules)
    return _go_on(state, rewind=rewind, before=(Discard(), pause))


def _when_recording_failed(state: WorkerState, event: RecordingFailed, rules: MachineRules) -> Step:
    """Nothing is being flushed: what was handed over is read again after a pause."""
    state, pause = _backed_off(state, event.at_s, rules)
    return state, (Discard(), pause, Rewind(state.owned))


def _backed_off(state: WorkerState, at_s: float, rules: MachineRules) -> tuple[WorkerState, Pause]:
    backoff_s, discards = min(rules.backoff_max_s, BACKOFF_FIRST_S * 2**state.discards_in_row), state.discards_in_row
    return replace(state, discards_in_row=min(discards + 1, 16), paused_until_s=at_s + backoff_s), Pause(backoff_s)


def _flush(state: WorkerState, reason: FlushReason, after: After) -> Step:
    return replace(state, phase=Phase.FLUSHING, after=after), (Flush(reason),)


def _go_on(state: WorkerState, *, rewind: TopicPartitions, before: tuple[Effect, ...]) -> Step:
    """Do what waited for the flush."""
    after = state.after
    if after.stop:
        return replace(state, phase=Phase.STOPPED, after=After()), (*before, Leave())
    if rewind:
        before = (*before, Rewind(rewind))
    if not after.own and not after.release:
        return replace(state, phase=Phase.CONSUMING, after=After()), before
    return _change_owned(state, own=after.own, release=after.release, before=before)


def _change_owned(
    state: WorkerState, *, own: TopicPartitions, release: TopicPartitions, before: tuple[Effect, ...]
) -> Step:
    owned = (state.owned | own) - release
    new = replace(
        state,
        phase=Phase.CONSUMING if owned else Phase.IDLE,
        generation=state.generation + 1,
        owned=owned,
        after=After(),
    )
    effects = list(before)
    if release:
        effects.append(Release(release))
    if own:
        effects.append(Own(own))
    return new, tuple(effects)


def check(state: WorkerState) -> None:
    """Assert what holds in every state."""
    assert (state.phase is Phase.FLUSHING) or state.after == After(), f"{state.after} waits in {state.phase}"
    assert state.phase is not Phase.IDLE or not state.owned, f"idle, but owns {sorted(state.owned)}"
    assert state.phase is not Phase.CONSUMING or state.owned, "consuming, but owns nothing"
    assert not (state.after.own & state.owned), f"assigned twice: {sorted(state.after.own & state.owned)}"
