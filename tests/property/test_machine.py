"""The control plane under random events, with a small shell that performs its effects: W5, W6, W7 and generations."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from service.core import machine
from service.core.batch import Size
from service.core.flush_policy import FlushReason
from service.core.machine import SUCCESSORS, Phase, WorkerState
from service.core.model import TopicPartition
from tests.strategies import times_as_many

TPS = [TopicPartition("app", number) for number in range(4)]
BACKOFF_MAX_S = 8.0
FULL = Size(1000, 64)
RULES = machine.MachineRules(BACKOFF_MAX_S, FULL)
FINAL = (Phase.STOPPED, Phase.FAILED)
RARE = 11
rarely = st.integers(0, 15)  # final states are quickly reached otherwise, and nothing happens in them
some_tps = st.frozensets(st.sampled_from(TPS))
Tps = frozenset[TopicPartition]


class WorkerOfOneThread(RuleBasedStateMachine):
    """Feeds events as the loop does, performs effects on a model of ledgers, batch and pauses."""

    def __init__(self) -> None:
        super().__init__()
        self.state = WorkerState()
        self.now_s = 0.0
        self.group: Tps = frozenset()  # what the group says is ours
        self.owned: Tps = frozenset()  # what effects made ours
        self.batch_generation: int | None = None
        self.size = Size(0, 0)
        self.size_max: Size | None = None
        self.flushed: FlushReason | None = None
        self.pending: machine.Event | None = None  # the event that a flush holds up
        self.paused = False
        self.has_left = False
        self.failures: list[float] = []
        self.discards_in_row = 0

    # Events.

    @precondition(lambda self: self.state.phase is not Phase.FLUSHING)
    @rule(tps=some_tps)
    def assigned(self, tps: Tps) -> None:
        """The group gives us some, owned ones among them, or none at all."""
        self.group |= tps
        self.feed(machine.Assigned(tps, self.covers, self.now_s))

    @precondition(lambda self: self.state.phase is not Phase.FLUSHING)
    @rule(tps=some_tps)
    def revoked(self, tps: Tps) -> None:
        """The group asks some back, also such as are not ours."""
        self.group -= tps
        self.feed(machine.Revoked(tps, self.covers, self.now_s))
        self.check_given_back(tps)

    @precondition(lambda self: self.state.phase is not Phase.FLUSHING)
    @rule(tps=some_tps)
    def lost(self, tps: Tps) -> None:
        """W6: what is lost is never committed: nothing is flushed, the batch is gone, the rest is read again."""
        self.group -= tps
        effects = self.feed(machine.Lost(tps, self.now_s))
        assert not any(isinstance(effect, machine.Flush) for effect in effects)
        assert self.state.phase is not Phase.FLUSHING
        assert not self.covers
        self.check_given_back(tps)
        if self.state.phase not in FINAL and self.owned:
            assert machine.Rewind(self.owned) in effects

    @precondition(lambda self: self.state.phase is Phase.CONSUMING and not self.paused)
    @rule(size=st.builds(Size, st.integers(0, 400), st.integers(0, 30)))
    def record(self, size: Size) -> None:
        """A record is taken: a batch opens in the generation of now, or goes on in its own; a full one is flushed."""
        if self.batch_generation is None:
            self.batch_generation = self.state.generation
            self.size = Size(0, 0)
        assert self.batch_generation == self.state.generation, "a batch spans generations"
        self.size = Size(*map(sum, zip(self.size, size, strict=True)))
        bound = self.state.size_max or FULL
        if any(held >= most for held, most in zip(self.size, bound, strict=True)):
            self.feed(machine.FlushDue(FlushReason.SHRUNK, self.now_s))

    @precondition(lambda self: self.state.phase is Phase.CONSUMING)
    @rule()
    def recording_failed(self) -> None:
        """The disk refused: what was handed over is read again after a pause, and no batch becomes smaller."""
        effects = self.feed(machine.RecordingFailed(self.now_s))
        backoff_s = min(BACKOFF_MAX_S, 2.0**self.discards_in_row)
        assert effects == (machine.Discard(), machine.Pause(backoff_s), machine.Rewind(self.owned))
        assert not self.covers
        self.discards_in_row += 1

    @precondition(lambda self: self.state.phase is Phase.CONSUMING and self.covers)
    @rule(reason=st.sampled_from([FlushReason.INTERVAL, FlushReason.BYTES, FlushReason.ESTIMATE]))
    def due(self, reason: FlushReason) -> None:
        """A trigger fires."""
        self.feed(machine.FlushDue(reason, self.now_s))

    @precondition(lambda self: self.state.phase is Phase.FLUSHING)
    @rule()
    def committed(self) -> None:
        """The transaction is committed: the batch is done before anything else happens."""
        assert self.batch_generation == self.state.generation, "W1: a batch is committed in another generation"
        self.batch_generation = None
        self.discards_in_row = 0
        before = self.size_max
        if before is not None:
            grown = Size(before.source_bytes * 2, before.entries * 2)
            self.size_max = grown if grown.source_bytes < FULL.source_bytes and grown.entries < FULL.entries else None
        self.outcome(machine.FlushCommitted(self.now_s))

    @precondition(lambda self: self.state.phase is Phase.FLUSHING)
    @rule(counts=st.booleans())
    def discarded(self, counts: bool) -> None:  # noqa: FBT001 - drawn
        """W6, W7: a flush that failed leaves nothing of its batch; what stays ours is read again after a pause."""
        kept = self.state.owned - self.state.after.release
        stops = self.state.after.stop
        self.failures = [at_s for at_s in self.failures if self.now_s - at_s < machine.FAILURES_WINDOW_S]
        self.failures += [self.now_s] if counts else []
        bound = self.size_max or self.size
        self.size_max = Size(*(max(1, min(pair) // 2) for pair in zip(bound, self.size, strict=True)))
        effects = self.outcome(machine.FlushDiscarded(counts, self.size, self.now_s))
        assert effects[0] == machine.Discard()
        assert not self.covers
        if len(self.failures) >= machine.FAILURES_MAX:
            assert self.state.phase is Phase.FAILED
        elif stops:
            assert self.state.phase is Phase.STOPPED
        else:
            assert (machine.Rewind(kept) in effects) == bool(kept)
            backoff_s = min(BACKOFF_MAX_S, 2.0**self.discards_in_row)
            assert machine.Pause(backoff_s) in effects
            assert self.state.paused_until_s == self.now_s + backoff_s
            self.discards_in_row += 1

    @precondition(lambda self: self.state.phase is not Phase.FLUSHING)
    @rule(chance=rarely)
    def stop_requested(self, chance: int) -> None:
        """SIGTERM: what is open is flushed, then the worker leaves."""
        if chance != RARE:
            return
        self.feed(machine.StopRequested(self.covers, self.now_s))
        assert self.state.phase in (Phase.FLUSHING, *FINAL)

    @rule(chance=rarely)
    def failed(self, chance: int) -> None:
        """Something went wrong for good, in the middle of a flush too."""
        if chance == RARE:
            self.feed(machine.Failed(self.now_s))
            assert self.state.phase in FINAL
            assert not self.covers

    @precondition(lambda self: self.state.phase is not Phase.FLUSHING)
    @rule(seconds=st.sampled_from([0.5, 3.0, 200.0]))
    def tick(self, seconds: float) -> None:
        """Time goes by; a pause ends when its time has come."""
        self.now_s += seconds
        until_s = self.state.paused_until_s
        self.feed(machine.Tick(self.now_s))
        if until_s is not None and self.state.phase not in FINAL:
            assert self.paused == (self.now_s < until_s)

    # The shell.

    @property
    def covers(self) -> bool:
        """Whether a batch is open."""
        return self.batch_generation is not None

    def feed(self, event: machine.Event) -> tuple[machine.Effect, ...]:
        """Advance by one event and perform the effects in order."""
        before = self.state
        self.state, effects = machine.handle(before, event, rules=RULES)
        assert self.state.phase in SUCCESSORS[before.phase]
        if before.phase in FINAL:
            assert self.state.phase is before.phase
            assert all(isinstance(effect, machine.Release) for effect in effects)
        else:
            grown = self.state.generation - before.generation
            assert grown in (0, 1)
            assert grown == 1 or self.state.owned == before.owned, "the assignment changed within a generation"
        for effect in effects:
            self.perform(effect, event)
        if self.state.phase is Phase.FLUSHING:
            self.pending = event
        return effects

    def outcome(self, event: machine.Event) -> tuple[machine.Effect, ...]:
        """Report the outcome of a flush; what it held up has happened then (W5)."""
        held_up, self.pending, self.flushed = self.pending, None, None
        effects = self.feed(event)
        if isinstance(held_up, machine.Revoked):
            self.check_given_back(held_up.tps)
        if isinstance(held_up, machine.Assigned) and self.state.phase not in FINAL:
            assert held_up.tps <= self.owned
        if isinstance(held_up, machine.StopRequested):
            assert self.state.phase in FINAL
            assert self.has_left
        return effects

    def perform(self, effect: machine.Effect, event: machine.Event) -> None:
        """Do to the model what the controller does to the world."""
        match effect:
            case machine.Flush(reason):
                assert self.covers, "an empty batch is flushed"
                assert self.flushed is None, "two flushes at once"
                assert not isinstance(event, machine.Lost)
                self.flushed = reason
            case machine.Discard():
                self.batch_generation = None
                self.flushed = None
            case machine.Own(tps):
                assert not self.covers, "a batch spans generations"
                assert not tps & self.owned, "owned twice"
                assert tps <= self.group, "W6: owns what is somebody else's"
                self.owned |= tps
            case machine.Release(tps):
                assert not self.covers, "W5: released with a batch open"
                assert tps <= self.owned
                self.owned -= tps
            case machine.Rewind(tps):
                assert not self.covers
                assert tps <= self.state.owned, "rewinds what is not ours"
            case machine.Pause(seconds):
                assert 0 < seconds <= BACKOFF_MAX_S
                self.paused = True
            case machine.Resume():
                self.paused = False
            case machine.Leave():
                self.has_left = True

    def check_given_back(self, tps: Tps) -> None:
        """W5: when the callback is over nothing is pending, and what was revoked is released."""
        if self.state.phase is not Phase.FLUSHING:
            assert not self.covers
            if self.state.phase is not Phase.FAILED:
                assert not tps & self.owned

    @invariant()
    def state_and_model_agree(self) -> None:
        """What the machine thinks we own is what effects made of it, and nothing is open in a final state."""
        assert self.state.owned == self.owned
        machine.check(self.state)
        assert self.state.size_max == self.size_max
        assert (self.flushed is not None) == (self.state.phase is Phase.FLUSHING)
        if self.state.phase in FINAL:
            assert not self.covers


TestMachine = WorkerOfOneThread.TestCase
TestMachine.settings = settings(times_as_many(3), stateful_step_count=50)
