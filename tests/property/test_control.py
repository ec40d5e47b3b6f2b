"""The control plane under random callbacks, records and outcomes, on a worker over fakes: W5, W6, W7, generations."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from log_partitioner.control.flush_policy import FlushReason
from log_partitioner.errors import TooManyFailuresError
from log_partitioner.formats.model import TopicPartition
from tests.fakes.committer import Outcome
from tests.fakes.records import P0, P1, P2
from tests.fakes.rig import Rig
from tests.fakes.store import PutFault

TPS = (P0, P1, P2)
some_tps = st.frozensets(st.sampled_from(TPS))
outcomes = st.sampled_from([*Outcome, "TRANSACTION_ABORTABLE", "ILLEGAL_GENERATION"])
rarely = st.integers(0, 15).map(lambda chance: chance == 11)


class Control(RuleBasedStateMachine):
    """Calls what the client library and the loop call, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.rig = Rig(tps=TPS)
        self.worker = self.rig.owning()
        self.control = self.worker.controller
        self.generation = self.control.state.generation
        self.has_ended = False

    @property
    def ours(self) -> frozenset[TopicPartition]:
        """The TopicPartitions that are owned."""
        return self.control.state.owned

    # Inside `consume`.

    @precondition(lambda self: not self.has_ended)
    @rule(tps=some_tps)
    def assigned(self, tps: frozenset[TopicPartition]) -> None:
        """The group gives some, owned ones among them, or none at all."""
        self.control.on_assigned(tps)
        self.worker.consumer.assigned |= tps
        if self.control.error is None:
            assert tps <= self.ours
            assert self.worker.recorder.opening is None
        self.look()

    @rule(tps=some_tps)
    def revoked(self, tps: frozenset[TopicPartition]) -> None:
        """W5: when it returns nothing is pending, and what the group asks back is released."""
        self.control.on_revoked(tps)
        self.check_released(tps)

    @rule(tps=some_tps)
    def lost(self, tps: frozenset[TopicPartition]) -> None:
        """W6: what is lost is never committed, nor anything of its batch; the rest is read again."""
        calls = self.worker.committer.calls
        self.control.on_lost(tps)
        assert self.worker.committer.calls == calls
        if self.control.state.end is None:
            assert self.control.state.to_seek == self.ours
        self.check_released(tps)

    def check_released(self, tps: frozenset[TopicPartition]) -> None:
        """Nothing of it is left, unless the process ends for it."""
        if self.control.error is None:
            assert not self.worker.recorder.has_progress
            assert not tps & self.ours
            assert not tps & self.worker.recorder.ledgers.keys()
        self.look()

    # From the loop.

    @precondition(lambda self: not self.has_ended)
    @rule()
    def returned(self) -> None:
        """`consume` returns, and before the next one what is to be sought is sought, with the next producer ready."""
        self.control.consume_returned()
        self.control.prepare()
        self.control.position()
        for tp, one in self.worker.recorder.ledgers.items():
            assert one.first_offset == (self.rig.committed()[tp] or 0)
        self.control.tick()

    @precondition(lambda self: not self.has_ended)
    @rule(tp=st.sampled_from(TPS), count=st.integers(1, 4))
    def records(self, tp: TopicPartition, count: int) -> None:
        """Records come, and are recorded as far as their TopicPartition is owned and at its place."""
        self.rig.fill(tp, count)
        self.returned()
        poll = self.worker.consumer.consume(records_max=10, timeout_s=0.1)
        refused = self.control.state.to_seek
        self.worker.loop._record_all(poll)
        assert not refused & {
            one for one, at in self.worker.recorder.ledgers.items() if at.next_offset > at.first_offset
        }

    @precondition(lambda self: not self.has_ended and self.worker.recorder.has_progress)
    @rule(reason=st.sampled_from([FlushReason.INTERVAL, FlushReason.BYTES, FlushReason.ESTIMATE]))
    def due(self, reason: FlushReason) -> None:
        """A trigger fires."""
        calls = self.worker.committer.calls
        try:
            self.control.flush_due(reason)
        except TooManyFailuresError:
            self.has_ended = True
        assert self.worker.committer.calls <= calls + 2
        assert not self.worker.recorder.has_progress

    @rule(outcome=outcomes)
    def next_commit(self, outcome: Outcome | str) -> None:
        """The next transaction becomes something else than committed."""
        self.worker.committer.script.append(outcome)

    @rule()
    def next_put(self) -> None:
        """The next object is not stored."""
        self.worker.store.script.append(PutFault.NOT_STORED)

    @rule(seconds=st.sampled_from([0.5, 3.0, 100.0]))
    def time_passes(self, seconds: float) -> None:
        """A pause ends when its time has come."""
        self.rig.pass_time(seconds)

    @precondition(lambda self: not self.has_ended)
    @rule(chance=rarely)
    def stop(self, chance: bool) -> None:  # noqa: FBT001 - drawn
        """SIGTERM: what is open is flushed, nothing afterwards."""
        if chance:
            try:
                self.control.stop()
            except TooManyFailuresError:
                self.control.fail()
            self.has_ended = True
            assert not self.worker.recorder.has_progress

    def look(self) -> None:
        """A callback's failure is raised by the loop, and ends the process."""
        error, self.control.error = self.control.error, None
        if error is not None:
            assert isinstance(error, TooManyFailuresError), error
            self.has_ended = True

    @invariant()
    def a_batch_is_of_one_generation_and_of_what_is_owned(self) -> None:
        """Ledgers are of owned TopicPartitions, what has none is to be sought; the generation never goes back."""
        state, opening = self.control.state, self.worker.recorder.opening
        assert self.worker.recorder.ledgers.keys() <= state.owned
        assert state.owned - self.worker.recorder.ledgers.keys() <= state.to_seek
        assert opening is None or (opening.generation == state.generation and state.end is None)
        assert state.generation >= self.generation
        self.generation = state.generation

    def teardown(self) -> None:
        """Whatever was committed is there once."""
        self.rig.check()


TestControl = Control.TestCase
TestControl.settings = settings(stateful_step_count=40)
