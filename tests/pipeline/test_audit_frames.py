"""Steps of the audit that are frames in, frames out: small frames, no brokers and no objects."""

from collections import Counter
from itertools import chain
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from log_partitioner.config.s3_settings import S3Settings
from log_partitioner.formats.findings import Kind
from log_partitioner.formats.model import TopicPartition
from log_partitioner_pipeline.audit import frames
from log_partitioner_pipeline.audit.accounts import coverage, judge_flushes, without_offset
from log_partitioner_pipeline.audit.collect import collect_examples, collect_ids, count_by_kind, findings_by_hour
from log_partitioner_pipeline.audit.compare import compare
from log_partitioner_pipeline.audit.findings import row_findings, union
from log_partitioner_pipeline.audit.ground import Announced, find_ground
from log_partitioner_pipeline.audit.result import Window
from log_partitioner_pipeline.audit.scope import Asked, Source
from log_partitioner_pipeline.audit.sides import reach_of
from log_partitioner_pipeline.audit.stored import sort_out
from log_partitioner_pipeline.kafka import Ends
from log_partitioner_pipeline.topics import lines_of
from tests.pipeline.conftest import pipeline_variables, settings_of

COMPARED = "deliverable boolean, id string, in_files int, in_dead_letters int, row_ids array<string>"
REFERENCES = "reference_id string, location struct<bucket string, object string>, batch_id string, worker string"
LINES = "topic string, partition int, first_offset long, next_offset long, batch_id string, worker string"


def test_ids_of_entries_that_may_be_dead_and_are_need_no_row(spark: SparkSession) -> None:
    """One in a file, one dead though it could live, one that is neither, one that is dead as it must be."""
    compared = spark.createDataFrame(
        [
            (True, "filed", 1, 0, ["filed"]),
            (True, "dead", 0, 1, []),
            (True, "lost", 0, 0, []),
            (False, "nobody's", 0, 1, []),
            (True, "both", 1, 1, ["both"]),
        ],
        COMPARED,
    )
    ids = collect_ids(compared)
    assert (ids.in_source, ids.in_files, ids.missing, ids.surplus) == (3, 2, 1, 0)
    assert ids.examples == ["lost: 1 in the source, 0 in files"]


def rows_of(spark: SparkSession, *said: dict[str, object]) -> DataFrame:
    """Give rows of `frames.ROWS` that say only this."""
    absent = dict.fromkeys(frames.ROWS.names)
    return spark.createDataFrame([tuple((absent | one).values()) for one in said], frames.ROWS)


def test_what_is_wrong_with_a_packed_object_is_said_once_and_of_each_of_its_hours(spark: SparkSession) -> None:
    """The first reference of the object is not of the window, the others are, of two hours."""
    altered = {"kind": str(Kind.OBJECT_ALTERED), "text": "s3://b/packed: etag", "user": "u", "date": "2026-03-04"}
    wrong = {"kind": str(Kind.REFERENCE_WRONG), "user": "u", "date": "2026-03-04", "hour": 6}
    rows = rows_of(
        spark,
        altered | {"reference_id": "r0", "hour": 5},
        altered | {"reference_id": "r1", "hour": 6},
        altered | {"reference_id": "r2", "hour": 6},
        altered | {"reference_id": "r3", "hour": 7},
        altered | {"reference_id": "r4", "hour": 7, "text": "s3://b/packed: 1 bytes"},
        wrong | {"reference_id": "r1", "text": "the same"},
        wrong | {"reference_id": "r2", "text": "the same"},
    )
    references = spark.createDataFrame([(f"r{n}", ("b", "packed"), "b", "w") for n in range(5)], REFERENCES)
    found = union([row_findings(rows, references.where("reference_id != 'r0'"))])
    assert count_by_kind(found) == {Kind.OBJECT_ALTERED: 2, Kind.REFERENCE_WRONG: 2}
    assert {row["hour"]: row["findings"] for row in findings_by_hour(found).collect()} == {
        6: {Kind.OBJECT_ALTERED: 1, Kind.REFERENCE_WRONG: 2},
        7: {Kind.OBJECT_ALTERED: 2},
    }
    examples = collect_examples(found, references, spark.createDataFrame([], LINES), per_kind=10)
    altered_ones = [(one.object, one.text, one.count) for one in examples[Kind.OBJECT_ALTERED]]
    assert sorted(altered_ones) == [("packed", "s3://b/packed: 1 bytes", 1), ("packed", "s3://b/packed: etag", 1)]


def test_what_a_row_no_longer_has_is_not_what_the_source_has(spark: SparkSession) -> None:
    """Rows of retired objects are the table's, where any column may have been emptied; so are the table's own."""
    at = {"topic": "t", "partition": 0, "index": 0, "user": "u", "event_time_us": 5, "timestamp_ms": 5, "digest": b"d"}
    filed = at | {"date": "2026-03-04", "hour": 5, "meta_user": "u", "reference_id": "r", "taken": True}
    emptied: list[dict[str, object]] = [{}, {"meta_user": None}, {"event_time_us": None}, {"digest": None}]

    def frame(kind: T.StructType, rows: list[dict[str, object]]) -> DataFrame:
        absent = dict.fromkeys(kind.names)
        told = [absent | {name: value for name, value in row.items() if name in absent} for row in rows]
        return spark.createDataFrame([tuple(row.values()) for row in told], kind)

    source = {"deliverable": True, "whole": False, "reasons": "", "entries": 1, "date": "2026-03-04", "hour": 5}
    compared = compare(
        source=frame(frames.SOURCE, [at | source | {"offset": number} for number in range(4)]),
        rows=frame(frames.ROWS, [filed | {"offset": number} | one for number, one in enumerate(emptied)]),
        dead=frame(frames.DEAD, []),
        table=frame(
            frames.TABLE,
            [
                at | {"offset": number, "reference_id": "r"} | ({"user": None} if "meta_user" in one else one)
                for number, one in enumerate([*emptied[:2], {}, {}])
            ],
        ),
        spans=frame(frames.SPAN, [{"topic": "t", "partition": 0, "first": 0, "next": 4}]),
        window=Window(from_ms=None, until_ms=None, padding_s=0),
    )
    found = {row["offset"]: [one["kind"] for one in row["findings"]] for row in compared.collect()}
    assert found == {0: [], 1: [Kind.MISPLACED], 2: [Kind.META], 3: [Kind.ALTERED]}


def announced_of(spark: SparkSession, **given: DataFrame) -> Announced:
    """Give what was announced, as far as a test needs it."""
    none = spark.createDataFrame([], "nothing string")
    return Announced(**(dict.fromkeys(Announced._fields, none) | given))


COUNTS = ("records", "entries", "dead_letters")
LINE = ("first_offset", "next_offset", "min_offset", "max_offset", "timestamp_max_ms", *COUNTS)
TOTALS = (*COUNTS, "entries_in_files", "references", "dead_letter_records", "bytes")
FLUSHES = (
    "message_partition int, message_offset long, batch_id string, worker string, generation long, group_id string, "
    "wrong_parts string, topic_partitions array<struct<topic string, partition int, "
    f"{', '.join(f'{name} long' for name in LINE)}>>, totals struct<{', '.join(f'{name} long' for name in TOTALS)}>"
)
FILED = (
    "reference_id string, batch_id string, worker string, generation long, user string, date string, hour int, "
    "sources array<struct<topic string, partition int, first_offset long, next_offset long, min_offset long, "
    "max_offset long, entries long>>"
)


class Flushes:
    """Flush records of batches, each with one line of ten offsets, and what the batches have published."""

    def __init__(self) -> None:
        self._flushes: list[tuple[object, ...]] = []
        self._references: list[tuple[object, ...]] = []
        self._dead: list[dict[str, object]] = []

    def add(self, *, says: tuple[int, int, int, int], filed: list[int], rejected: list[int]) -> None:
        """Add a batch: `says` entries, dead ones, references, dead letters; entries of each message."""
        number = len(self._flushes)
        batch, first = f"b{number}", number * 10
        entries, dead, references, letters = says
        counts = (entries, entries, dead)
        line = ("t", 0, first, first + 10, None, None, None, *counts)
        totals = (*counts, entries - dead, references, letters, 0)
        self._flushes.append((0, number, batch, "w", 1, "g", None, [line], totals))
        for nth, count in enumerate(filed):
            source = ("t", 0, first, first + 10, first, first, count)
            self._references.append((f"{batch}-{nth}", batch, "w", 1, "u", "2026-03-04", 5, [source]))
        for nth, count in enumerate(rejected):
            place = {"topic": "t", "partition": 0, "offset": first + nth, "reason": "no_user", "batch_id": batch}
            self._dead += [place | {"index": index, "first_index": 0} for index in range(count)]

    def repeat(self) -> None:
        """Let the last flush record come again, and all dead letters."""
        self._flushes.append((0, 99, *self._flushes[-1][2:]))
        self._dead *= 2

    def miscounted(self, spark: SparkSession) -> Counter[tuple[object, ...]]:
        """Give where what is found, in a window to which the first flush does not belong."""
        references = spark.createDataFrame(self._references, FILED)
        absent = dict.fromkeys(frames.DEAD.names)
        rows = [tuple((absent | one).values()) for one in self._dead]
        announced = announced_of(
            spark,
            references=references,
            by_batch=references.groupBy("batch_id").agg(F.count("*").alias("references")),
            dead=spark.createDataFrame(rows, frames.DEAD),
        )
        flushes = spark.createDataFrame(self._flushes, FLUSHES)
        found = judge_flushes(
            flushes,
            announced._replace(lines=lines_of(flushes)),
            spark.createDataFrame([], frames.SOURCE),
            spark.createDataFrame([], frames.SPAN),
            windows={TopicPartition("t", 0): (10, 1000)},
            excused=("b10",),
            short=spark.createDataFrame([("b11",)], "batch_id string"),
        )
        return Counter((row["kind"], row["offset"], row["batch_id"], row["text"]) for row in found.collect())


def test_what_flush_records_say_is_what_was_published(spark: SparkSession) -> None:
    """Where messages are gone, or too many, that is said and nothing of their entries."""
    flushes = Flushes()
    flushes.add(says=(10, 0, 2, 0), filed=[5, 4], rejected=[1])  # not of the window
    flushes.add(says=(10, 3, 2, 2), filed=[5, 2], rejected=[1, 2])  # true
    flushes.add(says=(9, 0, 2, 0), filed=[5, 4], rejected=[])  # true
    flushes.add(says=(10, 0, 2, 0), filed=[5, 4], rejected=[1])
    flushes.add(says=(10, 1, 1, 1), filed=[10], rejected=[])  # a dead letter is missing: files have one too many
    flushes.add(says=(10, 0, 3, 0), filed=[5, 4], rejected=[])  # a reference is missing
    flushes.add(says=(10, 0, 1, 0), filed=[9, 1, 1], rejected=[])  # one too many
    flushes.add(says=(10, 2, 1, 2), filed=[8], rejected=[2])  # two in one dead letter
    flushes.add(says=(9, 0, 1, 0), filed=[10], rejected=[])  # an entry too many
    flushes.repeat()
    flushes.add(says=(10, 0, 3, 0), filed=[5, 4], rejected=[])  # missing for a reason
    flushes.add(says=(10, 0, 3, 0), filed=[5, 4], rejected=[])  # perhaps gone with the beginning of the topic
    said = {
        (30, "b3"): "[30, 40): 10 entries in files, its references say 9; 0 entries dead, its dead letters say 1",
        (40, "b4"): "[40, 50): 9 entries in files, its references say 10",
        (None, "b7"): "its flush record says 2 dead letters, there are 1",
        (80, "b8"): "[80, 90): 9 entries in files, its references say 10",
    }
    assert flushes.miscounted(spark) == Counter(
        (Kind.FLUSH_WRONG, *place, text) for place, text in said.items()
    ) + Counter(
        [
            (Kind.REFERENCE_MISSING, None, "b5", "its flush record says 3 references, there are 2"),
            (Kind.REFERENCE_WRONG, None, "b6", "its flush record says 1 references, there are 3"),
        ]
    )


def test_objects_are_sorted_by_who_names_them(spark: SparkSession) -> None:
    """Old ones and a new one; of backfills that have published all, nothing yet, and that never had a manifest."""
    hour = "p/user=u/date=2026-03-04/hour=05"
    of_run = {
        run: [f"{hour}/backfill-{run}-0123abcd-7.avro", f"p/_dead-letters/backfill-{run}-0123abcd-8.record.json"]
        for run in ("done", "x", "x-1", "half", "dead")
    }
    manifests = {run: f"p/_backfill/{run}/manifest.json" for run in ("done", "x-1", "half")}
    ages = dict.fromkeys(
        [*chain(*of_run.values()), f"{hour}/b-1.avro", "p/_schemas/named.avsc", "p/_dead-letters/l"], 1
    )
    ages |= {"p/pack/b-2.avro": 1, "p/pack/date=2026-03-04/hour=05/b-3.avro": 1}
    ages |= {f"{hour}/stray.avro": 1, f"{hour}/new.avro": 9, "p/_schemas/stray.avsc": 1, "p/deeper/user=u/b-1.avro": 1}
    ages |= dict.fromkeys(manifests.values(), 9) | {"p/_backfill/dead/part.json": 1}
    schemas = ["p/_schemas/named.avsc", "p/_schemas/gone.avsc", "before/_schemas/elsewhere.avsc"]
    announced = announced_of(
        spark,
        references=spark.createDataFrame(
            [(("bucket", name), schema) for name in (f"{hour}/b-1.avro", "p/pack/b-2.avro") for schema in schemas]
            + [(("other", f"{hour}/stray.avro"), "p/_schemas/of-other.avsc")],
            "location struct<bucket string, object string>, schema_object string",
        ),
        dead=spark.createDataFrame([("p/_dead-letters/l",), (None,)], "object string"),
        runs=spark.createDataFrame(
            [("backfill-done", 2, 2), ("backfill-half", 1, 2)], "batch_id string, published long, messages long"
        ),
    )
    listed = spark.createDataFrame(
        [(key, 5, age) for key, age in ages.items()], "object string, size long, modified_ms long"
    )
    found = sort_out(listed, announced, S3Settings(bucket="bucket", prefix="p"), before_ms=5)
    names = {
        name: sorted(row["object"] for row in frame.select("object").collect())
        for name, frame in found._asdict().items()
        if name != "old"
    }
    orphans = [
        f"{hour}/stray.avro",
        "p/pack/date=2026-03-04/hour=05/b-3.avro",
        *of_run["done"],
        *of_run["x"],
        *of_run["dead"],
    ]
    assert names == {
        "orphans": sorted(orphans),
        "awaited": sorted([*of_run["x-1"], *of_run["half"], "p/_schemas/stray.avsc"]),
        "outboxes": ["p/_backfill/dead/part.json"],
        "foreign": ["p/deeper/user=u/b-1.avro"],
        "no_schemas": ["p/_schemas/gone.avsc"],
    }
    assert found.old.count() == len([age for age in ages.values() if age < 5])
    kept = listed.where(~F.col("object").endswith("/manifest.json"))
    found = sort_out(kept, announced, S3Settings(bucket="bucket", prefix="p"), before_ms=5)
    assert found.awaited.isEmpty()
    assert "p/_schemas/stray.avsc" in {row["object"] for row in found.orphans.collect()}


def test_flush_records_of_which_some_are_gone_leave_no_gap(spark: SparkSession, tmp_path: Path) -> None:
    """The topic of flush records has two partitions, one for each worker; only that of the other lost its beginning.

    A gap that is younger than the oldest record there is one.
    """
    ended = {0: [(0, 10, 1), (20, 30, 3)], 1: [(30, 40, 4)]}  # [10, 20) was the other's, [40, 50) nobody's
    flushes = spark.createDataFrame(
        [
            (number, at, f"b{begin}", "w", 1, at, [("t", 0, begin, end)])
            for number, some in ended.items()
            for begin, end, at in some
        ],
        "message_partition int, message_offset long, batch_id string, worker string, generation long, "
        "ended_at_ms long, topic_partitions array<struct<topic string, partition int, first_offset long, "
        "next_offset long>>",
    )
    tp, worker = TopicPartition("t", 0), {"LOGP_KAFKA__BOOTSTRAP_SERVERS": "no:1", "LOGP_S3__BUCKET": "none"}
    settings = settings_of(worker | {"LOGP_KAFKA__SOURCE_TOPICS": '["t"]'} | pipeline_variables(tmp_path))
    asked = Asked(
        sources=[Source(tp, Ends(0, 50), 50, 0, 0, 50, 50, committed_again=50)],
        references={TopicPartition("r", 0): (0, 9)},
        flushes={TopicPartition("f", 0): (0, 9), TopicPartition("f", 1): (4, 5)},
        dead_letters={TopicPartition("d", 0): (0, 9)},
        backfills={},
        doubts=[],
    )
    announced = announced_of(spark, flushes=flushes, lines=lines_of(flushes))
    ground = find_ground(settings, asked, announced, is_full=True)
    (span,) = ground.spans
    assert (span.answers_from, ground.from_the_start) == (30, [])
    assert ground.doubts == ["the topic of flush records no longer has its beginning"]
    gaps = coverage(announced.lines, reach_of(spark, ground.spans, {})).collect()
    assert [row["text"] for row in gaps] == ["no flush record covers [40, 50)"]


def test_topic_partition_that_was_flushed_and_has_no_offset_is_a_finding(spark: SparkSession) -> None:
    """Where flush records cover nothing of it; what they cover `coverage` tells."""
    lines = [("t", 0, 5, 5), ("t", 1, 0, 5), ("t", 2, 7, 7)]
    flushes = spark.createDataFrame(
        [("b", "w", lines)],
        "batch_id string, worker string, "
        "topic_partitions array<struct<topic string, partition int, first_offset long, next_offset long>>",
    )
    assert without_offset(flushes, []) == []
    (found,) = without_offset(flushes, [TopicPartition("t", number) for number in (1, 2)])
    assert [(row["kind"], row["partition"]) for row in found.collect()] == [(Kind.FLUSH_WRONG, 2)]
