"""The recorder: every entry of a record is in a row or in a dead letter, and then its offset is covered."""

from __future__ import annotations

import io
from typing import Any

import fastavro
import pytest

from log_partitioner.batch.batch import ClosedBatch, Opening
from log_partitioner.batch.messages import rows_in
from log_partitioner.batch.seal import SealedObject, seal
from log_partitioner.boundary import Membership
from log_partitioner.config.settings import (
    IdSettings,
    InputSettings,
    SchemaBounds,
    Settings,
    SpoolSettings,
    TimeSettings,
    TopicSettings,
    UserSettings,
)
from log_partitioner.formats.dead_letter import Reason
from log_partitioner.formats.model import CommittedOffset, SourceRecord, TopicPartition
from log_partitioner.proof.oracle.judge import Judge
from log_partitioner.runtime.recorder import Recorder
from tests.fakes.lanes import recorded, settings
from tests.fakes.records import P0, P1, entry, record
from tests.fakes.spool import FakeSpool
from tests.fakes.worker import SEAL_RULES, settings_of


class Bench:
    """A recorder that owns P0 and P1 from offset 0, with a batch open."""

    def __init__(self, bounds: SchemaBounds = Settings.schema_bounds, memory_bytes_max: int = 2**30) -> None:
        spool = SpoolSettings(memory_bytes_max=memory_bytes_max)  # type: ignore[call-arg]
        settings = settings_of().model_copy(update={"schema_bounds": bounds, "spool": spool})
        self.bounds = bounds
        self.recorder = Recorder(settings, FakeSpool())
        for tp in (P0, P1):
            self.recorder.start(tp, CommittedOffset(0))
        self.recorder.open(Opening("batch", 1, Membership(1, "member", None), 0.0, 0))

    def record(self, *records: SourceRecord) -> None:
        """Record some records."""
        for one in records:
            self.recorder.record(one)
            self.recorder.spill_if_large()

    def objects(self, batch: ClosedBatch) -> list[tuple[SealedObject, list[dict[str, Any]]]]:
        """Seal a batch, an object for each PartitionKey, and read what was written."""
        rules = SEAL_RULES._replace(bounds=self.bounds, layout="file")
        steps = seal(batch.rows, batch.spool, batch.spans, rules, batch_id=batch.batch_id)
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


def test_topics_are_recorded_by_settings_of_their_own() -> None:
    """As the second opinion reads them: a form, a user and a time of their own each; others by the worker's."""
    topics = {
        "web": TopicSettings(
            input=InputSettings(format="access-log"),
            user=UserSettings(paths=("client",)),
            id=IdSettings(paths=("request",)),
        ),
        "old": TopicSettings(
            user=UserSettings(paths=("who",)), time=TimeSettings(paths=("at",), missing="dead-letter")
        ),
    }
    values = {
        "web": b'192.0.2.1 - ann [04/Mar/2026:05:06:07 +0000] "GET / HTTP/1.1" 200 12',
        "old": b'[{"who": "bob", "at": "2026-03-04T07:00:00Z"}, {"who": "bob", "time": "2026-03-04T07:00:00Z"}]',
        "app": b'{"user": "eve", "time": "2026-03-04T09:00:00Z"}',
    }
    rules = settings(topics=topics)
    given = [
        SourceRecord(TopicPartition(topic, 0), offset, 1_772_600_000_000, None, value, ())
        for offset, (topic, value) in enumerate(values.items())
    ]
    rows, dead = recorded(given, rules, is_fast=False)
    judge = Judge(rules)
    judged = {(one.offset, n): entry.deliverable for one in given for n, entry in enumerate(judge.judge(one).entries)}
    assert {place: (row.key, row.event_time_us, row.id) for place, row in rows.items()} == {
        place: (one.key, one.event_time_us, one.id) for place, one in judged.items() if one is not None
    }
    assert [row.key.user for row in rows.values()] == ["192.0.2.1", "bob", "eve"]
    assert [row.key.hour for row in rows.values()] == [5, 7, 9]
    assert rows[0, 0].id == "GET / HTTP/1.1"
    assert dead == {1: 1}


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
    """All of it together is within the limit until fixed bytes are half of the limit, which makes a flush."""
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


def nested(depth: int) -> dict[str, Any]:
    """Nest records."""
    return {} if not depth else {"a": nested(depth - 1)}


@pytest.mark.parametrize(
    ("bounds", "field", "reason"),
    [
        (SchemaBounds(fields_max=5), {f"field_{number}": number for number in range(30)}, Reason.TOO_MANY_FIELDS),
        (Settings.schema_bounds, nested(120), Reason.TOO_DEEP),
    ],
)
def test_entry_that_no_schema_holds_is_a_dead_letter(bounds: SchemaBounds, field: Any, reason: Reason) -> None:
    """An entry over the limit by itself does not stop the worker, and its neighbours do not mind."""
    bench = Bench(bounds)
    bench.record(record(P0, 0, entry("ann"), entry("ann", **field), entry("ann")))
    batch = bench.recorder.close()
    bench.check(batch)
    (letter,) = batch.dead_letters
    assert (letter.reason, letter.indexes) == (reason, (1,))
    assert bench.places(batch) == [(0, 0, 0), (0, 0, 2)]


def test_load_tells_what_the_open_batch_holds() -> None:
    """Bytes, entries, PartitionKeys and dead letters; nothing if none is open, but for what the disk holds."""
    bench = Bench()
    assert bench.recorder.load().entries == 0
    bench.record(record(P0, 0, entry("ann"), entry("bob"), entry(None)))
    load = bench.recorder.load()
    assert (load.entries, load.partition_keys, load.dead_letters) == (3, 2, 1)
    assert load.source_bytes > load.row_bytes > 50
    assert load.memory_bytes > load.fixed_bytes > 0
    bench.recorder.close()
    assert bench.recorder.load().entries == 0
