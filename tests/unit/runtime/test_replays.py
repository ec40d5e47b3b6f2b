"""Replays are discarded and nothing else is, by models of republishers that die and of a worker that rolls back.

Each case is that of a rule that loses: the highest place by root alone, by links without index or name, or without the
conditions that a republisher has to keep (DESIGN 3.8).
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import NamedTuple

import pytest

from log_partitioner.batch.batch import Opening
from log_partitioner.boundary import Membership
from log_partitioner.errors import RegistryError
from log_partitioner.formats import offset_metadata
from log_partitioner.formats.model import CommittedOffset, SourceRecord, TopicPartition
from log_partitioner.partitioning import chain
from log_partitioner.runtime.recorder import Recorder
from tests.fakes.log import FakeLog
from tests.fakes.records import entry, value_of
from tests.fakes.republisher import Republisher, output_of
from tests.fakes.spool import FakeSpool
from tests.fakes.worker import settings_of

SEEDS = range(12)
ROOTS = 40
DEATHS = 0.06  # of a republisher, before each output
RAW, MID, OUT = ([TopicPartition(topic, number) for number in range(3)] for topic in ("raw", "mid", "source"))


class Outcome(NamedTuple):
    """How many outputs are in no row, and how many surplus rows there are."""

    lost: int
    doubled: int


class Worker:
    """A recorder whose batches are committed or given up, with what the broker keeps of it."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.committed: dict[TopicPartition, CommittedOffset] = {}
        self.delivered: Counter[str] = Counter()
        self.discarded = 0
        self.settings = settings_of()
        self.settings = self.settings.model_copy(
            update={"input": self.settings.input.model_copy(update={"discard_replays": True})}
        )

    def take(self, log: FakeLog) -> None:
        """Read a log to its end, in batches; some are given up, and read again by another process."""
        while (start := self.committed.get(log.tp, CommittedOffset(0))).offset < log.end:
            recorder = Recorder(self.settings, FakeSpool())
            recorder.start(log.tp, start)
            recorder.open(Opening("batch", 1, Membership(1, "member", None), 0.0, 0))
            records = log.read(start.offset, self._random.randint(1, 25))
            for record in records:
                recorder.record(record)
            batch = recorder.close()
            if self._random.random() < 0.3:
                continue
            offset = batch.next_offsets()[log.tp]
            metadata = offset_metadata.encode(None, ways=batch.ledgers[log.tp].next_ways)
            assert len(metadata) < 4096
            self.committed[log.tp] = offset._replace(metadata=metadata)
            self.discarded += batch.discarded_replays
            by_offset = {one.offset: one for one in records}
            self.delivered.update(output_of(by_offset[offset]) for offset in batch.rows.offsets)


def run(seed: int, republishers: list[Republisher], logs: list[FakeLog]) -> Outcome:
    """Let them publish, die, and publish again, in any order; then let a worker take all of it."""
    random, worker = Random(seed), Worker(Random(seed + 1000))
    busy = list(republishers)
    while busy:
        one = random.choice(busy)
        if random.random() < DEATHS:
            one.die()
        if not one.step():
            busy.remove(one)
    for log in logs:
        worker.take(log)
    wanted = {output_of(record) for log in logs for record in log.records}
    doubled = sum(worker.delivered.values()) - len(worker.delivered)
    assert worker.delivered.total() + worker.discarded == sum(len(log.records) for log in logs)
    return Outcome(len(wanted - worker.delivered.keys()), doubled)


def roots(partitions: int = 1) -> list[FakeLog]:
    """Give logs of roots."""
    logs = [FakeLog(tp) for tp in RAW[:partitions]]
    for log in logs:
        for number in range(ROOTS):
            log.append(value_of(entry(n=number)))
    return logs


def two_of_one_root(seed: int) -> Outcome:
    """Let two republishers read one root: between their ways there is no order."""
    (raw,), out = roots(), [FakeLog(tp) for tp in OUT[:2]]
    return run(seed, [Republisher(by, raw, out, Random(seed)) for by in ("a/1", "bb/1")], out)


def two_hops(seed: int) -> Outcome:
    """Let a second republisher distribute by another key: one partition between is faster than another."""
    (raw,), mid, out = roots(), [FakeLog(tp) for tp in MID], [FakeLog(tp) for tp in OUT[:2]]
    first, random = Republisher("first/1", raw, mid, Random(seed)), Random(seed)
    while first.step():
        if random.random() < DEATHS:
            first.die()
    seconds = [Republisher("second/1", log, out, Random(seed)) for log in mid]
    return run(seed, seconds, out)


@pytest.mark.parametrize("case", [two_of_one_root, two_hops])
def test_replays_along_ways_without_order_between_them_are_told_apart(case: object) -> None:
    """The root alone tells nothing: it would lose half of the outputs here."""
    assert callable(case)
    assert [case(seed) for seed in SEEDS] == [Outcome(0, 0)] * len(SEEDS)


def test_links_without_index_or_name_discard_nothing() -> None:
    """All of it is at least once."""
    found = []
    for seed in SEEDS:
        (raw,), out = roots(), [FakeLog(tp) for tp in OUT[:2]]
        found.append(run(seed, [Republisher("a/1", raw, out, Random(seed), names=False)], out))
    assert {one.lost for one in found} == {0}
    assert all(one.doubled for one in found)


def test_republisher_out_of_order_loses_by_its_own_doing() -> None:
    """It breaks the condition; that each is named is the audit's test."""
    lost = 0
    for seed in SEEDS:
        (raw,), out = roots(), [FakeLog(tp) for tp in OUT[:2]]
        lost += run(seed, [Republisher("a/1", raw, out, Random(seed), swaps=True)], out).lost
    assert lost > 0


def test_output_topic_with_more_partitions_doubles_and_loses_nothing() -> None:
    """Replays that come to another TopicPartition meet what knows nothing of them."""
    doubled = 0
    for seed in SEEDS:
        (raw,), out = roots(), [FakeLog(tp) for tp in OUT[:2]]
        one = Republisher("a/1", raw, out, Random(seed), commits_every=8)
        for _ in range(12):
            one.step()
        one.outputs.append(third := FakeLog(OUT[2]))
        one.die()
        outcome = run(seed, [one], [*out, third])
        assert outcome.lost == 0
        doubled += outcome.doubled
    assert doubled > 0


def test_more_ways_than_there_is_room_for_double_and_lose_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The least recently used way is dropped first."""
    monkeypatch.setattr(chain, "WAYS_BYTES_MAX", 60)
    doubled = 0
    for seed in SEEDS:
        raw, out = roots(3), [FakeLog(tp) for tp in OUT[:1]]
        outcome = run(seed, [Republisher("a/1", log, out, Random(seed)) for log in raw], out)
        assert outcome.lost == 0
        doubled += outcome.doubled
    assert doubled > 0


def chained(offset: int, root: int, index: int, by: str = "n/1") -> SourceRecord:
    """Make a record of one entry with a chain of one link."""
    log = FakeLog(RAW[0])
    for _ in range(root):
        log.append_hole()
    header = f'[["raw",0,{root},{index},"{by}"]]'.encode()
    return SourceRecord(
        OUT[0], offset, None, None, value_of(entry(output=f"{root}.{index}")), (("source-topic-chain", header),)
    )


def recorder_at(start: CommittedOffset) -> Recorder:
    """Give a recorder that discards replays, at an offset, with a batch open."""
    recorder = Recorder(Worker(Random(0)).settings, FakeSpool())
    recorder.start(OUT[0], start)
    recorder.open(Opening("batch", 1, Membership(1, "member", None), 0.0, 0))
    return recorder


def test_ways_move_with_the_offset_and_go_back_with_it() -> None:
    """The worked example of DESIGN 3.8: a worker dies before it has committed c; its replays are discarded once."""
    recorder = recorder_at(CommittedOffset(40))
    recorder.record(chained(40, 17, 0))
    recorder.record(chained(41, 17, 1))
    batch = recorder.close()
    recorder.committed(batch, now_ms=0)
    (way,) = batch.ledgers[OUT[0]].next_ways or {}
    assert batch.ledgers[OUT[0]].next_ways == {way: (17, 1)}

    recorder.open(Opening("batch", 1, Membership(1, "member", None), 0.0, 0))
    recorder.record(chained(42, 18, 0))
    recorder.discard(None)
    assert recorder.ledgers[OUT[0]].next_ways == {way: (17, 1)}

    metadata = offset_metadata.encode("id", ways=batch.ledgers[OUT[0]].next_ways)
    successor = recorder_at(CommittedOffset(42, None, metadata))
    for offset, root, index in ((42, 18, 0), (43, 17, 0), (44, 17, 1), (45, 18, 0)):
        successor.record(chained(offset, root, index))
    batch = successor.close()
    ledger = batch.ledgers[OUT[0]]
    assert (list(batch.rows.offsets), ledger.next_offset, ledger.records, ledger.entries) == ([42], 46, 4, 1)
    assert (ledger.first_ways, ledger.next_ways, ledger.discarded_replays) == ({way: (17, 1)}, {way: (18, 0)}, 3)
    assert ledger.replays[way][:] == (43, (17, 0), (18, 0))


def test_record_that_waits_for_a_schema_is_no_replay_of_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """(1) Its schema cannot be had now, and nothing of it is recorded; (2) it comes again, and is recorded."""
    recorder = recorder_at(CommittedOffset(0))
    decode, answers = recorder.rules["app"].decoder.decode, [RegistryError("down"), None]

    def decode_later(*given: object) -> object:
        if (error := answers.pop(0)) is not None:
            raise error
        return decode(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(recorder.rules["app"].decoder, "decode", decode_later)
    with pytest.raises(RegistryError):
        recorder.record(chained(0, 17, 0))
    recorder.record(chained(0, 17, 0))
    batch = recorder.close()
    assert (list(batch.rows.offsets), batch.discarded_replays) == ([0], 0)


def test_record_with_another_name_begins_anew() -> None:
    """A republisher that was rewound on purpose publishes as normaliser/2, and what it publishes is recorded."""
    recorder = recorder_at(CommittedOffset(0))
    for offset, by in enumerate(("n/1", "n/1", "n/2", "n/2")):
        recorder.record(chained(offset, 17, 0, by))
    assert list(recorder.close().rows.offsets) == [0, 2]


def test_worker_that_does_not_discard_writes_every_replay_and_commits_no_ways() -> None:
    """The default."""
    recorder = Recorder(settings_of(), FakeSpool())
    recorder.start(OUT[0], CommittedOffset(0, None, offset_metadata.encode("id", ways={"w": (99,)})))
    recorder.open(Opening("batch", 1, Membership(1, "member", None), 0.0, 0))
    recorder.record(chained(0, 17, 0))
    recorder.record(chained(1, 17, 0))
    batch = recorder.close()
    assert (list(batch.rows.offsets), batch.ledgers[OUT[0]].next_ways) == ([0, 1], None)
