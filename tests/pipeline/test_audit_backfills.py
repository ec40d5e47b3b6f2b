"""The audit on Spark after backfills: clean by their run records, which it judges as it judges flush records."""

import json
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from msgspec.structs import replace

from log_partitioner.formats.findings import Kind
from log_partitioner.formats.flush_record import decode_backfill_record, encode_backfill_record
from log_partitioner.formats.reference import Reference, decode_message, encode_message, reference_id
from log_partitioner.proof.accounting import ExitCode
from log_partitioner_pipeline.audit.auditor import Auditor, Options
from log_partitioner_pipeline.audit.result import Result, Window
from log_partitioner_pipeline.backfill.outbox import outboxes_prefix
from log_partitioner_pipeline.backfill.ranges import Wanted, parse_offsets
from tests.integration.harness import Deployment
from tests.integration.one_worker import run_through
from tests.pipeline.conftest import Lake
from tests.pipeline.readback import read_rows
from tests.pipeline.test_backfill import Hole, Worked
from tests.stack.kafka_helper import KafkaHelper, ToProduce
from tests.stack.names import Names
from tests.stack.s3_helper import S3Helper

PARTITIONS = 3
RECORDS = 90
EVERYTHING = Window(from_ms=None, until_ms=None, padding_s=600)

pytestmark = pytest.mark.usefixtures("small_outbox")


@pytest.fixture(scope="module")
def worked(kafka: KafkaHelper, s3: S3Helper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worked]:
    """One worker's work in several flushes, each record with two entries; some entries are dead."""
    records = []
    for at in range(RECORDS):
        entries = [{"user": f"user-{at % 4}", "time": f"2026-03-04T05:06:{k:02}Z", "n": at} for k in range(2)]
        if at % 10 in (0, 1, 2):
            del entries[1]["user"]
        records.append(ToProduce(value=json.dumps(entries).encode(), partition=at % PARTITIONS))
    root = tmp_path_factory.mktemp("backfills")
    with Deployment(kafka=kafka, s3=s3, names=Names("backfills"), root=root, partitions=PARTITIONS) as deployment:
        run_through(deployment, records, LOGP_FLUSH__ENTRIES_MAX="90")
        yield Worked(deployment, deployment.references())


def test_backfills_are_judged_by_their_run_records(worked: Worked, names: Names, lake_of: Callable[..., Lake]) -> None:
    """Clean after three backfills; then one without its record, one without a reference, one that says something else.

    Outline: a hole -> a backfill for each TopicPartition -> clean, objects too -> their messages as a copy with faults.
    """
    hole = Hole(worked, names, partial(lake_of, PIPELINE_AUDIT__UNREFERENCED_AGE_S="0"))
    waiting = hole.backfill("waiting")  # has its outbox, and publishes nothing
    assert waiting._prepare(waiting._begin(Wanted(from_ms=0))).messages > 1
    for partition in range(PARTITIONS):
        offsets = json.dumps({worked.deployment.source: {str(partition): [0, RECORDS // PARTITIONS]}})
        assert hole.backfill(f"{partition}").run(Wanted(offsets=parse_offsets(offsets))).messages > 1
    for one in hole.lost.values():  # who named them is gone
        worked.deployment.s3.client.delete_object(Bucket=one.location.bucket, Key=one.location.object)
    result = audited(hole.lake, list_objects=True)
    assert (result.exit_code, result.findings, result.could_not_tell) == (ExitCode.CLEAN, [], [])
    prefix = outboxes_prefix(hole.lake.settings.worker.s3.prefix)
    kept = [key for key in worked.deployment.s3.keys(worked.deployment.bucket) if key.startswith(prefix)]
    assert len(kept) > PARTITIONS
    assert f"{len(kept)} objects are what backfills keep of their runs" in result.notes
    awaited = [key for key in worked.deployment.s3.keys(worked.deployment.bucket) if f"/backfill-{hole.name}-w" in key]
    awaited = [key for key in awaited if key not in kept]
    assert f"{len(awaited)} objects are, or may be, of backfills that have not published all they will" in result.notes

    batches = [f"backfill-{hole.name}-{partition}" for partition in range(PARTITIONS)]
    of_batch = {batch: [one for one in hole.published() if one.batch_id == batch] for batch in batches}
    unrecorded, short, untrue = batches
    lost = of_batch[short][0]
    result = audited(faulty(hole, names, lake_of, lost=lost, unrecorded=unrecorded, untrue=untrue))
    assert result.could_not_tell == []
    found = {one.kind: one.examples for one in result.findings}
    wrong = {one.reference_id: one for one in found[Kind.REFERENCE_WRONG]}
    assert wrong.pop(None).text == f"batch {unrecorded}: references or dead letters without a flush record"
    assert wrong.keys() == {one.reference_id for one in of_batch[untrue]}
    assert all(one.text.endswith(": worker or generation are not those of its run record") for one in wrong.values())
    data = hole.deployment.s3.read(hole.deployment.bucket, lost.location.object)
    rows, _ = read_rows(b"".join(data[start : start + length] for start, length in lost.location.ranges), "lost")
    places = {(row["_meta"]["partition"], row["_meta"]["offset"], row["_meta"]["index"]) for row in rows}
    missing = {one.batch_id: one.text for one in found[Kind.REFERENCE_MISSING]}
    assert missing.keys() == {short}
    not_good = not_made_good(hole, {(partition, offset) for partition, offset, _ in places})
    assert {one.batch_id for one in found[Kind.FLUSH_WRONG]} == not_good
    said = len(of_batch[short])
    assert missing[short] == f"backfill {short}: its run record says {said} references, there are {said - 1}"
    entries = sum(one.entries for one in of_batch[untrue])
    assert [(one.batch_id, one.text) for one in found[Kind.BACKFILL_WRONG]] == [
        (untrue, f"backfill {untrue}: {entries + 1} entries in files, counted {entries}")
    ]
    assert {(one.partition, one.offset, one.index) for one in found[Kind.MISSING]} == places
    kinds = {Kind.REFERENCE_WRONG, Kind.REFERENCE_MISSING, Kind.FLUSH_WRONG, Kind.BACKFILL_WRONG, Kind.MISSING}
    if any(one.location.object == lost.location.object for one in of_batch[short][1:]):
        kinds.add(Kind.OBJECT_UNREFERENCED)  # its bytes in a pack
    assert found.keys() == kinds


def not_made_good(hole: Hole, lost_again: set[tuple[int, int]]) -> set[str]:
    """Name the batches of the worker that lack entries of the run without a record, or ones that are lost again."""
    return {
        one.batch_id
        for one in hole.lost.values()
        for source in one.sources
        if source.partition == 0
        or any(
            source.first_offset <= offset < source.next_offset
            for partition, offset in lost_again
            if partition == source.partition
        )
    }


def audited(lake: Lake, **options: bool) -> Result:
    """Audit in this process."""
    return Auditor(
        lambda: lake.spark, lake.settings, Options(EVERYTHING, examples=1000, verdicts=False, **options)
    ).run()


def faulty(
    hole: Hole, names: Names, lake_of: Callable[..., Lake], *, lost: Reference, unrecorded: str, untrue: str
) -> Lake:
    """Copy references without `lost`, and run records without those of one run and with another's last one untrue.

    `lost` is the first of its message, whose other lines stay.
    """
    kafka = hole.deployment.kafka
    references = kafka.create_topic(names.topic("refs-faulty"), partitions=1)
    for message in kafka.read_committed(hole.references_topic):
        said = decode_message(message.value() or b"")
        if reference_id(said.batch_id, said.first_number) == lost.reference_id:
            said = replace(said, first_number=said.first_number + 1, references=said.references[1:])
        if said.references:
            kafka.produce(references, [ToProduce(key=said.batch_id.encode(), value=encode_message(said))])
    backfills = kafka.create_topic(names.topic("backfills-faulty"), partitions=1)
    records = [decode_backfill_record(message.value()) for message in kafka.read_committed(hole.backfills_topic)]
    for record in records:
        if record.batch_id == unrecorded:
            continue
        told = record
        if record.batch_id == untrue and record.is_finished:
            totals = replace(record.totals, entries_in_files=record.totals.entries_in_files + 1)
            told = replace(record, generation=7, totals=totals)
        kafka.produce(backfills, [ToProduce(value=encode_backfill_record(told))])
    settings = {"LOGP_KAFKA__REFERENCES_TOPIC": references, "LOGP_KAFKA__BACKFILLS_TOPIC": backfills}
    return lake_of(hole.deployment, **hole.settings | settings)
