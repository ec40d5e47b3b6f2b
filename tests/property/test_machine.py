"""The control plane under random events, with a small shell that performs its effects: W5, W6, W7 and generations."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from service.control import events, machine
from service.control.flush_policy import FlushReason, Size
from service.control.machine import SUCCESSORS, Phase, WorkerState
from service.formats.model import TopicPartition
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
    """Feeds events as the loop does, performs effects on a model of progress, batch and pauses."""

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
        self.pending: events.Event | None = None  # the event that a flush holds up
        self.paused = False
        self.has_left = False
        self.failures: list[float] = []
        self.discards_in_row = 0
        self.to_rewind: Tps = frozenset()  # what was handed over of these was not recorded, or was discarded
        self.given_back: Tps = frozenset()  # since `consume` was called, which may hand over older records of these
        self.may_be_open = False

    # Events.

    @precondition(lambda self: self.state.phase is not Phase.FLUSHING)
    @rule(tps=some_tps)
    def assigned(self, tps: Tps) -> None:
        """The group gives us some, owned ones among them, or none at all."""
        self.group |= tps
        self.feed(events.Assigned(tps, self.has_progress, self.now_s))

    @precondition(lambda self: self.state.phase is not Phase.FLUSHING)
    @rule(tps=some_tps)
    def revoked(self, tps: Tps) -> None:
        """The group asks some back, also such as are not ours."""
        self.group -= tps
        self.feed(events.Revoked(tps, self.has_progress, self.now_s))
        self.check_given_back(tps)

    @precondition(lambda self: self.state.phase is not Phase.FLUSHING)
    @rule(tps=some_tps)
    def lost(self, tps: Tps) -> None:
        """W6: what is lost is never committed: nothing is flushed, the batch is gone, the rest is read again."""
        self.group -= tps
        effects = self.feed(events.Lost(tps, self.now_s))
        assert not any(isinstance(effect, events.Flush) for effect in effects)
        assert self.state.phase is not Phase.FLUSHING
        assert not self.has_progress
        self.check_given_back(tps)

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
            self.feed(events.FlushDue(FlushReason.SHRUNK, self.now_s))

    @precondition(lambda self: self.state.phase is not Phase.FLUSHING)
    @rule(again=some_tps, may_be_open=st.booleans())
    def consume_returned(self, again: Tps, may_be_open: bool) -> None:  # noqa: FBT001 - drawn
        """No callback comes any more; some are not proven to be ours yet."""
        self.feed(events.ConsumeReturned(again, may_be_open, self.now_s))
        if self.state.phase not in FINAL:
            self.to_rewind |= again & self.owned
            self.given_back = frozenset()
            self.may_be_open |= may_be_open

    @precondition(lambda self: self.state.phase is Phase.CONSUMING)
    @rule()
    def records_refused(self) -> None:
        """There is no time for a batch: what was handed over is read again."""
        self.feed(events.RecordsRefused(self.now_s))
        self.to_rewind |= self.owned

    @precondition(lambda self: self.state.phase is Phase.CONSUMING)
    @rule(unproven=some_tps)
    def rewound(self, unproven: Tps) -> None:
        """The transaction is ended, and all but what is not proven is at its committed offset."""
        self.feed(events.TransactionEnded(self.now_s))
        self.feed(events.Rewound(self.state.rewinds - unproven, self.now_s))
        self.to_rewind &= unproven
        self.may_be_open = False

    @precondition(lambda self: self.state.phase is Phase.CONSUMING)
    @rule()
    def recording_failed(self) -> None:
        """The disk refused: what was handed over is read again after a pause, and no batch becomes smaller."""
        effects = self.feed(events.RecordingFailed(self.now_s))
        backoff_s = min(BACKOFF_MAX_S, 2.0**self.discards_in_row)
        assert effects == (events.Discard(), events.Pause(backoff_s))
        assert not self.has_progress
        self.discards_in_row += 1

    @precondition(lambda self: self.state.phase is Phase.CONSUMING and self.has_progress)
    @rule(reason=st.sampled_from([FlushReason.INTERVAL, FlushReason.BYTES, FlushReason.ESTIMATE]))
    def due(self, reason: FlushReason) -> None:
        """A trigger fires."""
        self.feed(events.FlushDue(reason, self.now_s))

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
        self.outcome(events.FlushCommitted(self.now_s))

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
        self.may_be_open = True
        effects = self.outcome(events.FlushDiscarded(counts, self.size, self.now_s))
        assert effects[0] == events.Discard()
        assert not self.has_progress
        if len(self.failures) >= machine.FAILURES_MAX:
            assert self.state.phase is Phase.FAILED
        elif stops:
            assert self.state.phase is Phase.STOPPED
        else:
            assert kept <= self.state.rewinds
            backoff_s = min(BACKOFF_MAX_S, 2.0**self.discards_in_row)
            assert events.Pause(backoff_s) in effects
            assert self.state.paused_until_s == self.now_s + backoff_s
            self.discards_in_row += 1

    @precondition(lambda self: self.state.phase is not Phase.FLUSHING)
    @rule(chance=rarely)
    def stop_requested(self, chance: int) -> None:
        """SIGTERM: what is open is flushed, then the worker leaves."""
        if chance != RARE:
            return
        self.feed(events.StopRequested(self.has_progress, self.now_s))
        assert self.state.phase in (Phase.FLUSHING, *FINAL)

    @rule(chance=rarely)
    def failed(self, chance: int) -> None:
        """Something went wrong for good, in the middle of a flush too."""
        if chance == RARE:
            self.feed(events.Failed(self.now_s))
            assert self.state.phase in FINAL
            assert not self.has_progress

    @precondition(lambda self: self.state.phase is not Phase.FLUSHING)
    @rule(seconds=st.sampled_from([0.5, 3.0, 200.0]))
    def tick(self, seconds: float) -> None:
        """Time goes by; a pause ends when its time has come."""
        self.now_s += seconds
        until_s = self.state.paused_until_s
        self.feed(events.Tick(self.now_s))
        if until_s is not None and self.state.phase not in FINAL:
            assert self.paused == (self.now_s < until_s)

    # The shell.

    @property
    def has_progress(self) -> bool:
        """Whether a batch is open."""
        return self.batch_generation is not None

    def feed(self, event: events.Event) -> tuple[events.Effect, ...]:
        """Advance by one event and perform the effects in order."""
        before = self.state
        self.state, effects = machine.handle(before, event, rules=RULES)
        assert self.state.phase in SUCCESSORS[before.phase]
        if before.phase in FINAL:
            assert self.state.phase is before.phase
            assert all(isinstance(effect, events.Release) for effect in effects)
        else:
            grown = self.state.generation - before.generation
            assert grown in (0, 1)
            assert grown == 1 or self.state.owned == before.owned, "the assignment changed within a generation"
        for effect in effects:
            self.perform(effect, event)
        if self.state.phase is Phase.FLUSHING:
            self.pending = event
        return effects

    def outcome(self, event: events.Event) -> tuple[events.Effect, ...]:
        """Report the outcome of a flush; what it held up has happened then (W5)."""
        held_up, self.pending, self.flushed = self.pending, None, None
        effects = self.feed(event)
        if isinstance(held_up, events.Revoked):
            self.check_given_back(held_up.tps)
        if isinstance(held_up, events.Assigned) and self.state.phase not in FINAL:
            assert held_up.tps <= self.owned
        if isinstance(held_up, events.StopRequested):
            assert self.state.phase in FINAL
            assert self.has_left
        return effects

    def perform(self, effect: events.Effect, event: events.Event) -> None:
        """Do to the model what the controller does to the world."""
        match effect:
            case events.Flush(reason):
                assert self.has_progress, "an empty batch is flushed"
                assert self.flushed is None, "two flushes at once"
                assert not isinstance(event, events.Lost)
                self.flushed = reason
            case events.Discard():
                self.batch_generation = None
                self.flushed = None
                self.to_rewind |= self.owned
            case events.Own(tps):
                assert not self.has_progress, "a batch spans generations"
                assert not tps & self.owned, "owned twice"
                assert tps <= self.group, "W6: owns what is somebody else's"
                self.owned |= tps
                self.to_rewind |= tps & self.given_back
            case events.Release(tps):
                assert not self.has_progress, "W5: released with a batch open"
                assert tps <= self.owned
                self.owned -= tps
                self.to_rewind -= tps
                self.given_back |= tps
            case events.Pause(seconds):
                assert 0 < seconds <= BACKOFF_MAX_S
                self.paused = True
            case events.Resume():
                self.paused = False
            case events.Leave():
                self.has_left = True

    def check_given_back(self, tps: Tps) -> None:
        """W5: when the callback is over nothing is pending, and what was revoked is released."""
        if self.state.phase is not Phase.FLUSHING:
            assert not self.has_progress
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
            assert not self.has_progress
        else:
            assert (self.state.rewinds, self.state.may_be_open) == (self.to_rewind, self.may_be_open)


TestMachine = WorkerOfOneThread.TestCase
TestMachine.settings = settings(times_as_many(3), stateful_step_count=50)
