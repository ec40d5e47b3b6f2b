"""Steps of the audit that are frames in, frames out: small frames, no brokers and no objects."""

from pyspark.sql import DataFrame, SparkSession

from pipeline.audit import frames
from pipeline.audit.collect import collect_examples, collect_ids, count_by_kind, findings_by_hour
from pipeline.audit.findings import row_findings, union
from pipeline.audit.result import Kind

COMPARED = "living boolean, id string, in_files int, in_dead_letters int, row_ids array<string>"
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
