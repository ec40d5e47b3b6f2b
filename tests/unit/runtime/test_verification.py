"""Verification mode's bookkeeping: what is forgotten, what is due, and what the worker does about a difference."""

from __future__ import annotations

from typing import Any

import pytest
from structlog.testing import capture_logs

from service.boundary import Poll
from service.control.deadline import Deadline
from service.control.remembered import ENTRY_BYTES
from service.control.state import Phase
from service.errors import ReadBackError, StoreRefusedError, VerificationError
from service.formats.model import TopicPartition
from service.runtime.tap import TappedConsumer
from service.runtime.verification import HURRIED_S, Sent, Verification, VerifyPorts
from tests import canaries
from tests.fakes.clock import FakeClock
from tests.fakes.committer import Outcome
from tests.fakes.metrics import RecordingMetrics
from tests.fakes.records import P0, P1, entry, record, value_of
from tests.fakes.rig import STYLES, Rig
from tests.fakes.store import Bucket, FakeObjectStore, PutFault
from tests.fakes.worker import FakeWorker, Rules, identifier, verifying

ON = Rules().with_verification()
REPORTING = Rules().with_verification(is_stopping=False)


def holding(rig: Rig, rules: Rules = ON, *, records: int = 3) -> FakeWorker:
    """Give a worker with an open batch of every TopicPartition."""
    worker = rig.owning(rules=rules)
    for tp in rig.broker.logs:
        rig.fill(tp, records)
    worker.step()
    return worker


def verified(rig: Rig) -> float:
    """Sum what all workers have verified; nothing differs, and nothing was left out."""
    for worker in rig.workers:
        assert not worker.metrics.total("verification_differences")
        assert not worker.metrics.total("unverified_entries")
    return sum(worker.metrics.total("verified_entries") for worker in rig.workers)


class Bench:
    """The mode alone, over a store that has nothing."""

    def __init__(self, *, bytes_max: int = 10**6, share: float = 1.0) -> None:
        self.clock = FakeClock()
        self.metrics = RecordingMetrics()
        self.is_hurried = False
        self.store = FakeObjectStore(Bucket(), self.clock)
        self.verification = Verification(
            verifying(share=share, bytes_max=bytes_max, is_stopping=False),
            VerifyPorts(identifier(), self.store),
            clock=self.clock,
            metrics=self.metrics,
            is_hurried=lambda: self.is_hurried,
        )
        self.verification.sought(P0, 0)

    def consume(self, *offsets: int, tp: TopicPartition = P0) -> None:
        """Hand over records of one entry."""
        self.verification.consumed(Poll.of([record(tp, offset, entry(n=offset)) for offset in offsets]))

    def lost(self, next_offset: int) -> float:
        """Commit nothing but an offset of P0, and count what that loses."""
        before = self.metrics.total("verification_differences", kind="lost")
        self.verification.committed(Sent({P0: next_offset}, [], []))
        self.verification.look(Deadline.after(60.0, self.clock.now_s))
        return self.metrics.total("verification_differences", kind="lost") - before


@pytest.mark.parametrize("style", STYLES)
def test_every_entry_is_verified_once_across_a_rebalance(style: str) -> None:
    """Flushed by a timer, by a revoke, and by another member: each is in exactly one flush."""
    rig = Rig(style)
    holding(rig)
    rig.worker("b", rules=ON)
    rig.turn_until(lambda: all(len(worker.controller.state.owned) == 1 for worker in rig.workers))
    for tp in rig.broker.logs:
        rig.fill(tp, 2)
    rig.drain()
    assert verified(rig) == 10


@pytest.mark.parametrize(
    "fault", ["ILLEGAL_GENERATION", "_TIMED_OUT", Outcome.UNKNOWN_COMMITTED, Outcome.UNKNOWN_OPEN, Outcome.NOT_ABORTED]
)
def test_discarded_batch_is_verified_when_it_was_read_again_or_found_committed(fault: Any) -> None:
    """What is sought is forgotten, but where the offset tells that the transaction was committed after all."""
    rig = Rig()
    worker = holding(rig)
    worker.committer.script.append(fault)
    rig.drain()
    worker.step()
    assert verified(rig) == 6


def test_batch_that_was_too_large_is_verified_in_smaller_ones() -> None:
    """A shrunk batch covers a part of what was consumed; the rest is still ahead of it."""
    rig = Rig()
    worker = holding(rig, records=8)
    worker.store.script.append(PutFault.NOT_STORED)
    rig.drain()
    assert worker.metrics.total("flushes", reason="shrunk", outcome="committed")
    assert verified(rig) == 16


def test_dead_letters_and_ids_are_verified() -> None:
    """Entries without a user, records that are none, a record of nothing, unique ids."""
    rig = Rig()
    rig.owning(rules=ON)
    for value in (value_of(entry(id="x"), entry(None), entry(id=7)), b"{", b"[]", None):
        rig.broker.logs[P0].append(value, timestamp_ms=rig.clock.wall_ms())
    rig.drain()
    assert verified(rig) == 4


def test_flush_of_a_revoke_is_compared_when_the_callback_has_returned() -> None:
    """Others wait for the callback."""
    rig = Rig()
    holding(rig)
    inside: list[bool] = []
    worker = rig.workers[0]
    read = worker.store.read
    worker.store.read = lambda *args, **named: (inside.append(worker.consumer._in_callback), read(*args, **named))[1]  # type: ignore[method-assign]
    rig.worker("b", rules=ON)
    rig.turn_until(lambda: bool(inside))
    assert worker.metrics.total("flushes", reason="revoked") == 1
    assert not any(inside)


@pytest.mark.parametrize("is_found_at_the_end", [False, True])
def test_difference_stops_the_worker_before_the_next_commit(*, is_found_at_the_end: bool) -> None:
    """Also that of the last flush: the process does not end as if all were well."""
    rig = Rig()
    worker = holding(rig)
    worker.store.read = lambda *_args, **_named: b"other bytes"  # type: ignore[method-assign]
    if is_found_at_the_end:
        worker.stop.request()
    else:
        rig.pass_time(31.0)
    with capture_logs() as lines, pytest.raises(VerificationError, match=r"6 lost.* nothing more is committed"):
        worker.step()
    (line,) = [line for line in lines if line["event"] == "flush_differs"]
    assert line["log_level"] == "error"
    assert line["differences"]["object_altered"] >= 1
    assert "lost source-0/0/0" in line["first"]
    assert canaries.found_in(str(lines)) is None
    committed = rig.committed()
    rig.fill(P0, 1)
    worker.close()
    assert rig.committed() == committed
    assert worker.controller.state.phase is Phase.FAILED


def test_difference_is_reported_and_the_worker_goes_on() -> None:
    """By default."""
    rig = Rig()
    worker = holding(rig, REPORTING)
    worker.store.read = lambda *_args, **_named: None  # type: ignore[method-assign]
    rig.drain()
    assert worker.metrics.total("verification_differences", kind="lost") == 6
    assert worker.metrics.total("verification_differences", kind="object_missing") >= 1
    verification = worker.verification
    assert verification is not None
    assert "6 lost" in verification.story()


def test_store_that_lets_nobody_read_stops_the_worker() -> None:
    """Else it would verify nothing, and seem to."""
    rig = Rig()
    worker = holding(rig, REPORTING)
    worker.store.may_read = False
    rig.pass_time(31.0)
    with pytest.raises(StoreRefusedError):
        worker.step()


def test_store_that_does_not_answer_leaves_entries_unverified() -> None:
    """They may be there: that is no difference, and it is said."""
    rig = Rig()
    worker = holding(rig)

    def refuse(*_args: Any, **_named: Any) -> None:
        raise ReadBackError("500 InternalError")

    worker.store.read = refuse  # type: ignore[method-assign,assignment]
    with capture_logs() as lines:
        rig.drain()
    assert worker.metrics.total("unverified_entries", cause="time") == 6
    assert not worker.metrics.total("verification_differences")
    assert {"object_not_read_back", "entries_not_verified"} <= {line["event"] for line in lines}


def test_comparison_is_cut_short_once_the_worker_is_asked_to_stop() -> None:
    """The grace period is for the last flush."""
    rig = Rig(tps=(P0, P1))
    worker = rig.owning(rules=ON.with_layout("file"))
    for user in range(6):
        rig.fill(P0, 1, user=f"{canaries.USER}-{user}")
    worker.step()
    read = worker.store.read

    def slowly(*args: Any, **named: Any) -> bytes | None:
        rig.clock.advance(HURRIED_S / 2)
        return read(*args, **named)

    worker.store.read = slowly  # type: ignore[method-assign]
    worker.stop.request()
    worker.step()
    assert worker.controller.state.phase is Phase.STOPPED
    assert worker.metrics.total("verified_entries") == 3
    assert worker.metrics.total("unverified_entries", cause="time") == 3


def test_what_finds_no_room_is_counted_and_not_judged() -> None:
    """Memory is bounded, and what that costs is said."""
    rig = Rig()
    worker = holding(rig, Rules().with_verification(bytes_max=2 * ENTRY_BYTES))
    rig.drain()
    assert worker.metrics.total("verified_entries") == 2
    assert worker.metrics.total("unverified_entries", cause="memory") == 4
    assert not worker.metrics.total("verification_differences")


def test_share_is_verified_with_as_few_objects_as_hold_it() -> None:
    """Others are not even read."""
    rig = Rig()
    worker = rig.owning(rules=Rules().with_verification(share=0.2).with_layout("file"))
    for number in range(25):
        rig.fill(P0, 1, user=f"{canaries.USER}-{number}")
    keys = []
    read = worker.store.read
    worker.store.read = lambda place, deadline: (keys.append(place.object), read(place, deadline=deadline))[1]  # type: ignore[method-assign]
    rig.drain()
    assert verified(rig) == len(keys) == 5


def test_nothing_stands_in_between_where_it_is_off() -> None:
    """The consumer is the adapter itself; nothing is remembered."""
    rig = Rig()
    worker = rig.owning()
    assert worker.verification is None
    assert worker.loop._consumer is worker.consumer
    on = Rig().owning(rules=ON)
    assert isinstance(on.loop._consumer, TappedConsumer)


def test_record_that_is_handed_over_twice_is_one() -> None:
    """Also where it comes again after it was committed."""
    bench = Bench()
    bench.consume(0, 1, 2)
    bench.consume(1, 2, 3)
    assert bench.lost(3) == 3
    bench.consume(0, 2, 3)
    assert bench.lost(4) == 1
    assert bench.lost(4) == 0


def test_records_behind_the_committed_offset_stay_ahead() -> None:
    """They are due with a later flush."""
    bench = Bench()
    bench.consume(0, 1, 5)
    assert bench.lost(2) == 2
    assert bench.lost(5) == 0
    assert bench.lost(6) == 1


def test_records_of_what_was_given_back_are_forgotten() -> None:
    """Whoever owns it next reads them again; what comes late is nobody's."""
    bench = Bench()
    bench.consume(0, 1)
    bench.verification.given_back([P0])
    bench.consume(2)
    bench.verification.sought(P0, 1)
    assert bench.lost(3) == 0


def test_records_are_forgotten_where_they_are_sought_or_fetched_again() -> None:
    """They come again, or there are none any more."""
    bench = Bench()
    bench.consume(0, 1, 2)
    bench.verification.fetched_again(P0, 2)
    assert bench.lost(3) == 2
    bench.consume(3, 4)
    bench.verification.sought(P0, 3)
    assert bench.lost(5) == 0


def test_what_may_be_committed_is_not_forgotten_where_it_is_fetched_again() -> None:
    """Its outcome is not known yet: found by seed 59456, as rows of which verification mode knew nothing."""
    bench = Bench()
    bench.consume(0, 1, 2)
    bench.verification.unknown(Sent({P0: 2}, [], []))
    bench.verification.fetched_again(P0, 1)
    bench.verification.sought(P0, 2)
    bench.verification.look(Deadline.after(60.0, bench.clock.now_s))
    # What was sent has no rows here, so that what is remembered of it is lost.
    assert bench.metrics.total("verification_differences", kind="lost") == 2


@pytest.mark.parametrize("offset", [1, 7])
def test_unknown_outcome_that_is_never_learnt_is_counted(offset: int) -> None:
    """Given back before it was known, or found where others have left it: it may be committed, unverified."""
    bench = Bench()
    bench.verification.sought(P1, 0)
    bench.consume(0, 1)
    bench.verification.unknown(Sent({P0: 2, P1: 1}, [], []))
    if offset == 1:
        bench.verification.given_back([P0])
        bench.verification.sought(P1, offset)
        bench.verification.look(Deadline.after(60.0, bench.clock.now_s))
    else:
        bench.verification.sought(P0, offset)
    assert bench.metrics.total("unverified_entries", cause="outcome") == 2
    assert not bench.metrics.total("verification_differences")
