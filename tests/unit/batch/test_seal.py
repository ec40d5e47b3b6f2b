"""Objects of a closed batch by literal cases; that rows come out as they went in is in tests/property."""

import gc
import io
import json
import time
from itertools import pairwise

import fastavro
import msgspec
import pytest

from log_partitioner import native
from log_partitioner.batch import pack_plan, row_writer
from log_partitioner.batch.pack_plan import GROUPS_MAX
from log_partitioner.batch.seal import PARTS_AT_ONCE, Step, seal
from log_partitioner.errors import SpoolError
from tests.fakes.spool import FakeBatchSpool, FakeSpool
from tests.strategies import A, keyed_rows, seal_rules, sealed_objects

LANES = [False, *([True] if native.IS_INSTALLED else [])]
FAST = pytest.mark.parametrize("is_fast", LANES)


def opened() -> FakeBatchSpool:
    """Open the directory of a batch."""
    return FakeSpool().open("b1")


def test_block_ends_at_its_bytes_and_with_its_partition_key() -> None:
    """A reader decodes a bounded block at a time; no block holds rows of two PartitionKeys."""
    spool = opened()
    rows = keyed_rows([(f"user-{n % 3}", 10, {"a": "x" * 90}) for n in range(30)])
    (one,) = sealed_objects(rows, spool, seal_rules(layout="pack", block_bytes=400))
    blocks = [
        [row["_meta"]["user"] for row in block] for block in fastavro.block_reader(io.BytesIO(spool.load(one.file)))
    ]
    assert [len(block) for block in blocks] == [4, 4, 2] * 3
    assert all(len(set(block)) == 1 for block in blocks)


@pytest.mark.parametrize("limit", range(1_700, 1_800, 7))
def test_pack_ends_before_the_block_that_would_pass_its_bytes(limit: int) -> None:
    """To the byte: the block that did not fit is in the next one, whose header is as long."""
    rows = keyed_rows([(f"user-{n}", 10, {"a": "x" * (n % 7)}) for n in range(30)])
    objects = sealed_objects(rows, opened(), seal_rules(pack_bytes_max=limit))
    assert len(objects) > 1
    for one, following in pairwise(objects):
        lines = [line for group in following.groups for line in json.loads(bytes(group.lines))]
        first_block_bytes = lines[0][7]
        assert one.file.size <= limit < one.file.size + first_block_bytes


def test_pack_of_an_hour_goes_on_past_what_has_an_object_of_its_own() -> None:
    """Large PartitionKeys between small ones end no pack; the next hour does."""
    rows = []
    for hour in (3, 4):
        for n in range(120):
            rows += [(f"user-{n}", hour, {"a": "x" * (2_000 if n % 10 == 5 else 5)})]
    spool = opened()
    objects = sealed_objects(keyed_rows(rows), spool, seal_rules(packed_bytes_max=1_000))
    packs = [one for one in objects if one.key is None]
    assert [(one.hour, one.references) for one in packs] == [(("2024-05-01", 3), 108), (("2024-05-01", 4), 108)]
    assert len(objects) == 2 + 24
    finished = [one.number for one in objects]
    assert finished.index(packs[0].number) < finished.index(packs[1].number)


def test_message_ends_at_its_bytes_and_has_what_its_lines_point_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has nothing else, not even the parts of a line that goes alone; both lanes give the same bytes."""
    monkeypatch.setattr(pack_plan, "GROUPS_MAX", 1)
    wide = {f"w{n}": True for n in range(0, 400, 2)}
    some = [(f"user-{n}", n // 8, {f"k{n // 4}": n, "a": n % 3 or None} | (wide if n == 21 else {})) for n in range(40)]
    for group_bytes_max in (*range(700, 900), 10**6):
        rules = seal_rules(layout="pack", group_bytes_max=group_bytes_max)
        python, *fast = (sealed_objects(keyed_rows(some, is_fast=one, topics=5), opened(), rules) for one in LANES)
        assert fast in ([], [python])
        (pack,) = python
        messages = [(group, json.loads(bytes(group.lines))) for group in pack.groups]
        assert [line[0] for _, lines in messages for line in lines] == [f"user-{n}" for n in range(40)]
        for group, lines in messages:
            parts = group.hours, group.schemas, group.sources
            assert [{line[at] for line in lines} for at in (1, 5)] == [set(range(len(one))) for one in parts[:2]]
            assert {line[8][0] for line in lines} == set(range(len(group.sources)))
            assert len(lines) == 1 or len(msgspec.json.encode([*parts, group.lines])) <= group_bytes_max
        if group_bytes_max == 10**6:
            assert len(messages) == 1
        else:
            assert [line[0] for _, lines in messages if len(lines) == 1 for line in lines].count("user-21") == 1


def test_steps_tell_how_far_sealing_has_come_and_a_caller_may_stop() -> None:
    """Between two objects: what is written so far lies in the spool until the batch is deleted."""
    spool, rows = opened(), keyed_rows([(f"user-{n}", 10, {"a": n}) for n in range(300)])
    steps = seal(rows, spool, {A: (0, 20)}, seal_rules(layout="file"), batch_id="b1")
    assert [next(steps).rows for _ in range(3)] == [PARTS_AT_ONCE] * 3
    steps.close()  # type: ignore[attr-defined]
    assert len(spool.objects) == 3
    spool.delete()


def test_pack_is_finished_with_its_last_rows() -> None:
    """Steps of a pack give no object until it is full or over; in each so many rows are written at most."""
    rows = keyed_rows([(f"user-{n}", 10, {"a": n}) for n in range(2 * PARTS_AT_ONCE + 1)])
    steps: list[Step] = list(
        seal(rows, opened(), {A: (0, 20)}, seal_rules(), batch_id="b1")
    )  # fmt: skip
    assert [step.finished is None for step in steps] == [True] * 3 + [False]
    assert [step.rows for step in steps] == [PARTS_AT_ONCE, 2 * PARTS_AT_ONCE, *[2 * PARTS_AT_ONCE + 1] * 2]


@FAST
def test_step_is_bounded_by_the_bytes_of_its_rows(*, is_fast: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by what compression makes of them: a caller looks at its deadline between two."""
    monkeypatch.setattr(row_writer, "CHUNK_BYTES", 5_000)
    some = [(f"user-{n}", 10, {"a": [0] * 1_000}) for n in range(20)]
    rules = seal_rules(layout="pack", codec="zstandard")
    steps = list(seal(keyed_rows(some, is_fast=is_fast), opened(), {A: (0, 20)}, rules, batch_id="b1"))
    assert [step.rows for step in steps] == [3, 6, 9, 12, 15, 18, 20, 20]


@pytest.mark.parametrize("operation", ["create", "write", "finish", "read"])
def test_disk_that_refuses_ends_the_sealing(operation: str) -> None:
    """The batch is discarded; its rows are as they were, and a second try writes them."""
    spool = FakeSpool()
    batch = spool.open("b1")
    rows = keyed_rows([(f"user-{n}", 10, {"a": n}) for n in range(20)])
    rows.spill(batch.append)
    spool.refuses = lambda asked: asked == operation
    with pytest.raises(SpoolError):
        sealed_objects(rows, batch, seal_rules())
    spool.refuses = lambda _operation: False
    batch.objects.clear()
    assert sum(one.entries for one in sealed_objects(rows, batch, seal_rules())) == 20


@FAST
def test_damaged_piece_is_never_written_into_an_object(*, is_fast: bool) -> None:
    """One bit turned in the spool: the batch is discarded, and read again from the source."""
    batch = opened()
    rows = keyed_rows([(f"user-{n}", 10, {"a": n}) for n in range(20)], is_fast=is_fast)
    rows.spill(batch.append)
    batch.rows[50] ^= 4
    with pytest.raises(SpoolError, match="not what was written"):
        sealed_objects(rows, batch, seal_rules())


def test_sync_marker_is_of_the_batch() -> None:
    """Blocks of two batches are never taken for each other's."""
    rows = keyed_rows([("ann", 10, {"a": 1})])
    markers = set()
    for batch_id in ("b1", "b2"):
        spool = opened()
        steps = seal(rows, spool, {A: (0, 1)}, seal_rules(), batch_id=batch_id)
        (one,) = [step.finished for step in steps if step.finished is not None]
        markers.add(spool.load(one.file)[-16:])
    assert len(markers) == 2


HOSTILE = {
    "a key of its own": lambda n: {f"k{n}": n},
    "a type that no other has": lambda n: {f"f{bit}": 1 if n >> bit & 1 else "x" for bit in range(16)},
}


@pytest.mark.parametrize("one_user", [False, True])
@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_batch_is_sealed_in_linear_time(kind: str, one_user: bool) -> None:  # noqa: FBT001 - a case
    """Each row of another type: some milliseconds each (processor time, several times what is usual); all are there."""
    rows = keyed_rows([("ann" if one_user else f"user-{n}", 10, HOSTILE[kind](n)) for n in range(1_200)])
    begin = time.process_time()
    objects = sealed_objects(rows, opened(), seal_rules(codec="zstandard"))
    assert time.process_time() - begin < 15
    assert sum(one.entries for one in objects) == 1_200
    assert len(objects) <= GROUPS_MAX + (2 if not one_user else 20)


def seal_cpu_s(entries: int) -> float:
    """Seconds of this thread, without the collector, whose time depends on the tests before."""
    rows = keyed_rows([("ann", 10, {f"k{n}y{key}": 1 for key in range(9)}) for n in range(entries)])
    gc.disable()
    try:
        begin = time.thread_time()
        objects = sealed_objects(rows, opened(), seal_rules())
        spent_s = time.thread_time() - begin
    finally:
        gc.enable()
    assert sum(one.entries for one in objects) == entries
    return spent_s


@pytest.mark.slow
def test_entries_with_keys_of_their_own_cost_no_more_each_if_there_are_more() -> None:
    """Eight times as many take about ten times as long; if each looked at what all others have it would be 64 times."""
    assert seal_cpu_s(16_000) < 20 * seal_cpu_s(2_000)
