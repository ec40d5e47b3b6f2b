"""The audit on Spark: clean if nothing is wrong, and otherwise exactly the faults that were planted."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median_low

import pytest
from msgspec.structs import replace
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from log_partitioner.formats.findings import Kind
from log_partitioner.proof.accounting import ExitCode
from log_partitioner_pipeline.audit.auditor import Auditor, Options
from log_partitioner_pipeline.audit.result import Result, Window
from log_partitioner_pipeline.jobs.materialize import Materialize
from log_partitioner_pipeline.report.page import write_page
from tests.integration.harness import Deployment
from tests.integration.one_worker import run_through
from tests.pipeline.conftest import Lake
from tests.pipeline.groups import commit
from tests.pipeline.minutes import (
    FLUSHES,
    HOUR_MS,
    PARTITIONS,
    RECORDS,
    SEVERAL_EVERY,
    place_of,
    records,
    timestamp_of,
)
from tests.pipeline.planted import FAULTS, Delivered, Expected, delete_the_row, differences, found
from tests.stack.kafka_helper import KafkaHelper
from tests.stack.names import Names
from tests.stack.s3_helper import S3Helper

EVERYTHING = Window(from_ms=None, until_ms=None, padding_s=0)
OF_ENTRIES = (Kind.MISSING, Kind.DUPLICATED, Kind.UNEXPECTED, Kind.MISPLACED, Kind.ALTERED, Kind.META)
OFFSETS = ("first_offset", "next_offset", "min_offset", "max_offset")


def run(lake: Lake, window: Window = EVERYTHING, **options: bool) -> Result:
    """Audit in this process; every finding is an example."""
    return Auditor(
        lambda: lake.spark, lake.settings, Options(window, examples=10_000, **({"verdicts": False} | options))
    ).run()


def lags(result: Result) -> list[tuple[int, int, int]]:
    """Hours with the median and longest time, to three digits, that their records waited for their flush."""
    waited = defaultdict(list)
    for number in range(RECORDS):
        partition, offset, _ = place_of(number)
        (flush,) = [
            flush
            for flush in result.flushes
            for span in flush.ranges
            if span.partition == partition and span.first_offset <= offset < span.next_offset
        ]
        at_ms = timestamp_of(number)
        waited[at_ms // HOUR_MS * HOUR_MS].append(round(float(f"{flush.ended_at_ms - at_ms:.3g}")))
    return [(hour, median_low(of_it), max(of_it)) for hour, of_it in sorted(waited.items())]


@pytest.fixture(scope="module")
def deployment(kafka: KafkaHelper, s3: S3Helper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """One worker's run that all tests audit, in several flushes; they must not change what it left.

    The worker, and so the audit, has its topic by a pattern.
    """
    root = tmp_path_factory.mktemp("audit")
    settings = {"LOGP_ID__PATHS": '["id"]', "LOGP_LAYOUT": "file"}  # packs: test_layouts
    with Deployment(
        kafka=kafka, s3=s3, names=Names("audit"), root=root, partitions=PARTITIONS, settings=settings
    ) as one:
        one.settings(LOGP_KAFKA__SOURCE_TOPICS=f"^{one.source.removesuffix('source')}s[a-z]+")
        some = list(records())
        for number in range(FLUSHES):
            run_through(one, some[number * RECORDS // FLUSHES : (number + 1) * RECORDS // FLUSHES])
            one.log_of("w1").rename(root / f"run-{number}.log")
        yield one


def rows_of(lake: Lake, entry_id: str) -> DataFrame:
    """Give the rows of the table of one entry."""
    return lake.spark.table(lake.table).where(F.col("_meta.id") == entry_id)


def rewrite(lake: Lake, entry_id: str, **changed: Column) -> None:
    """Delete an entry's row from the table; put it back with these columns, if there are any."""
    rows = rows_of(lake, entry_id).localCheckpoint()
    lake.spark.sql(f"DELETE FROM {lake.table} WHERE _meta.id = '{entry_id}'")
    if changed:
        rows.withColumns(changed).writeTo(lake.table).append()


class Planted:
    """The deployment's work with every fault in it."""

    def __init__(self, deployment: Deployment) -> None:
        world = Delivered(deployment)
        self.expected: list[Expected] = []
        for number in (90, RECORDS - 3):
            self.expected += delete_the_row(world, place_of(number))
        for fault in FAULTS:
            expected = fault(world)
            assert expected, fault.__name__
            self.expected += expected
        self.flushes = world.flushes
        self.variables = world.publish(Names("planted"))


@pytest.fixture(scope="module")
def planted(deployment: Deployment) -> Planted:
    """All faults at once."""
    return Planted(deployment)


def test_every_fault_is_named_and_nothing_else(
    deployment: Deployment, planted: Planted, lake_of: Callable[..., Lake], tmp_path: Path
) -> None:
    """Faults of every kind in references, objects, dead letters and flush records: each entry and object by name.

    The page of it has them all, beside what the worker's logs say.
    """
    result = run(lake_of(deployment, **planted.variables), list_objects=True)
    assert differences(result, planted.expected) == ({}, {})
    assert (result.exit_code, result.could_not_tell) == (ExitCode.FINDINGS, [])

    write_page(result, tmp_path / "page.html", logs=sorted(deployment.root.glob("run-*.log")))
    page = (tmp_path / "page.html").read_text()
    assert not [one for one in result.findings if f"{len(one.examples)} example" not in page]
    for event in ("partitions assigned", "partitions revoked", "positioned", "flush committed"):
        assert f", {event}: {FLUSHES}" in page
    assert "batch discarded" not in page
    assert "of a worker.</p>" not in page, "a line of a real log was not read"
    assert "only a log tells of it" in page


def of_entries(result: Result, places: set[tuple[int, int]]) -> Counter[tuple[Kind, tuple[object, ...]]]:
    """Findings of entries of these partitions and offsets."""
    return Counter({name: n for name, n in found(result).items() if name[0] in OF_ENTRIES and name[1][:2] in places})


def test_windows_of_single_flushes_add_up_to_everything(
    deployment: Deployment, planted: Planted, lake_of: Callable[..., Lake]
) -> None:
    """Each fault of an entry is in the window of its flush, and in no other; neither needs Spark."""
    lake = lake_of(deployment, **planted.variables)
    of_everything = run(lake)
    recorded = {
        (line.partition, offset)
        for flush in planted.flushes
        for line in flush.topic_partitions
        for offset in range(line.first_offset, line.next_offset)
    }
    named: Counter[tuple[Kind, tuple[object, ...]]] = Counter()
    for ended_at_ms in {flush.ended_at_ms for flush in planted.flushes}:
        result = run(lake, Window(from_ms=ended_at_ms, until_ms=ended_at_ms + 1, padding_s=0))
        of_gap = ended_at_ms == max(
            flush.ended_at_ms for flush in planted.flushes
        )  # it is read by the next flush's window
        assert result.counts.records == RECORDS // FLUSHES * (1 + of_gap)
        named += of_entries(result, recorded)
    assert named == of_entries(of_everything, recorded)


def test_the_table_too_is_clean_until_it_is_tampered_with(deployment: Deployment, lake_of: Callable[..., Lake]) -> None:
    """A clean run: every entry accounted for, in files and table; then rows deleted, doubled, altered, invented."""
    lake = lake_of(deployment, PIPELINE_AUDIT__UNREFERENCED_AGE_S="0")
    Materialize(lake.spark, lake.settings).run(continuous=False)
    result = run(lake, table=True, list_objects=True, verdicts=True)
    assert (result.exit_code, found(result), result.could_not_tell) == (ExitCode.CLEAN, Counter(), [])
    counts, several = result.counts, RECORDS // SEVERAL_EVERY
    assert (counts.records, counts.entries) == (RECORDS, RECORDS + 2 * several)
    assert counts.in_table == counts.in_files == counts.deliverable
    assert [(one.begins_ms, one.lag_p50_ms, one.lag_max_ms) for one in result.record_hours] == lags(result)
    assert sum(one.references for one in result.hours) == counts.references
    assert all(0 < one.bytes < counts.object_bytes for one in result.hours)

    rewrite(lake, "id-1")
    for name in ("id-2", "id-12-b"):
        rows_of(lake, name).writeTo(lake.table).append()
    rewrite(lake, "id-3", n=F.col("n") + 1)
    rewrite(lake, "id-4", user=F.lit("nobody"))
    rewrite(lake, "id-6", event_time=F.when(F.col("n") < 0, F.col("event_time")))
    rewrite(lake, "id-5", _meta=F.col("_meta").withField("index", F.lit(7)))
    result = run(lake, table=True)
    assert found(result) == Counter(
        {
            (Kind.TABLE_MISSING, place_of(1)): 1,
            (Kind.TABLE_DUPLICATED, place_of(2)): 1,
            (Kind.TABLE_DUPLICATED, (*place_of(12)[:2], 1)): 1,
            (Kind.TABLE_ALTERED, place_of(3)): 1,
            (Kind.TABLE_ALTERED, place_of(4)): 1,
            (Kind.TABLE_ALTERED, place_of(6)): 1,
            (Kind.TABLE_MISSING, place_of(5)): 1,
            (Kind.TABLE_UNEXPECTED, (*place_of(5)[:2], 7)): 1,
        }
    )


def with_strays(world: Delivered, sourceless: str, elsewhere: str, unwritten: str) -> Delivered:
    """Announce an object again in references of a batch without a flush, each with other sources.

    Their bytes are those of a reference of the worker, too: that is said of each beside its sources.
    """
    one = next(iter(world.references.values()))
    source = one.sources[0]
    beyond = {name: getattr(source, name) + 10_000 for name in OFFSETS}
    for reference_id, sources in {
        sourceless: (),
        elsewhere: (replace(source, topic="another"),),
        unwritten: (replace(source, **beyond),),
    }.items():
        world.again.append(replace(one, reference_id=reference_id, batch_id="of nobody", sources=sources))
    return world


def test_what_is_announced_and_not_committed_is_named(
    deployment: Deployment, lake_of: Callable[..., Lake], names: Names
) -> None:
    """A group set back to the end of a flush, with one partition that is not committed; and an unknown group.

    The first has references of no batch, too, whose sources are none, of another topic, or not yet written.
    """
    group, back, end = names.group("back"), RECORDS // PARTITIONS // 2, RECORDS // PARTITIONS
    commit(deployment.kafka, group, deployment.source, {0: back, 2: end})
    world = Delivered(deployment)
    world.of_group(group)
    strays = [f"of nobody-{number}" for number in range(3)]
    result = run(lake_of(deployment, **with_strays(world, *strays).publish(names), LOGP_KAFKA__GROUP_ID=group))
    named = found(result)
    beyond = {name: count for name, count in named.items() if name[0] in (Kind.UNEXPECTED, Kind.DEAD_LETTER_UNEXPECTED)}
    assert {(partition, offset >= back) for _, (partition, offset, _) in beyond} >= {(0, True), (1, True), (1, False)}
    lines = {
        (Kind.FLUSH_WRONG, (partition, offset)): 1 + (offset == first)  # its counts; and that it is not committed
        for partition, first in ((0, back), (1, 0))
        for offset in range(first, end, RECORDS // PARTITIONS // FLUSHES)
    }
    wrong = {name[1][0] for name in named if name[0] is Kind.REFERENCE_WRONG}
    assert wrong >= {"of nobody", *strays}
    assert {name: n for name, n in (named - Counter(beyond)).items() if name[0] is not Kind.REFERENCE_WRONG} == lines
    assert [(one.first_offset, one.next_offset) for one in result.coverage] == [(0, back), (0, 0), (0, end)]
    assert (result.exit_code, result.could_not_tell) == (ExitCode.FINDINGS, [])

    group = names.group("nobody")
    empty = {
        f"LOGP_KAFKA__{name}_TOPIC": deployment.kafka.create_topic(names.topic(f"no-{name.lower()}"))
        for name in ("REFERENCES", "FLUSHES", "DEAD_LETTERS")
    }
    result = run(lake_of(deployment, LOGP_KAFKA__GROUP_ID=group, **empty))
    assert (result.exit_code, found(result)) == (ExitCode.COULD_NOT_TELL, Counter())
    (told,) = result.could_not_tell
    assert told.startswith(f"nothing of the source is audited: group {group} has neither flush records nor work")
    assert told.endswith("; there are no flush records at all")
