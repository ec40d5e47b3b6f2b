"""An older system's archived CSV as another witness, and both witnesses' reports compared."""

import gzip
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from log_partitioner.formats.findings import Kind
from log_partitioner.proof.accounting import ExitCode
from log_partitioner_pipeline import cli
from log_partitioner_pipeline.archive.run import audit_archive
from log_partitioner_pipeline.audit.auditor import Auditor, Options
from log_partitioner_pipeline.audit.result import Result, Window, decode, encode
from log_partitioner_pipeline.jobs import audit, compare
from tests.integration.harness import Deployment
from tests.integration.one_worker import run_through
from tests.pipeline import older_system
from tests.pipeline.conftest import Lake
from tests.pipeline.older_system import Row
from tests.pipeline.planted import Delivered, delete_the_row
from tests.stack.kafka_helper import KafkaHelper, ToProduce
from tests.stack.names import Names
from tests.stack.s3_helper import S3Helper

EVERYTHING = Window(from_ms=None, until_ms=None, padding_s=600)
MINUTE_MS = 60_000
HOURS = 4
# Full hours of today or yesterday: Kafka deletes what is older than its retention, while a test runs, too.
T0_MS = (int(time.time()) // 3600 - HOURS - 2) * 60 * MINUTE_MS
RECORDS = HOURS * 60
PARTITIONS = 3
SEVERAL_EVERY = 12
# Numbers of records whose first entry is in no file of the product.
LOST = (3, 100, 181)
# Its producer's clock goes ahead by less than the padding: by timestamp it is not of the window below, in which it
# stands, and hides from brokers the records of the window that stand behind it.
AHEAD, AHEAD_AT = 178, 200
# Not at an hour: numbers of records, [first, next).
WINDOW = Window(from_ms=T0_MS + 90 * MINUTE_MS, until_ms=T0_MS + 195 * MINUTE_MS, padding_s=25 * 60)
SETTINGS = {
    "PIPELINE_CSV__ID_COLUMN": "log_id",
    "PIPELINE_CSV__USER_COLUMN": "who",
    "PIPELINE_CSV__TIME_COLUMN": "written",
    "PIPELINE_CSV__VALUES": '{"message": "msg", "number": "n", "details": "x", "ok": "ok"}',
}


def records() -> Iterator[ToProduce]:
    """One record a minute, one in twelve a list of three entries; some without user, some without id."""
    for number in range(RECORDS):
        at_ms = T0_MS + number * MINUTE_MS
        entry: dict[str, Any] = {
            "user": f"user-{number % 4}",
            "time": at_ms,
            "id": f"id-{number}",
            "n": number,
            "msg": f'said "{number}",\nand went, näher' if number % 3 else f"plain {number}",
            "x": {"y": [number, 0.5], "z": None},
            "ok": number % 2 == 0,
        }
        if number % 20 == 7:
            del entry["user"]
        if number % 30 == 11:
            del entry["id"]
        several = [entry, entry | {"id": f"id-{number}-b"}, entry | {"id": f"id-{number}-c"}]
        value = json.dumps(several if number % SEVERAL_EVERY == 0 else entry).encode()
        timestamp_ms = T0_MS + AHEAD_AT * MINUTE_MS if number == AHEAD else at_ms
        yield ToProduce(value=value, partition=number % PARTITIONS, timestamp_ms=timestamp_ms)


@pytest.fixture(scope="module")
def deployment(kafka: KafkaHelper, s3: S3Helper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """One worker's run, which both witnesses speak about."""
    settings = {"LOGP_ID__PATHS": '["id"]', "LOGP_LAYOUT": "file"}  # rows are taken out of objects, each alone
    root = tmp_path_factory.mktemp("witness")
    with Deployment(
        kafka=kafka, s3=s3, names=Names("witness"), root=root, partitions=PARTITIONS, settings=settings
    ) as one:
        run_through(one, records())
        yield one


@pytest.fixture(scope="module")
def with_losses(deployment: Deployment) -> dict[str, str]:
    """The settings of who audits the worker's outputs without some entries."""
    world = Delivered(deployment)
    for number in LOST:
        delete_the_row(world, (number % PARTITIONS, number // PARTITIONS, 0))
    return world.publish(Names("losses"))


@pytest.fixture
def archived(deployment: Deployment) -> list[Row]:
    """The older system's rows of the same source, in no particular order."""
    return older_system.take_all(deployment.kafka.bootstrap_servers, deployment.source)


@pytest.fixture
def compare_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, dict[str, Any]]]:
    """Give two results to the command; its exit code and JSON."""

    def do(first: Result, second: Result) -> tuple[int, dict[str, Any]]:
        files = []
        for name, result in (("first", first), ("second", second)):
            files.append(tmp_path / f"{name}.json")
            files[-1].write_bytes(encode(result))
        capsys.readouterr()
        exit_code = compare.run(cli._parser().parse_args(["compare", *map(str, files), "--json"]))
        return exit_code, json.loads(capsys.readouterr().out)

    return do


def audit_outputs(lake: Lake, window: Window) -> Result:
    """Audit what the worker has delivered; every finding is an example."""
    return Auditor(lambda: lake.spark, lake.settings, Options(window, verdicts=False, examples=10_000)).run()


def named(result: Result) -> Counter[tuple[Kind, str | None]]:
    """Count the findings of a result by kind and id."""
    found: Counter[tuple[Kind, str | None]] = Counter()
    for one in result.findings:
        for example in one.examples:
            found[one.kind, example.id] += example.count
    return found


def untrue_lines(deployment: Deployment) -> int:
    """Count the lines of flush records that count a lost entry as filed."""
    return sum(
        any(
            number % PARTITIONS == line.partition and line.first_offset <= number // PARTITIONS < line.next_offset
            for number in LOST
        )
        for flush in deployment.flush_records()
        for line in flush.topic_partitions
    )


def ids_of(some: list[dict[str, Any]]) -> list[str]:
    """The ids of a comparison's list."""
    return sorted(one["id"] for one in some)


def test_the_same_losses_in_both_witnesses_are_named_alike(
    deployment: Deployment,
    with_losses: dict[str, str],
    archived: list[Row],
    lake_of: Callable[..., Lake],
    compare_results: Callable[..., tuple[int, dict[str, Any]]],
    tmp_path: Path,
) -> None:
    """Entries that neither the product nor the older system has: both audits name them and no other."""
    lost = [f"id-{number}" for number in LOST]
    lake = lake_of(deployment, **with_losses, **SETTINGS)
    older_system.write(older_system.archive(row for row in archived if row["log_id"] not in lost), tmp_path / "csv")
    file = tmp_path / "csv.json"
    asked = ["audit", "--against", "csv", "--csv", str(tmp_path / "csv"), "--json", str(file), "--examples", "1000"]
    assert audit.run(lake.settings, cli._parser().parse_args(asked)) == ExitCode.FINDINGS
    by_csv, by_outputs = decode(file.read_bytes()), audit_outputs(lake, EVERYTHING)
    expected = Counter({(Kind.MISSING, one): 1 for one in lost})
    assert named(by_csv) == expected
    assert named(by_outputs) == expected + Counter({(Kind.FLUSH_WRONG, None): untrue_lines(deployment)})

    counts, archive = by_csv.counts, by_csv.archive
    entries = RECORDS + 2 * RECORDS // SEVERAL_EVERY
    without_user, without_id = RECORDS // 20, RECORDS // 30
    assert (counts.records, counts.entries, counts.deliverable) == (RECORDS, entries, entries - without_user)
    assert archive is not None
    assert (archive.rows, archive.rows_without_id, archive.entries_without_id) == (entries - 3, without_id, without_id)
    assert (archive.rows_dead, archive.rows_not_judged, archive.broken_lines) == (without_user, 0, 0)
    assert by_csv.could_not_tell == []

    exit_code, compared = compare_results(by_outputs, by_csv)
    assert (exit_code, compared["agrees"]) == (ExitCode.FINDINGS, True)
    (missing,) = compared["compared"]
    assert (ids_of(missing["both"]), missing["only_first"], missing["only_second"]) == (sorted(lost), [], [])


def test_faults_of_the_archive_are_told_from_losses_of_the_product(
    deployment: Deployment,
    with_losses: dict[str, str],
    archived: list[Row],
    lake_of: Callable[..., Lake],
    compare_results: Callable[..., tuple[int, dict[str, Any]]],
    s3: S3Helper,
) -> None:
    """Rows dropped, doubled, broken, altered, moved, invented, in a window on S3: each is the archive's alone."""
    variables = with_losses | SETTINGS | {"PIPELINE_CSV__FOLDERS": older_system.FOLDERS}
    lake = lake_of(deployment, **variables)
    bucket = s3.create_bucket(Names("archive").bucket())
    for key, content in faulty(archived).items():
        s3.client.put_object(Bucket=bucket, Key=f"old/{key}", Body=content)
    by_csv = audit_archive(lake.spark, lake.settings, f"s3://{bucket}/old", WINDOW, examples=10_000)
    by_outputs = audit_outputs(lake, EVERYTHING)
    lost, lacking = {"id-100", "id-181"}, {"id-95", "id-130", "id-150"}
    alone = {
        Kind.MISSING: lacking,
        Kind.DUPLICATED: {"id-121"},
        Kind.UNEXPECTED: {"invented"},
        Kind.MISPLACED: {"id-140", "id-142"},
        Kind.ALTERED: {"id-141"},
    }
    of_files = Counter({(Kind.CSV_BROKEN, None): 2, (Kind.CSV_UNREADABLE, None): 1})
    assert named(by_csv) == of_files + Counter((kind, one) for kind, ids in alone.items() for one in ids)
    unborne = Counter({(Kind.FLUSH_WRONG, None): untrue_lines(deployment)})
    assert named(by_outputs) == unborne + Counter((Kind.MISSING, f"id-{number}") for number in LOST)

    archive = by_csv.archive
    assert archive is not None
    # Hours 1 to 3 are read: 180 records, 15 of them with three entries, two dropped, one broken, two that are new.
    assert (archive.rows, archive.rows_without_id, archive.broken_lines) == (180 + 30 - 3 + 2, 6, 2)
    # The window has 104 records, 9 of them with three entries, 4 without id; two rows are in excess.
    assert archive.rows_compared == 104 + 18 - 4 - 3 + 2
    assert archive.rows_not_judged == archive.rows - archive.rows_compared - archive.rows_without_id
    assert (by_csv.counts.records, archive.entries_without_id, by_csv.could_not_tell) == (104, 4, [])
    # The last records of the window are 192, 193 and 194; what is read ends at minute 220.
    window_next = {one.partition: (one.window_next_offset, one.next_offset) for one in by_csv.coverage}
    assert window_next == {0: (65, 74), 1: (65, 73), 2: (65, 73)}

    exit_code, compared = compare_results(by_outputs, by_csv)
    assert (exit_code, compared["agrees"]) == (ExitCode.FINDINGS, False)
    assert {one["kind"]: set(ids_of(one["only_second"])) for one in compared["compared"]} == alone
    assert {one["kind"]: set(ids_of(one["only_first"])) for one in compared["compared"] if one["only_first"]} == {
        Kind.MISSING: lost
    }
    assert not any(one["both"] for one in compared["compared"])
    assert compared["second"]["beside"] == {Kind.CSV_BROKEN: 2, Kind.CSV_UNREADABLE: 1}
    assert "3 missing in the archive alone, not in the outputs: lost on the way to the archive" in compared["judgement"]


def faulty(archived: list[Row]) -> dict[str, bytes]:
    """An archive with faults, compressed; some are before the window, and are not to be named."""
    rows = {row["log_id"]: row for row in archived if row["log_id"]}
    lacking = [rows[f"id-{number}"] for number in (95, 150, 10)]
    kept = [row for row in archived if row not in lacking]
    kept += [rows["id-121"], rows["id-122"] | {"log_id": "invented"}, rows["id-5"] | {"log_id": "before the window"}]
    rows["id-140"]["who"] = "somebody else"
    rows["id-141"] |= {"message": "said nothing", "number": 7}
    rows["id-142"]["written"] = rows["id-182"]["written"]
    files = older_system.archive(kept)
    for path, content in files.items():
        # a quote that is not closed takes the second line of this row along, but not its neighbours
        files[path] = content.replace(b"id-130,user-2,", b'id-130,"user-2,')
    empty = older_system.archive([rows["id-160"]])
    (path,) = older_system.compress(empty)
    header = next(iter(empty.values())).splitlines(keepends=True)[0]
    return older_system.compress(files) | {path.replace("log", "more"): gzip.compress(header)[:-6]}
