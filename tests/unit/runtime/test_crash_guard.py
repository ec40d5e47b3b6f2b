"""A record that ends the process: found by what was in hand, put away undecoded, and nothing else with it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import count

import pytest

from log_partitioner import native
from log_partitioner.batch.fast_lane import TakenRun
from log_partitioner.boundary import Poll
from log_partitioner.errors import SourceError
from log_partitioner.formats.dead_letter import parse_headers
from log_partitioner.formats.model import CommittedOffset, Headers
from log_partitioner.input.decode import RecordContent
from log_partitioner.runtime.crash_guard import CrashHistory
from tests.fakes.journal import FakeJournal
from tests.fakes.records import P0, P1, poll_of
from tests.fakes.rig import Rig
from tests.fakes.worker import DEAD_LETTERS, FakeWorker, Rules

DEADLY = 7  # the offset of the record that ends the process
NUMBERS = count(1)
ENDS = 4  # with many in hand, with few, and twice with it alone


def nothing() -> None:
    """Stand for a flush."""


class Killed(BaseException):
    """The process has ended: no code of ours runs any more."""


def deadly_worker(
    rig: Rig,
    journal: FakeJournal,
    *,
    offset: int | None = DEADLY,
    consume_records_max: int = 100,
    end: type[BaseException] = Killed,
    rules: Rules | None = None,
) -> FakeWorker:
    """Start a worker that ends when it decodes the record at this offset of P0."""
    worker = rig.worker("a", journal=journal, rules=rules)
    worker.loop.records_max = consume_records_max
    values = [record.value for record in rig.broker.logs[P0].records]
    return ending_when(worker, lambda value: offset is not None and value == values[offset], end)


def ending_when(
    worker: FakeWorker, is_time: Callable[[bytes | None], bool], end: type[BaseException] = Killed
) -> FakeWorker:
    """Have a worker end when it decodes such a value."""
    decoder = worker.recorder.rules["app"].decoder
    decode = decoder.decode

    def decode_or_end(value: bytes | None, _headers: Headers) -> RecordContent:
        if is_time(value):
            raise end
        return decode(value)

    decoder.decode = decode_or_end  # type: ignore[method-assign]
    return worker


def worker_of_little_memory(
    rig: Rig, journal: FakeJournal, *, entries_max: int = 40, end: type[BaseException] = Killed
) -> FakeWorker:
    """Start a worker that ends when its batch holds so many entries, whatever comes then; five records at a time."""
    worker = rig.worker(f"a{next(NUMBERS)}", journal=journal)  # its objects have names of their own
    worker.loop.records_max = 5
    return ending_when(worker, lambda _: worker.recorder.load().entries >= entries_max, end)


def run_until_it_ends(rig: Rig, worker: FakeWorker, *, turns: int = 300) -> bool:
    """Turn until the process ends, or everything is committed; tells whether it has ended."""
    try:
        for _ in range(turns):
            rig.tick()
            worker.step()
            rig.pass_time(1.0)
            if all(rig.committed()[tp] == log.end for tp, log in rig.broker.logs.items()):
                return False
    except (Killed, MemoryError, AssertionError, SourceError):
        rig.workers.remove(worker)
        rig.pass_time(60.0)  # the group notices
        return True
    pytest.fail("neither ended nor done")


def lives(
    rig: Rig,
    journal: FakeJournal,
    *,
    most: int = 30,
    start: Callable[[Rig, FakeJournal], FakeWorker] = deadly_worker,
) -> tuple[int, FakeWorker]:
    """Start one process after the other; gives how many have ended, and the one that has not."""
    for ended in range(most):
        worker = start(rig, journal)
        if not run_until_it_ends(rig, worker):
            return ended, worker
    raise AssertionError(f"{most} processes have ended")


def filled(records: int = 20) -> Rig:
    """Give records in two TopicPartitions."""
    rig = Rig()
    rig.fill(P0, records)
    rig.fill(P1, records)
    return rig


def test_record_that_ends_the_process_is_put_away_and_nothing_else() -> None:
    """One end with many in hand, one with few, two with this one alone; then the loop goes on by itself."""
    rig, journal = filled(), FakeJournal()
    ended, worker = lives(rig, journal)
    assert ended == ENDS
    rig.check()
    (letter,) = rig.broker.messages(DEAD_LETTERS)
    says = parse_headers(letter.headers)
    assert (says.reason, says.topic, says.partition, says.offset) == ("fatal", *P0, DEADLY)
    assert letter.value == rig.broker.logs[P0].records[DEADLY].value
    assert worker.metrics.gauges["crash_isolation", ()] == 0


def test_record_that_was_put_away_is_not_decoded_by_verification_mode() -> None:
    """It might end the worker there, too: that its dead letter says `fatal` is taken as said, as by the audit."""
    rig, journal = filled(), FakeJournal()
    _, worker = lives(rig, journal, start=partial(deadly_worker, rules=Rules().with_verification()))
    assert worker.metrics.total("verified_entries") > 0


@pytest.mark.parametrize("end", [Killed, MemoryError])
@pytest.mark.parametrize("entries_max", [40, 3, 1])
def test_batch_that_ends_the_process_puts_none_of_its_records_away(entries_max: int, end: type[BaseException]) -> None:
    """When memory ends, the record in hand may be the same each time, but it is not the cause."""
    rig, journal = filled(60), FakeJournal()
    lives(rig, journal, most=90, start=partial(worker_of_little_memory, entries_max=entries_max, end=end))
    rig.check()
    assert rig.broker.messages(DEAD_LETTERS) == []


OF_NO_RECORD: dict[str, tuple[str, str, type[BaseException]]] = {
    "a batch is begun": ("recorder", "open", Killed),
    "rows go to the disk": ("recorder", "spill_if_large", Killed),
    "a flush between two records": ("flusher", "flush", Killed),
    "an assertion of ours fails": ("recorder", "record", AssertionError),
    "the broker is silent": ("recorder", "record", SourceError),
}


@pytest.mark.parametrize("why", OF_NO_RECORD)
def test_end_that_no_record_causes_puts_nothing_away(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Again and again, and also if one record is alone in its batch: no good record becomes a dead letter."""
    part, method, error = OF_NO_RECORD[why]

    def fail(*_args: object, **_kwargs: object) -> None:
        raise error

    rig, journal = filled(), FakeJournal()
    for _ in range(3 * ENDS):
        worker = rig.worker("a", journal=journal)
        worker.loop.bounds = worker.loop.bounds._replace(entries_max=3)
        monkeypatch.setattr(getattr(worker, part), method, fail)
        assert run_until_it_ends(rig, worker)
        assert CrashHistory.read(journal.line).after_end().ends == 0 or method in ("open", "spill_if_large")
    assert lives(rig, journal, start=partial(deadly_worker, offset=None))[0] == 0
    rig.check()
    assert rig.broker.messages(DEAD_LETTERS) == []


@pytest.mark.skipif(not native.IS_INSTALLED, reason="make native")
def test_record_that_ends_only_what_takes_many_at_once_is_delivered() -> None:
    """Taken alone it is decoded by Python."""
    rig, journal = filled(), FakeJournal()
    deadly = rig.broker.logs[P0].records[DEADLY].value

    def start(rig: Rig, journal: FakeJournal) -> FakeWorker:
        worker = rig.worker("a", journal=journal, rules=Rules().with_lane())
        recorder = worker.recorder
        take = recorder.take

        def take_or_end(poll: Poll, first: int, stop: int, **bounds: int) -> TakenRun:
            if deadly in poll.values[first:stop]:
                raise Killed
            return take(poll, first, stop, **bounds)

        recorder.take = take_or_end  # type: ignore[method-assign]
        return worker

    ended, _ = lives(rig, journal, start=start)
    assert ended == 2
    rig.check()
    assert rig.broker.messages(DEAD_LETTERS) == []


def test_record_put_away_of_another_topic_partition_slows_nobody_and_is_forgotten_once_it_has_moved_away() -> None:
    """The TopicPartition's owner has its own journal; that offset may hold another record later."""
    rig, journal = filled(), FakeJournal()
    for _ in range(ENDS):
        assert run_until_it_ends(rig, deadly_worker(rig, journal))
    worker = rig.worker("a", journal=journal)
    guard, recorder = worker.loop._crash_guard, worker.recorder
    for tp in (P0, P1):
        recorder.start(tp, CommittedOffset(0))
    ahead, others = rig.broker.logs[P0].records, rig.broker.logs[P1].records
    assert [guard.is_alone for _ in guard.parts(poll_of(ahead[DEADLY + 1 :]), nothing)] == [False]
    assert [guard.is_alone for _ in guard.parts(poll_of(others), nothing)] == [False]
    assert [guard.is_alone for _ in guard.parts(poll_of(ahead), nothing)] == [False, True, False]

    recorder.disown(P0)
    list(guard.parts(poll_of(others), nothing))
    assert journal.line == b""


def test_record_that_is_put_away_in_a_batch_that_is_discarded_is_put_away_again() -> None:
    """A worker does not decode it before its offset is committed."""
    rig, journal = filled(), FakeJournal()
    for _ in range(ENDS):
        assert run_until_it_ends(rig, deadly_worker(rig, journal))
    worker = deadly_worker(rig, journal)
    worker.committer.script.append("TRANSACTION_ABORTABLE")
    assert not run_until_it_ends(rig, worker)
    rig.check()
    assert len(rig.broker.messages(DEAD_LETTERS)) == 1


@pytest.mark.parametrize("consume_records_max", [100, 1])
def test_ends_at_different_records_put_nothing_away(consume_records_max: int) -> None:
    """Machines fail, too: only the same record, alone, again and again; with little traffic each is alone in hand."""
    rig, journal = filled(), FakeJournal()
    for offset in (11, 10, 9, 10, 12, 11, 13):
        worker = deadly_worker(rig, journal, offset=offset, consume_records_max=consume_records_max)
        assert run_until_it_ends(rig, worker)
    assert not run_until_it_ends(rig, deadly_worker(rig, journal, offset=None))
    rig.check()
    assert rig.broker.messages(DEAD_LETTERS) == []


def test_end_with_nothing_in_hand_begins_to_count_anew() -> None:
    """As after a SIGTERM, or an end in the middle of a flush."""
    rig, journal = filled(), FakeJournal()
    for _ in range(ENDS - 1):
        assert run_until_it_ends(rig, deadly_worker(rig, journal))
    worker = rig.worker("a", journal=journal)
    rig.workers.remove(worker)  # ended before its first record
    rig.pass_time(60.0)
    ended, _ = lives(rig, journal)
    assert ended == ENDS


@pytest.mark.parametrize(("ends", "parts"), [(0, [500]), (1, [200, 200, 100]), (2, [1] * 200 + [300])])
def test_fewer_records_are_taken_at_once_from_one_end_to_the_next(ends: int, parts: list[int]) -> None:
    """As many as usual, then few of the suspects, then one, and the others as usual; the metric says so."""
    rig, journal = filled(500), FakeJournal()
    for _ in range(ends):
        assert run_until_it_ends(rig, deadly_worker(rig, journal, consume_records_max=500))
    worker = rig.worker("a", journal=journal)
    worker.recorder.start(P0, CommittedOffset(0))
    assert [
        stop - first for first, stop in worker.loop._crash_guard.parts(poll_of(rig.broker.logs[P0].records), nothing)
    ] == parts
    assert worker.metrics.gauges.get(("crash_isolation", ()), 0) == (ends > 0)
