"""The recorder: every entry of a record is in a row or in a dead letter, and then its offset is covered."""

from __future__ import annotations

import io
from typing import Any

import fastavro
import pytest

from log_partitioner.batch.batch import ClosedBatch, Opening
from log_partitioner.batch.messages import rows_in
from log_partitioner.batch.progress import Progress
from log_partitioner.batch.seal import SealedObject, seal
from log_partitioner.boundary import Membership
from log_partitioner.config.settings import SchemaBounds, Settings, SpoolSettings
from log_partitioner.errors import SpoolError
from log_partitioner.formats.dead_letter import Reason
from log_partitioner.formats.model import CommittedOffset, SourceRecord, TopicPartition
from log_partitioner.runtime.recorder import Recorder
from tests.fakes.records import P0, P1, entry, record
from tests.fakes.spool import FakeSpool
from tests.fakes.worker import SEAL_RULES, settings_of

MEMBER = Membership(1, "member", None)


class Bench:
    """A recorder that owns P0 and P1 from offset 0, with a batch open."""

    def __init__(self, bounds: SchemaBounds = Settings.schema_bounds, memory_bytes_max: int = 2**30) -> None:
        self.spool = FakeSpool()
        spool = SpoolSettings(memory_bytes_max=memory_bytes_max)  # type: ignore[call-arg]
        settings = settings_of().model_copy(update={"schema_bounds": bounds, "spool": spool})
        self.bounds = bounds
        self.recorder = Recorder(settings, self.spool)
        for tp in (P0, P1):
            self.recorder.place(tp, CommittedOffset(0))
        self._opened = 0
        self.open()

    def open(self) -> None:
        """Open a batch."""
        self._opened += 1
        self.recorder.open(Opening(f"batch-{self._opened}", 1, MEMBER, 0.0, 0))

    def record(self, *records: SourceRecord) -> None:
        """Record some records."""
        for one in records:
            self.recorder.record(one)
            self.recorder.make_room()

    def progress(self, tp: TopicPartition = P0) -> Progress:
        """Give a progress of what is owned."""
        return self.recorder.positions[tp]

    def objects(self, batch: ClosedBatch) -> list[tuple[SealedObject, list[dict[str, Any]]]]:
        """Seal a batch, an object for each PartitionKey, and read what was written."""
        rules = SEAL_RULES._replace(bounds=self.bounds, layout="file")
        steps = seal(batch.rows, batch.spool, batch.spans, rules, batch_id=batch.batch_id, is_one_record=False)
        sealed = [step.finished for step in steps if step.finished is not None]
        return [(one, [*fastavro.reader(io.BytesIO(batch.spool.load(one.file)))]) for one in sealed]

    def check(self, batch: ClosedBatch) -> None:
        """Check W3 by what is in the objects of a batch; another batch of these rows is sealed afterwards."""
        sealed = [one for one, _ in self.objects(batch)]
        batch.check(rows_in(sealed))
        batch.spool.delete()

    def places(self, batch: ClosedBatch) -> list[tuple[int, int, int]]:
        """Give (TopicPartition, offset, index) of all rows of a batch."""
        metas = [row["_meta"] for _, rows in self.objects(batch) for row in rows]
        return [(one["partition"], one["offset"], one["index"]) for one in metas]


def test_one_bad_entry_costs_its_neighbours_nothing() -> None:
    """W3: the good entries are in rows, the bad one in a dead letter by its index; together they are all."""
    bench = Bench()
    bench.record(record(P0, 0, entry("ann"), entry(None), entry("bob")))
    batch = bench.recorder.close()
    bench.check(batch)
    assert sorted(bench.places(batch)) == [(0, 0, 0), (0, 0, 2)]
    (letter,) = batch.dead_letters
    assert (letter.reason, letter.indexes) == (Reason.NO_USER, (1,))


@pytest.mark.parametrize("users", [1, 7, 10_000])
def test_memory_stays_within_its_limit_whatever_the_number_of_users(users: int) -> None:
    """Up to where fixed bytes are half of the limit, which makes a flush, all of it together is within the limit."""
    limit = 200_000
    bench = Bench(memory_bytes_max=limit)
    most = offset = 0
    while bench.recorder.load().fixed_bytes < limit / 2:
        bench.record(record(P0, offset, entry(f"user-{offset % users}", text="x" * 600), {"time": "no"}))
        most = max(most, bench.recorder.load().memory_bytes)
        offset += 1
    assert most <= limit + 2_000
    assert most > limit / 2


def test_dead_letters_count_in_what_the_batch_takes_in_memory() -> None:
    """Together as much as each says of itself, and no spilling frees it."""
    bench = Bench()
    bench.record(*(record(P0, offset, value=b"not JSON") for offset in range(20)))
    load, letters = bench.recorder.load(), bench.recorder.close().dead_letters
    assert load.memory_bytes == load.fixed_bytes == load.dead_letter_bytes == sum(one.memory_bytes for one in letters)
    assert load.dead_letters == len(letters) == 20


def test_closed_batch_is_a_value() -> None:
    """What is recorded later is of the next batch: rows, progress and dead letters of the closed one stay."""

    def contents() -> tuple[object, ...]:
        return len(batch.rows), batch.spans, batch.dead_letters, batch.size, batch.records, batch.progress[P0].entries

    bench = Bench()
    bench.record(record(P0, 0, entry("ann"), entry(None)), record(P1, 0, entry("bob")))
    batch = bench.recorder.close()
    seen = contents()
    bench.recorder.committed(batch, now_ms=5)
    bench.open()
    bench.record(record(P0, 1, entry("cem"), entry(None)), record(P1, 1, entry("cem")))
    bench.recorder.disown(P1)
    assert contents() == seen
    assert batch.spans == {P0: (0, 1), P1: (0, 1)}
    assert batch.progress[P0] is not bench.progress()
    assert batch.opening.batch_id == "batch-1"


@pytest.mark.parametrize("closed", [True, False])
def test_discard_gives_the_ranges_that_are_read_again(closed: bool) -> None:  # noqa: FBT001 - a case
    """Of the batch given, or of the open one; what was covered is covered no more, its directory is gone."""
    bench = Bench(memory_bytes_max=1)
    bench.record(record(P0, 0, entry("ann", text="x" * 3000)), record(P0, 7, entry("ann")))
    assert bench.spool.bytes_on_disk > 0
    batch = bench.recorder.close() if closed else None
    assert bench.recorder.discard(batch) == {P0: (0, 8)}
    assert (bench.progress().first_offset, bench.progress().next_offset, bench.progress().entries) == (0, 0, 0)
    assert not bench.recorder.has_progress
    assert bench.recorder.opening is None
    assert bench.spool.bytes_on_disk == 0
    assert bench.recorder.discard(None) == {}


def test_entry_that_no_schema_holds_is_in_a_row_or_a_dead_letter() -> None:
    """An entry over the limit by itself does not stop the worker, and is accounted for."""
    bench = Bench(SchemaBounds(fields_max=5))
    wide = entry("ann", **{f"field_{number}": number for number in range(30)})
    bench.record(record(P0, 0, entry("ann"), wide, entry("ann")))
    batch = bench.recorder.close()
    bench.check(batch)
    (letter,) = batch.dead_letters
    assert (letter.reason, letter.indexes) == (Reason.TOO_MANY_FIELDS, (1,))
    assert bench.places(batch) == [(0, 0, 0), (0, 0, 2)]


def test_entry_too_deep_is_a_dead_letter() -> None:
    """Nesting has an end, and its neighbours do not mind."""
    deep: dict[str, Any] = {}
    for _ in range(120):
        deep = {"a": deep}
    bench = Bench()
    bench.record(record(P0, 0, entry("ann", deep=deep), entry("ann")))
    batch = bench.recorder.close()
    bench.check(batch)
    assert [one.reason for one in batch.dead_letters] == [Reason.TOO_DEEP]
    assert bench.places(batch) == [(0, 0, 1)]


def test_disk_that_refuses_a_spill_loses_nothing() -> None:
    """The record is covered, its rows and those before it are whole in memory: the batch can be flushed."""
    bench = Bench(memory_bytes_max=4_000)
    bench.record(record(P0, 0, entry("ann", text="x" * 1_000), entry(None)))
    bench.spool.refuses = lambda operation: operation == "append"
    with pytest.raises(SpoolError):
        bench.record(record(P0, 1, entry("ann", text="x" * 20_000), entry("bob")))
    batch = bench.recorder.close()
    bench.check(batch)
    assert batch.spans[P0] == (0, 2)
    assert len(batch.dead_letters) == 1
    assert sorted(bench.places(batch)) == [(0, 0, 0), (0, 1, 0), (0, 1, 1)]


def test_load_tells_what_the_open_batch_holds() -> None:
    """Bytes, entries, PartitionKeys and dead letters; nothing where none is open, but for what the disk holds."""
    bench = Bench()
    assert bench.recorder.load().entries == 0
    bench.record(record(P0, 0, entry("ann"), entry("bob"), entry(None)))
    load = bench.recorder.load()
    assert (load.entries, load.partition_keys, load.dead_letters) == (3, 2, 1)
    assert load.source_bytes > load.row_bytes > 50
    assert load.memory_bytes > load.fixed_bytes > 0
    bench.recorder.close()
    assert bench.recorder.load().entries == 0


@pytest.mark.parametrize(("entries", "text", "expected"), [(1, "", 1), (30, "", 31), (2, "x" * 10_240, 22)])
def test_record_weighs_its_entries_and_its_kib(entries: int, text: str, expected: int) -> None:
    """The loop looks at the load by weight, so that no one record brings much past a limit unseen."""
    bench = Bench()
    assert bench.recorder.record(record(P0, 0, *(entry("ann", text=text) for _ in range(entries)))) == expected
