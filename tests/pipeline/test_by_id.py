"""Source and archive compared by unique id: numbers as a model counts them, and what makes a row wrong."""

import random
from collections import Counter
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from log_partitioner.formats.findings import Kind
from log_partitioner.proof.oracle.json_text import parse_rounding
from log_partitioner_pipeline.archive.by_id import ArchiveRules, compare
from log_partitioner_pipeline.archive.files import ARCHIVED
from log_partitioner_pipeline.archive.rows import value_of_entry, value_of_text
from log_partitioner_pipeline.archive.source import IDENTIFIED

SECOND_US = 1_000_000
HOUR_US = 3600 * SECOND_US
# 05:00 of a day; rows without entry are judged from there on for an hour.
T0_US = 1_772_600_400 * SECOND_US
RULES = ArchiveRules(
    values=("n", "text"),
    time_tolerance_s=1,
    from_us=T0_US,
    until_us=T0_US + HOUR_US,
)
Record = dict[str, Any]


class Sides:
    """Both sides in the making; offsets and lines count up."""

    def __init__(self) -> None:
        self.entries: list[Record] = []
        self.rows: list[Record] = []

    def entry(self, entry_id: str | None, **changed: Any) -> None:
        """An entry of the source, one second after the one before."""
        number = len(self.entries)
        entry = {
            "topic": "logs",
            "partition": 0,
            "offset": number,
            "index": 0,
            "timestamp_ms": T0_US // 1000 + number,
            "deliverable": True,
            "user": "u",
            "date": "2026-03-04",
            "hour": 5,
            "event_time_us": T0_US + number * SECOND_US,
            "id": entry_id,
            "values": [value_of_entry(7), value_of_entry("t")],
            "in_window": True,
        }
        self.entries.append(entry | changed)

    def row(self, row_id: str | None, **changed: Any) -> None:
        """A row of the archive, at the time of the newest entry."""
        time_us = self.entries[-1]["event_time_us"]
        row = {
            "file": "f",
            "line": len(self.rows) + 1,
            "id": row_id,
            "user": "u",
            "date": "2026-03-04",
            "hour": 5,
            "event_time_us": time_us,
            "time_text": "a time",
            "values": [value_of_text("7", parse_rounding), value_of_text("t", parse_rounding)],
        }
        self.rows.append(row | changed)

    def compare(self, spark: SparkSession) -> list[Any]:
        """Compare; gives what was found as rows."""
        marked = T.StructType([*IDENTIFIED.fields, T.StructField("in_window", T.BooleanType())])
        source = _frame(spark, self.entries, marked)
        archived = _frame(spark, self.rows, ARCHIVED)
        return compare(source, archived, RULES).select("id", "offset", "object", F.inline("findings")).collect()


def _frame(spark: SparkSession, records: list[Record], schema: T.StructType) -> DataFrame:
    return spark.createDataFrame([tuple(one.get(name) for name in schema.names) for one in records], schema)


def model(sides: Sides, entry_id: str) -> Counter[Kind]:
    """How much of each kind an id has: deliverable entries have rows first, in their order."""
    entries = [one for one in sides.entries if one["id"] == entry_id]
    entries.sort(key=lambda one: (not one["deliverable"], one["offset"]))
    rows = [one for one in sides.rows if one["id"] == entry_id]
    of_window = any(one["in_window"] for one in entries)
    judged = [one for one in rows if one["event_time_us"] and T0_US <= one["event_time_us"] < T0_US + HOUR_US]
    return +Counter(
        {
            Kind.MISSING: sum(one["deliverable"] and one["in_window"] for one in entries[len(rows) :]),
            Kind.DUPLICATED: max(0, len(rows) - len(entries)) if entries and of_window else 0,
            Kind.UNEXPECTED: 0 if entries else len(judged),
        }
    )


def test_ids_count_as_a_model_counts_them(spark: SparkSession) -> None:
    """Ids that source and archive have in any numbers, dead entries, other windows, rows without a time or an id."""
    choice, sides = random.Random(5), Sides()
    sides.entry("first")
    names = [f"id-{number}" for number in range(150)]
    for name in choice.choices(names, k=250):
        sides.entry(name, deliverable=choice.random() < 0.8, in_window=choice.random() < 0.7)
    for name in choice.choices([*names, *(f"new-{number}" for number in range(40))], k=280):
        time_us = choice.choice([T0_US - 1, T0_US, T0_US + 600 * SECOND_US, T0_US + HOUR_US, None])
        sides.row(name, event_time_us=time_us)
    for _ in range(3):
        sides.entry(None)
        sides.row(None)
    wanted = {name: model(sides, name) for name in {one["id"] for one in (*sides.entries, *sides.rows)} if name}
    numbers = {Kind.MISSING, Kind.DUPLICATED, Kind.UNEXPECTED}
    found: dict[str, Counter[Kind]] = {name: Counter() for name in wanted}
    for row in sides.compare(spark):
        if row["kind"] in numbers:
            found[row["id"]][Kind(row["kind"])] += 1
    assert found == wanted
    assert set().union(*wanted.values()) == numbers


WRONG: dict[str, tuple[Record, set[Kind]]] = {
    "as it is": ({}, set()),
    "another user": ({"user": "v"}, {Kind.MISPLACED}),
    "no user": ({"user": ""}, {Kind.MISPLACED}),
    "no column of users": ({"user": None}, set()),
    "a second late": ({"event_time_us": SECOND_US}, set()),
    "later than that": ({"event_time_us": SECOND_US + 1}, {Kind.ALTERED}),
    "earlier than that": ({"event_time_us": -SECOND_US - 1}, {Kind.ALTERED}),
    "another hour": ({"event_time_us": HOUR_US, "hour": 6}, {Kind.MISPLACED}),
    "in another hour by a blink": ({"event_time_us": SECOND_US, "hour": 6}, set()),
    "no time": ({"event_time_us": None, "time_text": None, "date": None, "hour": None}, set()),
    "a time that is none": ({"event_time_us": None, "date": None, "hour": None}, {Kind.ALTERED}),
    "another number": ({"values": ["8", "t"]}, {Kind.ALTERED}),
    "no number": ({"values": ["", "t"]}, {Kind.ALTERED}),
    "the number otherwise": ({"values": ["7.0", "t"]}, set()),
    "another text, another user": ({"values": ["7", "T"], "user": "v"}, {Kind.ALTERED, Kind.MISPLACED}),
    "no such column": ({"values": [None, "t"]}, set()),
    "no such columns": ({"values": None}, set()),
}


def test_rows_are_wrong_by_place_time_or_value(spark: SparkSession) -> None:
    """One difference after the other; ids that the source repeats, dead entries and other windows are not judged."""
    sides = Sides()
    for name, (changed, _) in WRONG.items():
        sides.entry(name)
        sides.row(name, **_changed(sides, changed))
    for name, others in {
        "repeated": {},
        "dead": {"deliverable": False},
        "of another window": {"in_window": False},
    }.items():
        sides.entry(name, **others)
        sides.row(name, user="v")
        if name == "repeated":
            sides.entry(name)
            sides.row(name, user="v")
    found = sides.compare(spark)
    named: dict[str, set[Kind]] = {name: set() for name in WRONG}
    for row in found:
        named.setdefault(row["id"], set()).add(Kind(row["kind"]))
    assert named == {name: kinds for name, (_, kinds) in WRONG.items()}
    texts = {row["id"]: row["text"] for row in found}
    assert texts["another number"].endswith("not as in the source: n")
    assert texts["later than that"].endswith("not as in the source: time")
    assert texts["another user"].endswith("belongs to u 2026-03-04 05, is under v 2026-03-04 05")


def _changed(sides: Sides, changed: Record) -> Record:
    """Times are relative to the entry's, values are texts."""
    changed = dict(changed)
    if changed.get("event_time_us") is not None:
        changed["event_time_us"] += sides.entries[-1]["event_time_us"]
    if changed.get("values") is not None:
        changed["values"] = [None if one is None else value_of_text(one, parse_rounding) for one in changed["values"]]
    return changed
