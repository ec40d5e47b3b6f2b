"""Verification mode: which flushes are judged, when, what the judge says, and what the worker does about it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from log_partitioner.boundary import Poll
from log_partitioner.control.state import Phase
from log_partitioner.errors import ReadBackError, StoreRefusedError, VerificationError
from log_partitioner.runtime.verification import HURRIED_S
from tests import canaries
from tests.fakes.records import P0, P1, entry, value_of
from tests.fakes.rig import STYLES, Rig, holding, owning
from tests.fakes.worker import FakeWorker, Rules

ON = Rules().with_verification()
REPORTING = Rules().with_verification(is_stopping=False)


def verified(rig: Rig) -> float:
    """Sum what all workers have verified; nothing differs, and nothing was left out."""
    for worker in rig.workers:
        assert not worker.metrics.total("verification_differences")
        assert not worker.metrics.total("unverified_entries")
    return sum(worker.metrics.total("verified_entries") for worker in rig.workers)


@pytest.mark.parametrize("style", STYLES)
def test_every_entry_is_verified_once_across_a_rebalance(style: str) -> None:
    """Flushed by a timer, by a revoke, and by another member: each is in exactly one flush."""
    rig, _ = holding(style, rules=ON)
    rig.worker("b", rules=ON)
    rig.turn_until(lambda: all(len(worker.controller.state.owned) == 1 for worker in rig.workers))
    for tp in rig.broker.logs:
        rig.fill(tp, 2)
    rig.drain()
    assert verified(rig) == 10


def test_dead_letters_and_ids_are_verified() -> None:
    """Entries without a user, records that are none, a record of nothing, unique ids."""
    rig = Rig()
    rig.owning(rules=ON)
    for value in (value_of(entry(id="x"), entry(None), entry(id=7)), b"{", b"[]", None):
        rig.broker.logs[P0].append(value, timestamp_ms=rig.clock.wall_ms())
    rig.drain()
    assert verified(rig) == 4


def test_flush_of_a_revoke_is_judged_when_the_callback_has_returned() -> None:
    """Others wait for the callback."""
    rig, _ = holding(rules=ON)
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
    """A difference in the last flush does so, too: the process does not end as if all were well."""
    rig, worker = holding(rules=ON)
    worker.store.read = lambda *_args, **_named: b"other bytes"  # type: ignore[method-assign]
    if is_found_at_the_end:
        worker.stop.request()
    else:
        rig.pass_time(31.0)
    with capture_logs() as lines, pytest.raises(VerificationError, match=r"6 missing.* nothing more is committed"):
        worker.step()
    (line,) = [line for line in lines if line["event"] == "flush_differs"]
    assert line["log_level"] == "error"
    assert line["differences"]["object_altered"] >= 1
    assert "missing source-0/0/0" in line["first"]
    assert any(place.startswith("object_altered ") for place in line["first"])
    assert canaries.found_in(str(lines)) is None
    committed = rig.committed()
    rig.fill(P0, 1)
    worker.close()
    assert rig.committed() == committed
    assert worker.controller.state.phase is Phase.FAILED


def test_text_of_a_row_that_is_not_ours_is_not_logged() -> None:
    """An object with other bytes may name any topic."""
    rig, worker = holding(rules=REPORTING)
    read = worker.store.read
    worker.store.read = lambda *args, **named: (read(*args, **named) or b"").replace(b"source", b"ann.ba")  # type: ignore[method-assign]
    with capture_logs() as lines:
        rig.drain()
    (line,) = [line for line in lines if line["event"] == "flush_differs"]
    assert "unexpected ?/0/0" in line["first"]
    assert "ann.ba" not in str(line)


def test_difference_is_reported_and_the_worker_goes_on() -> None:
    """By default."""
    rig, worker = holding(rules=REPORTING)
    worker.store.read = lambda *_args, **_named: None  # type: ignore[method-assign]
    rig.drain()
    assert worker.metrics.total("verification_differences", kind="missing") == 6
    assert worker.metrics.total("verification_differences", kind="object_missing") >= 1
    verification = worker.verification
    assert "6 missing" in verification.story()


def test_store_that_lets_nobody_read_stops_the_worker() -> None:
    """Else it would verify nothing, and seem to."""
    rig, worker = holding(rules=REPORTING)
    worker.store.may_read = False
    rig.pass_time(31.0)
    with pytest.raises(StoreRefusedError):
        worker.step()


def slowed(rig: Rig, worker: FakeWorker, seconds: float) -> None:
    """Let each reading of an object take so long."""
    read = worker.store.read

    def slowly(*args: Any, **named: Any) -> bytes | None:
        rig.clock.advance(seconds)
        return read(*args, **named)

    worker.store.read = slowly  # type: ignore[method-assign]


def refuse(*_args: Any, **_named: Any) -> None:
    """Stand for a store that does not answer."""
    raise ReadBackError("500 InternalError")


def fail(*_args: Any, **_named: Any) -> None:
    """Stand for a bug of the judge."""
    raise ZeroDivisionError


BROKEN: dict[str, Callable[[Rig], object]] = {
    "500 InternalError": lambda rig: setattr(rig.workers[0].store, "read", refuse),
    "source-0: cannot be read from 0": lambda rig: rig.broker.logs[P0].broken.append(range(1)),
    "ZeroDivisionError": lambda rig: setattr(rig.workers[0].store, "read", fail),
}


@pytest.mark.parametrize("message", BROKEN)
def test_entries_of_which_nobody_can_tell_are_left_unverified(message: str) -> None:
    """Store, source or judge does not answer: entries may be there, so it is no difference, and the worker goes on."""
    rig, worker = holding(rules=ON)
    BROKEN[message](rig)
    with capture_logs() as lines:
        rig.drain()
        worker.step()
    assert worker.metrics.total("unverified_entries") == 6
    assert not worker.metrics.total("verification_differences")
    assert [line["message"] for line in lines if line["event"] == "entries_not_verified"] == [message]


def test_judgement_is_cut_short_once_the_worker_is_asked_to_stop() -> None:
    """The grace period is for the last flush."""
    rig, worker = owning(tps=(P0, P1), rules=ON.with_layout("file"))
    for user in range(6):
        rig.fill(P0, 1, user=f"{canaries.USER}-{user}")
    worker.step()
    slowed(rig, worker, HURRIED_S / 2)
    worker.stop.request()
    worker.step()
    assert worker.controller.state.phase is Phase.STOPPED
    assert worker.metrics.total("verified_entries") == 0
    assert worker.metrics.total("unverified_entries") == 6
    assert worker.metrics.total("verification_seconds") == HURRIED_S


@pytest.mark.parametrize("reason", ["interval", "revoked"])
def test_judgement_holds_up_a_revoke_no_longer_than_a_flush_may(reason: str) -> None:
    """A revoke may wait for it: it takes no longer than the last flush of a revoke may, but for one answer."""
    rig, worker = holding(rules=ON.with_layout("file"))
    for user in range(6):
        rig.fill(P0, 1, user=f"{canaries.USER}-{user}")
    worker.step()
    slowed(rig, worker, 60.0)
    if reason == "revoked":
        rig.worker("b", rules=ON)
    else:
        rig.pass_time(30.0)
    flush, consume, returned_s, gaps = worker.controller.rules, worker.consumer.consume, rig.clock.now_s(), []

    def consume_in_time(**named: Any) -> Poll:
        nonlocal returned_s
        gaps.append(rig.clock.now_s() - returned_s)
        poll = consume(**named)
        returned_s = rig.clock.now_s()
        return poll

    worker.consumer.consume = consume_in_time  # type: ignore[method-assign]
    rig.turn_until(lambda: worker.metrics.total("flushes", reason=reason) > 0)
    rig.turn_until(lambda: max(gaps) > 0)
    assert worker.metrics.total("unverified_entries") > 0
    assert 60 <= max(gaps) < flush.revoke_budget_s + 60


@pytest.mark.parametrize(("rules", "judged"), [(Rules().with_verification(share=0.2), [1, 6, 11]), (Rules(), [])])
def test_share_of_flushes_is_judged_first_of_all_the_first(rules: Rules, judged: list[int]) -> None:
    """Each fifth flush is judged; no object of the others is read. Verification is off by default."""
    rig, worker = owning(rules=rules)
    reread = []
    read = worker.store.read
    worker.store.read = lambda *args, **named: (reread.append(worker.flusher._seq), read(*args, **named))[1]  # type: ignore[method-assign]
    for _ in range(11):
        rig.fill(P0, 1)
        rig.drain()
    assert reread == judged
    assert (worker.metrics.total("verified_entries"), worker.metrics.total("unverified_entries")) == (len(judged), 0)
