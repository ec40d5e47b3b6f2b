"""Progress under any load that leaves a share of capacity: slower, never stuck, and one batch given up at most."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from log_partitioner.control.flush_policy import FlushLoad
from log_partitioner.errors import CommitAbortedError, UploadError
from tests.fakes.check import flush_records, references
from tests.fakes.committer import Outcome
from tests.fakes.pace import long_records, pace_commits, pace_store, paced_decode
from tests.fakes.records import P0, P1, entry, value_of
from tests.fakes.rig import Rig, holding, owning
from tests.fakes.store import PutFault
from tests.fakes.worker import CONTROL_RULES, FakeWorker, Rules
from tests.unit.runtime.test_flusher import flush


def backlog(rig: Rig, users: int) -> None:
    """Append an entry of each of so many users and work until all are committed."""
    end = rig.broker.logs[P0].end + users
    for number in range(users):
        rig.fill(P0, 1, f"user-{number}")
    rig.turn_until(lambda: rig.committed()[P0] == end, turns=3_000)


def discards(worker: FakeWorker) -> float:
    """Count the batches that came to nothing."""
    return worker.metrics.total("batches_discarded")


@pytest.mark.parametrize(
    ("users", "seconds"),
    [pytest.param(6_000, 0.019, marks=pytest.mark.slow), (1_200, 0.05), (1_200, 0.08), (1_200, 0.5), (300, 2.0)],
)
def test_store_in_proportion_to_objects_makes_flushes_smaller_and_one_is_discarded_at_most(
    users: int, seconds: float
) -> None:
    """6,000 users, a file each: in the first slice a store at 53 PUT/s was the end of all commits."""
    rig, worker = owning(tps=(P0,), rules=Rules().with_layout("file"))
    pace_store(rig, worker, seconds)
    backlog(rig, users)
    assert discards(worker) <= 1
    rig.check()


@pytest.mark.parametrize("rules", [Rules().with_verification(), Rules().with_lane()], ids=["slow", "fast"])
def test_one_record_of_many_users_whose_types_share_nothing_is_delivered(rules: Rules) -> None:
    """It cannot be halved: at 10 PUT/s an object for each user took longer than a flush may, for ever."""
    rig, worker = owning(tps=(P0,), rules=rules)
    pace_store(rig, worker, 0.1)
    users = [entry(f"u{n}", **{f"f{bit}": 1 if n >> bit & 1 else "x" for bit in range(10)}) for n in range(800)]
    rig.broker.logs[P0].append(value_of(*users), timestamp_ms=rig.clock.wall_ms())
    rig.turn_until(lambda: rig.committed()[P0] == 1, turns=300)
    assert discards(worker) == 0
    rig.check()


@pytest.mark.slow
@pytest.mark.parametrize("changes_at", [0.2, 0.4, 0.6, 0.8])
def test_store_that_gets_slower_while_a_batch_is_uploaded_costs_that_batch_alone(changes_at: float) -> None:
    """50 PUT/s, then 10: what the whole upload took says too little of what the next one will take."""
    rig, worker = owning(tps=(P0,), rules=Rules().with_layout("file"))
    pace_store(rig, worker, 0.02)
    backlog(rig, 2_000)
    before, puts = discards(worker), round(2_400 * changes_at)

    def pace(name: str) -> None:
        nonlocal puts
        if name == "put":
            puts -= 1
            rig.pass_time(0.02 if puts > 0 else 0.1)

    worker.store._point = pace
    backlog(rig, 4_000)
    assert discards(worker) == before + 1
    rig.check()


@pytest.mark.parametrize("messages_per_s", [200, pytest.param(40, marks=pytest.mark.slow), 20, 7])
def test_commit_in_proportion_to_messages_makes_flushes_smaller_and_one_is_discarded_at_most(
    messages_per_s: float,
) -> None:
    """The transaction has a budget of its own, and how far it came when that was spent is not known."""
    rig, worker = owning(tps=(P0,), rules=Rules().with_layout("file"))
    pace_commits(rig, worker, messages_per_s)
    backlog(rig, 1_400)
    assert discards(worker) <= 1
    rig.check()


@pytest.mark.parametrize("layout", ["file", "pack", "auto"])
@pytest.mark.parametrize("seconds", [0.1, 1.0])
def test_sealing_in_proportion_to_rows_makes_flushes_smaller_and_one_is_discarded_at_most(
    layout: Any, seconds: float
) -> None:
    """A worker held to a fraction of a core seals as slowly in every layout."""
    rig = Rig(tps=(P0,))
    worker = rig.owning(rules=Rules().with_layout(layout).with_seal(decode=paced_decode(rig, seconds)))
    backlog(rig, 800)
    assert discards(worker) <= 1
    rig.check()


def test_flush_that_ends_for_another_reason_than_time_teaches_nothing_of_the_step() -> None:
    """A broker that refuses, a disk that is full: neither makes the next estimate a long one."""
    _, worker = holding()
    load = FlushLoad(entries=1_000, row_bytes=10**5, partition_keys=100)
    before_s = worker.flusher.estimate_s(load)
    batch = worker.recorder.close()
    for number, code in enumerate(("TRANSACTION_ABORTABLE", "UNKNOWN_MEMBER_ID") * 5):
        worker.committer.script.append(code)
        with pytest.raises(CommitAbortedError):
            flush(worker, batch=batch._replace(spool=worker.spool.open(f"again-{number}")))
    assert worker.flusher.estimate_s(load) <= 1.5 * before_s


def test_process_that_was_stopped_learns_no_more_than_its_deadline() -> None:
    """Ten minutes of SIGSTOP inside an upload are not ten minutes of uploading."""
    _, worker = holding()
    worker.store.slow_s = 600.0
    worker.store.script.append(PutFault.SLOW)
    with pytest.raises(UploadError):
        flush(worker)
    assert worker.flusher.cost.upload <= 90 / (5e-3 * 0.05)


def test_store_that_was_down_for_long_is_used_in_full_soon_after() -> None:
    """Batches grow and estimates fall by commits: no hour of small flushes follows an hour without a store."""
    rig, worker = owning(tps=(P0,), rules=Rules().with_layout("file"))
    for number in range(1_500):
        rig.fill(P0, 1, f"user-{number}")
    put, is_down = worker.store.put, True

    def fail(*args: Any, **kwargs: Any) -> Any:
        if is_down:
            rig.pass_time(2.0)
            raise UploadError("503", object_key="")
        rig.pass_time(0.01)
        return put(*args, **kwargs)

    worker.store.put = fail  # type: ignore[method-assign]
    for _ in range(60):
        rig.pass_time(30.0)
        worker.step()
    assert discards(worker) > 20
    is_down = False
    started_s = rig.clock.now_s()
    rig.turn_until(lambda: rig.committed()[P0] == 1_500, turns=3_000)
    assert rig.clock.now_s() - started_s < 180.0
    rig.check()


# Batches that do not fit.


def test_flushes_that_leave_too_little_time_for_another_make_a_poll_first() -> None:
    """Two polls are never further apart than the poll budget; records beyond it are read again."""
    rig, worker = owning(tps=(P0, P1), rules=Rules().with_layout("file").with_bounds(entries_max=20))
    pace_store(rig, worker, 3.5)
    for number in range(60):
        rig.fill(P0, 1, f"user-{number}")
        rig.fill(P1, 1, f"user-{number}")
    polled_s: list[float] = []
    worker.consumer._point = lambda name: polled_s.append(rig.clock.now_s()) if name == "consume" else None
    rig.drain()
    assert worker.metrics.total("batches_discarded") == 0
    assert worker.metrics.total("records_refused", cause="rewound") > 0
    assert max(after - before for before, after in pairwise(polled_s)) <= CONTROL_RULES.poll_budget_s


def test_large_record_does_not_join_a_batch_that_it_would_make_too_large() -> None:
    """It is a batch of its own; the open batch is flushed without it."""
    rig = Rig(tps=(P0,))
    rig.owning(rules=Rules().with_bounds(bytes_max=100_000))
    long_records(rig, 5)
    long_records(rig, 1, text_bytes=90_000)
    long_records(rig, 1, text_bytes=200_000)
    long_records(rig, 1)
    rig.drain()
    assert [one.totals.records for one in flush_records(rig.broker)] == [5, 1, 1, 1]


@pytest.mark.parametrize("outcome", ["TRANSACTION_ABORTABLE", Outcome.UNKNOWN_COMMITTED, Outcome.UNKNOWN_OPEN])
def test_large_record_is_read_again_where_the_flush_before_it_fails(outcome: Outcome | str) -> None:
    """It is not taken for the first one of the next batch: what was discarded comes before it."""
    rig, worker = owning(tps=(P0,), rules=Rules().with_bounds(bytes_max=100_000))
    long_records(rig, 5)
    long_records(rig, 1, text_bytes=90_000)
    worker.committer.script.append(outcome)
    rig.drain()


@pytest.mark.parametrize("layout", ["file", "auto", "pack"])
def test_record_that_alone_passes_every_limit_is_committed_packed(layout: Any) -> None:
    """Batches are halved down to one record, and that one goes alone; other records are not held up."""
    rig = Rig(tps=(P0,))
    rules = Rules().with_layout(layout).with_bounds(bytes_max=1_000, entries_max=10)
    worker = rig.owning(rules=rules)
    pace_store(rig, worker, 2.0)
    rig.fill(P0, 20)
    heavy = value_of(*(entry(f"user-{number}") for number in range(500)))
    rig.broker.logs[P0].append(heavy, timestamp_ms=rig.clock.wall_ms())
    rig.broker.logs[P0].append(None, timestamp_ms=rig.clock.wall_ms())
    rig.fill(P0, 20)
    rig.drain()
    of_heavy = {one.location.object for one in references(rig.broker) if one.partition_key.user.startswith("user-")}
    assert len(of_heavy) == 1
    assert all("/pack/" in key for key in of_heavy)
    assert worker.metrics.total("batches_discarded") <= 1


def test_record_that_no_limit_names_but_no_deadline_allows_is_committed_packed() -> None:
    """Its 300 files would take ten minutes: what is learnt and the halving leave it alone in a batch."""
    rig, worker = owning(tps=(P0,), rules=Rules().with_layout("file"))
    pace_store(rig, worker, 2.0)
    heavy = value_of(*(entry(f"user-{number}") for number in range(300)))
    for _ in range(3):
        rig.broker.logs[P0].append(None, timestamp_ms=rig.clock.wall_ms())
        rig.broker.logs[P0].append(heavy, timestamp_ms=rig.clock.wall_ms())
    rig.drain()
    assert worker.metrics.total("batches_discarded") <= 2
    assert len({one.location.object for one in references(rig.broker)}) == 3


@pytest.mark.parametrize("layout", ["file", "auto", "pack"])
def test_disk_with_room_for_little_makes_small_batches_and_goes_on(layout: Any) -> None:
    """W9: rows and the objects that they become fit together, or the batch is halved until they do."""
    rig = Rig(tps=(P0,))
    worker = rig.owning(
        rules=Rules()
        .with_layout(layout)
        .with_settings(spool={"memory_bytes_max": 1})
        .with_bounds(spool_bytes_max=60_000)
    )
    worker.spool._bytes_max = 100_000
    long_records(rig, 60)
    rig.drain()
    assert worker.metrics.total("flushes", outcome="committed") >= 4
    assert worker.metrics.total("batches_discarded") <= 4
