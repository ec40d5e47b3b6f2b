"""Bundles that are judged apart, as tasks do it, say together what the small audit says. No Spark, no brokers."""

import pickle
from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from log_partitioner.formats.findings import Kind
from log_partitioner.formats.flush_record import Lineage
from log_partitioner.formats.reference import Reference
from log_partitioner.proof.audit.audit import Audit, Index, Options
from log_partitioner.proof.audit.judge import BatchJudge
from log_partitioner_pipeline.audit.bundles import Bench, Retired, WantedOutput, read_judged
from log_partitioner_pipeline.audit.judged import BatchHour, JudgedBatches, PlacedFindings
from log_partitioner_pipeline.audit.results import hours_of, ids_of_rows
from log_partitioner_pipeline.erasures import Erased, digest_of
from tests.unit.proof.audit.world import GROUP, BucketStore, MemoryTopics, World, clean_world, packed_world, settings

ASKED = WantedOutput(references=True, ids=True, examples=100)


def judge_apart(
    world: World, asked: WantedOutput = ASKED, retired: Retired | None = None
) -> tuple[Index, list[pa.RecordBatch]]:
    """Judge each batch by clients of its own, with all that it needs pickled in between."""
    topics, store = MemoryTopics(world), BucketStore(world.objects).get
    findings = PlacedFindings(examples_max=100)
    index = Audit(settings(), Options(threads=1), topics, store, Lineage(GROUP, []), findings).index()
    with BatchJudge(index.ground, topics, store, findings, threads=1) as judge:
        strays, straying = judge.judge_straying(index.straying, index.begins)
        rows = list(Bench(judge, findings, asked).rows(straying))
    for batch in index.others:
        ground, apart = pickle.loads(pickle.dumps((index.ground, batch)))  # noqa: S301 - a test's own
        of_task = PlacedFindings(examples_max=100)
        with BatchJudge(ground, topics, store, of_task, threads=1) as judge:
            judge.context.retired = retired or {}
            bench = Bench(judge, of_task, asked)
            rows += bench.rows(list(judge.judge([apart], strays)))
    return index, rows


def added(rows: list[pa.RecordBatch]) -> JudgedBatches:
    """Add up."""
    return read_judged((row for batch in rows for row in batch.to_pylist()), examples_max=100)


def lose_a_file(world: World) -> None:
    """Let an object be gone."""
    del world.objects[min(key for key in world.objects if key.endswith(".avro"))]


@pytest.mark.parametrize("make", [clean_world, packed_world])
@pytest.mark.parametrize("harm", [lambda _: None, lose_a_file], ids=["none", "lose_a_file"])
def test_batches_judged_apart_add_up_to_the_small_audit(
    make: Callable[[], World], harm: Callable[[World], None]
) -> None:
    """Counts, findings by kind, dead letters by reason."""
    world = make().build()
    harm(world)
    report = world.audit(caught_up=False)
    judged = added(judge_apart(world)[1])
    counted = {name: count for name, count in report.counts.items() if name not in ("schemas", "flush_records")}
    assert {name: judged.counts.get(name, 0) for name in counted} == counted
    kinds = sum(map(Counter, judged.kinds.values()), Counter())
    assert (kinds, judged.dead_letters) == (report.findings.counts, report.dead_letters)
    assert {one.text for one in judged.examples} >= {one for some in report.findings.examples.values() for one in some}


def test_every_reference_has_its_rows_and_every_id_its_file() -> None:
    """Their digests are those of the rows that the object has, and ids are as often in files as in the source."""
    world = clean_world().build()
    _, rows = judge_apart(world)
    references = [row for batch in rows for row in batch.to_pylist() if row["reference_id"] is not None]
    announced = [one for message in world.messages for one in message.references]
    assert len(references) == len(announced) > 0
    assert sum(row["rows"] for row in references) == sum(one.entries for one in announced)
    assert all(row["low"] and row["high"] and row["message_offset"] is not None for row in references)
    ids = ids_of_rows(rows)
    assert (ids.missing, ids.surplus, ids.examples) == (0, 0, [])
    assert ids.in_source == ids.in_files


def test_finding_of_no_hour_is_of_each_of_its_batch() -> None:
    """The verdict of an hour counts it; other batches are clean."""
    judged = added(judge_apart(clean_world().build())[1])
    clean, _ = hours_of(judged, has_doubts=False)
    assert {one.verdict for one in clean} == {"clean"}
    batch = next(place.batch for place in judged.hours)
    judged.kinds[BatchHour(batch)] = {"flush_wrong": 1}  # type: ignore[dict-item]
    found, _ = hours_of(judged, has_doubts=False)
    wrong = {(place.date, place.hour) for place in judged.hours if place.batch == batch}
    assert {(one.date, one.hour) for one in found if one.verdict == "findings"} == wrong


def retired_rows(world: World) -> tuple[str, Retired]:
    """Give the object of one reference alone, and the rows that a table has of it."""
    rows: Retired = {}
    topics, store = MemoryTopics(world), BucketStore(world.objects).get
    findings = PlacedFindings(examples_max=0)
    index = Audit(settings(), Options(threads=1), topics, store, Lineage(GROUP, []), findings).index()
    objects: dict[str, set[str]] = {}
    with BatchJudge(index.ground, topics, store, findings, threads=1) as judge:

        def see(reference: Reference, meta: dict[str, Any], digest: bytes) -> None:
            rows.setdefault(reference.reference_id, []).append((meta, digest))
            objects.setdefault(reference.location.object, set()).add(reference.reference_id)

        judge.context.on_row = see
        for batch in index.batches:
            list(judge.judge([batch], {}))
    name = min(objects)
    return name, {reference: rows[reference] for reference in objects[name]}


def test_retired_object_is_judged_by_the_rows_that_the_table_has() -> None:
    """If the table has all its rows the audit is clean; a lost row is a missing entry and a wrong reference."""
    world = clean_world().build()
    name, retired = retired_rows(world)
    del world.objects[name]
    judged = added(judge_apart(world, retired=retired)[1])
    assert (judged.kinds, judged.counts["objects_retired"]) == ({}, 1)
    assert judged.counts["rows_retired"] == sum(map(len, retired.values()))
    next(iter(retired.values())).pop()
    judged = added(judge_apart(world, retired=retired)[1])
    assert {kind for kinds in judged.kinds.values() for kind in kinds} == {Kind.MISSING, Kind.REFERENCE_WRONG}


def test_object_of_an_erased_user_is_not_missing() -> None:
    """This holds up to the offsets at which the user was erased; objects that were announced later must be there."""
    world = clean_world().build()
    name, retired = retired_rows(world)
    del world.objects[name]
    (user,) = {meta["user"] for rows in retired.values() for meta, _ in rows}
    for end, kinds in ((10**6, set()), (0, {Kind.OBJECT_MISSING, Kind.MISSING})):
        erased = Erased({digest_of(user): dict.fromkeys(range(9), end)})
        judged = added(judge_apart(world, ASKED._replace(erased=erased))[1])
        assert {kind for some in judged.kinds.values() for kind in some} == kinds
