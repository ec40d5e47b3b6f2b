"""The recorder: every entry of a record is in a file or in a dead letter, and only then its offset is covered."""

from __future__ import annotations

from typing import Any

import pytest

from service.core.batch import Batch
from service.core.dead_letter import Reason
from service.core.partition_file import FileBounds
from service.errors import SpoolError
from service.runtime.recorder import Recorder
from tests.fakes.check import read_rows
from tests.fakes.records import P0, P1, entry, record
from tests.fakes.spool import FakeSpool
from tests.fakes.worker import FILE_BOUNDS, recorder_rules


class Bench:
    """A recorder that owns P0 and P1 from offset 0, with a batch open."""

    def __init__(self, bounds: FileBounds = FILE_BOUNDS, memory_bytes_max: int = 2**30) -> None:
        self.spool = FakeSpool()
        self.recorder = Recorder(recorder_rules(bounds=bounds, memory_bytes_max=memory_bytes_max), self.spool)
        self.recorder.ledgers.own(P0, 0)
        self.recorder.ledgers.own(P1, 0)
        self.open()

    def open(self) -> Batch:
        """Open a batch."""
        self.recorder.batch = Batch("batch", 1, "member", 0.0, 0)
        return self.recorder.batch

    @property
    def batch(self) -> Batch:
        """The open batch."""
        assert self.recorder.batch is not None
        return self.recorder.batch

    def rows(self) -> list[tuple[str, list[dict[str, Any]]]]:
        """Seal everything and read it: (user, rows) per file in the order of the files."""
        found = []
        for file in self.recorder.files:
            pieces = file.seal(self.spool.reader(file.number), metadata={})
            found.append((file.key.user, read_rows(b"".join(pieces))))
        return found

    def indexes(self) -> list[tuple[int, int, int]]:
        """Give (TopicPartition, offset, index) of all rows."""
        metas = [row["_meta"] for _, rows in self.rows() for row in rows]
        return [(one["partition"], one["offset"], one["index"]) for one in metas]


def test_entries_of_one_record_go_to_the_files_of_their_partition_keys() -> None:
    """A record holds entries of several users and hours; each goes to its own file, under one offset."""
    bench = Bench()
    bench.recorder.record(record(P0, 0, entry("ann"), entry("bob"), entry("ann", hours_ago=2), entry("ann")))
    assert sorted((user, len(rows)) for user, rows in bench.rows()) == [("ann", 1), ("ann", 2), ("bob", 1)]
    ledger = bench.recorder.ledgers.by_tp[P0]
    assert (ledger.records, ledger.entries, ledger.entries_in_files, ledger.next_offset) == (1, 4, 4, 1)


def test_one_bad_entry_costs_its_neighbours_nothing() -> None:
    """W3: the good entries are in files, the bad one in a dead letter by its index; together they are all."""
    bench = Bench()
    bench.recorder.record(record(P0, 0, entry("ann"), entry(None), entry("bob")))
    assert sorted(bench.indexes()) == [(0, 0, 0), (0, 0, 2)]
    (letter,) = bench.batch.dead_letters
    assert (letter.reason, letter.indexes) == (Reason.NO_USER, (1,))
    bench.recorder.ledgers.check()


def test_dead_letters_are_one_per_record_and_reason() -> None:
    """Two entries of one record that are dead for one reason share a letter; another reason has its own."""
    bench = Bench()
    dateless = {"user": "ann"}
    bench.recorder.record(record(P0, 0, entry(None), dateless, entry("bob"), entry(None)))
    bench.recorder.record(record(P0, 1, entry(None), entry("bob")))
    letters = [(one.record.offset, one.reason, one.indexes) for one in bench.batch.dead_letters]
    assert sorted(letters) == [(0, Reason.NO_EVENT_TIME, (1,)), (0, Reason.NO_USER, (0, 3)), (1, Reason.NO_USER, (0,))]
    assert bench.recorder.ledgers.by_tp[P0].dead_letters == 4
    bench.recorder.ledgers.check()


def test_record_that_cannot_be_split_is_one_dead_entry() -> None:
    """It counts as one entry, and its offset is covered like any other."""
    bench = Bench()
    bench.recorder.record(record(P0, 0, value=b"{ not json"))
    (letter,) = bench.batch.dead_letters
    assert (letter.indexes, letter.entries) == (None, 1)
    assert bench.recorder.ledgers.next_offsets() == {P0: 1}
    bench.recorder.ledgers.check()


@pytest.mark.parametrize("value", [None, b"[]"])
def test_record_without_entries_is_covered(value: bytes | None) -> None:
    """Zero entries are a fact that is committed, too."""
    bench = Bench()
    bench.recorder.record(record(P0, 0, value=value) if value is not None else record(P0, 0)._replace(value=None))
    assert bench.recorder.covers
    assert bench.recorder.files == []
    assert bench.recorder.ledgers.by_tp[P0].entries == 0


def test_rows_of_one_topic_partition_stand_in_the_order_of_their_offsets() -> None:
    """DESIGN 3.2: also where records of several TopicPartitions are mixed and blocks leave memory between them."""
    bench = Bench(memory_bytes_max=300)
    for offset in range(40):
        tp = (P0, P1)[offset % 2]
        bench.recorder.record(record(tp, offset // 2, entry("ann", n=offset), entry("ann", n=offset)))
    for partition in (0, 1):
        offsets = [one[1:] for one in bench.indexes() if one[0] == partition]
        assert offsets == sorted(offsets)
        assert len(offsets) == 40


def test_memory_over_its_limit_goes_to_disk_and_nothing_is_lost() -> None:
    """The largest files are spilled until half of the memory is free; the rows are all there."""
    bench = Bench(memory_bytes_max=2_000)
    for offset in range(60):
        bench.recorder.record(record(P0, offset, entry(f"user-{offset % 7}", text="x" * 50)))
    assert bench.spool.bytes_on_disk > 0
    assert sum(file.memory_bytes for file in bench.recorder.files) <= 4 * 2_000
    assert len(bench.indexes()) == 60


def test_memory_stays_within_its_limit_whatever_the_number_of_users() -> None:
    """Rows held decoded count for what they take: the limit holds for many small files as well."""
    limit = 50_000
    bench = Bench(memory_bytes_max=limit)
    most = 0
    for offset in range(600):
        bench.recorder.record(record(P0, offset, entry(f"user-{offset}", text="x" * 60)))
        most = max(most, sum(file.memory_bytes for file in bench.recorder.files))
    assert most <= limit + 4 * 200


def test_schema_without_room_goes_on_in_a_new_file() -> None:
    """At the limit of fields the file is closed and its PartitionKey goes on in another; order and rows stay."""
    bench = Bench(FILE_BOUNDS._replace(fields_max=12))
    for offset in range(12):
        bench.recorder.record(record(P0, offset, entry("ann", **{f"field_{offset}": offset})))
    files = bench.rows()
    assert len(files) > 1
    assert all(user == "ann" for user, _ in files)
    assert bench.indexes() == [(0, offset, 0) for offset in range(12)]
    assert bench.recorder.load(lambda _files, _bytes: 0.0).files == len(files)


def test_entry_that_no_schema_holds_is_in_a_file_or_a_dead_letter() -> None:
    """An entry over the limit by itself does not stop the worker, and is accounted for."""
    bench = Bench(FILE_BOUNDS._replace(fields_max=5))
    wide = entry("ann", **{f"field_{number}": number for number in range(30)})
    bench.recorder.record(record(P0, 0, entry("ann"), wide, entry("ann")))
    bench.recorder.ledgers.check()
    dead = [index for letter in bench.batch.dead_letters for index in letter.indexes or ()]
    assert sorted([index for _, _, index in bench.indexes()] + dead) == [0, 1, 2]


def test_object_that_is_full_goes_on_in_a_new_file() -> None:
    """The bytes of rows in one object are bounded."""
    bench = Bench(FILE_BOUNDS._replace(object_bytes_max=2_000))
    for offset in range(60):
        bench.recorder.record(record(P0, offset, entry("ann", text="x" * 100)))
    files = bench.rows()
    assert len(files) > 3
    assert bench.indexes() == [(0, offset, 0) for offset in range(60)]
    assert len({file.number for file in bench.recorder.files}) == len(files)


def test_disk_that_fails_leaves_the_offset_uncovered() -> None:
    """A record that is half written is not covered: its batch can only be discarded."""
    bench = Bench(memory_bytes_max=1)
    bench.spool.refuses = lambda operation: operation == "append"
    with pytest.raises(SpoolError):
        bench.recorder.record(record(P0, 0, entry("ann"), entry("bob")))
    ledger = bench.recorder.ledgers.by_tp[P0]
    assert ledger.next_offset == ledger.records
    bench.recorder.forget_batch()
    bench.recorder.ledgers.forget()
    assert not bench.recorder.covers


def test_accepts_only_what_is_owned_and_not_covered() -> None:
    """The filter that the broker does not do for us: owned, and not below next_offset."""
    bench = Bench()
    bench.recorder.record(record(P0, 5, entry()))
    assert not bench.recorder.accepts(record(P0, 5, entry()))
    assert bench.recorder.accepts(record(P0, 6, entry()))
    assert bench.recorder.accepts(record(P0, 60, entry()))
    bench.recorder.ledgers.disown(P1)
    assert not bench.recorder.accepts(record(P1, 0, entry()))


def test_file_numbers_are_never_used_again() -> None:
    """A local file that could not be deleted is never appended to by a later batch."""
    bench = Bench()
    bench.recorder.record(record(P0, 0, entry("ann")))
    first = [file.number for file in bench.recorder.files]
    bench.recorder.forget_batch()
    bench.open()
    bench.recorder.record(record(P0, 1, entry("ann")))
    assert not set(first) & {file.number for file in bench.recorder.files}


def test_load_tells_what_a_flush_would_cost() -> None:
    """Bytes, entries and files of the open batch; an empty one holds nothing."""
    bench = Bench()
    assert bench.recorder.load(lambda files, _bytes: float(files)).files == 0
    bench.recorder.record(record(P0, 0, entry("ann"), entry("bob")))
    load = bench.recorder.load(lambda files, row_bytes: files + row_bytes / 1e9)
    assert (load.entries, load.files) == (2, 2)
    assert load.source_bytes > 50
    assert 2 < load.estimate_s < 3


def test_outcomes_count_every_entry_once() -> None:
    """The counters that become metrics agree with the ledger."""
    bench = Bench()
    bench.recorder.record(record(P0, 0, entry("ann"), entry(None), entry("bob")))
    bench.recorder.record(record(P0, 1, value=b"{"))
    assert bench.recorder.outcomes == {"written": 2, "no_user": 1, "malformed": 1}
