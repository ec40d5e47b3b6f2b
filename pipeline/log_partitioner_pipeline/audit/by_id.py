"""Source and an older system's archive side by side by unique id, the n-th of an id with its n-th row.

Owns the rules for findings about rows that have no position in the source. An id that the source repeats is compared by
number alone, because nobody knows which of its rows is which entry's. One shuffle by id; no list grows with the number
of times that an id is there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import Window
from pyspark.sql import functions as F

from log_partitioner.formats.findings import Kind
from log_partitioner_pipeline.audit.frames import ENTRY_KEY

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_ENTRY = [*ENTRY_KEY, "timestamp_ms", "deliverable", "user", "date", "hour", "event_time_us", "values", "in_window"]
_FIRST = [*ENTRY_KEY, "timestamp_ms", "user", "date", "hour"]
_ROW = ["file", "line", "user", "date", "hour", "event_time_us", "time_text", "values"]
_MICROSECONDS = 1_000_000
FINDINGS = "array<struct<kind string, count bigint, text string>>"


class ArchiveRules(NamedTuple):
    """The rules by which a row of the archive is wrong.

    `values` are the names of the columns to compare. Rows whose time is in [from_us, until_us) must have an entry in
    the source; if `from_us` is None, the beginning is open. `no_user` is the name that the source gives to a missing
    user.
    """

    values: tuple[str, ...]
    time_tolerance_s: float
    no_user: str | None
    from_us: int | None
    until_us: int


def compare(source: DataFrame, archived: DataFrame, rules: ArchiveRules) -> DataFrame:
    """Return one row per entry with an id (`frames.IDENTIFIED` with `in_window`) and its row, or of one of both.

    Columns are those of the entry; if there is none, those of the id's first entry or of the row itself; `in_source`,
    `in_archive`, `of_window` (the id is of the window), `is_judged` (a row that the source does not know is a finding),
    and `findings`.
    """
    entries = source.where(F.col("id").isNotNull() & (F.col("index") >= 0))
    sides = entries.select("id", F.struct(*_ENTRY).alias("s")).unionByName(
        archived.where(F.col("id").isNotNull()).select("id", F.struct(*_ROW).alias("c")), allowMissingColumns=True
    )
    of_id = Window.partitionBy("id")
    is_entry = F.col("s").isNotNull()
    order = [
        F.coalesce(F.col("s.deliverable"), F.lit(True)).desc(),  # noqa: FBT003 - a value of SQL
        F.coalesce("s.event_time_us", "c.event_time_us").asc_nulls_last(),
        *[F.col(f"s.{name}") for name in ENTRY_KEY],
        *[F.col(f"c.{name}") for name in ("file", "line")],
    ]
    numbered = sides.select(
        "id",
        "s",
        "c",
        F.row_number().over(Window.partitionBy("id", is_entry).orderBy(*order)).alias("nth"),
        F.count("s").over(of_id).alias("entries"),
        F.count("c").over(of_id).alias("rows"),
        F.max(F.coalesce("s.in_window", F.lit(False))).over(of_id).alias("of_window"),  # noqa: FBT003
        F.min(F.when(is_entry, F.struct(*[f"s.{name}" for name in _FIRST]))).over(of_id).alias("first"),
    )
    pairs = numbered.groupBy("id", "nth").agg(
        F.first("s", ignorenulls=True).alias("s"),
        F.first("c", ignorenulls=True).alias("c"),
        *[F.first(name).alias(name) for name in ("entries", "rows", "of_window", "first")],
    )
    judged = pairs.withColumn("is_judged", _is_judged(rules))
    return judged.select(
        *[F.coalesce(f"s.{name}", f"first.{name}").alias(name) for name in (*ENTRY_KEY, "timestamp_ms")],
        F.coalesce("s.user", "first.user", _user_of_row()).alias("user"),
        *[F.coalesce(f"s.{name}", f"first.{name}", f"c.{name}").alias(name) for name in ("date", "hour")],
        "id",
        "nth",
        F.col("s").isNotNull().alias("in_source"),
        F.col("c").isNotNull().alias("in_archive"),
        F.coalesce("s.deliverable", F.lit(False)).alias("deliverable"),  # noqa: FBT003
        F.coalesce("s.in_window", F.lit(False)).alias("in_window"),  # noqa: FBT003
        "of_window",
        "is_judged",
        (F.col("c").isNotNull() & F.col("c.event_time_us").isNull()).alias("is_timeless"),
        F.col("c.file").alias("object"),
        _findings(rules).alias("findings"),
    )


def _is_judged(rules: ArchiveRules) -> Column:
    """Return whether the source must have had the id of a row that it does not have."""
    time_us = F.col("c.event_time_us")
    is_in = time_us < rules.until_us
    if rules.from_us is not None:
        is_in = is_in & (time_us >= rules.from_us)
    return F.coalesce((F.col("entries") == 0) & is_in, F.lit(False))  # noqa: FBT003


def _findings(rules: ArchiveRules) -> Column:
    entry, row = F.col("s"), F.col("c")
    is_expected = entry["deliverable"] & entry["in_window"]
    at = F.concat(F.lit("line "), row["line"].cast("string"))
    found = [
        (
            Kind.MISSING,
            is_expected & row.isNull(),
            F.when(F.col("rows") == 0, F.lit("in no row of the archive")).otherwise(
                F.format_string("the source has its id %d times, the archive %d times", "entries", "rows")
            ),
        ),
        (
            Kind.DUPLICATED,
            entry.isNull() & (F.col("entries") > 0) & F.col("of_window"),
            F.concat(at, F.format_string(": the archive has the id %d times, the source %d times", "rows", "entries")),
        ),
        (Kind.UNEXPECTED, F.col("is_judged"), F.concat(at, F.lit(": the source has no entry of this id"))),
    ]
    is_comparable = is_expected & row.isNotNull() & (F.col("entries") == 1)
    is_off = _is_off(rules)
    is_elsewhere = is_off & F.coalesce((row["date"] != entry["date"]) | (row["hour"] != entry["hour"]), F.lit(False))  # noqa: FBT003
    altered = F.concat_ws(", ", F.when(is_off & ~is_elsewhere, F.lit("time")), *_other_values(rules))
    found += [
        (
            Kind.MISPLACED,
            is_comparable & (_has_other_user(rules) | is_elsewhere),
            F.concat(
                at,
                F.lit(": belongs to "),
                _place(entry, entry["user"]),
                F.lit(", is under "),
                _place(row, _user_of_row()),
            ),
        ),
        (Kind.ALTERED, is_comparable & (altered != ""), F.concat(at, F.lit(": not as in the source: "), altered)),
    ]
    each = [
        F.when(
            F.coalesce(condition, F.lit(False)),  # noqa: FBT003
            F.struct(F.lit(kind).alias("kind"), F.lit(1).cast("bigint").alias("count"), text.alias("text")),
        )
        for kind, condition, text in found
    ]
    return F.filter(F.array(*each), lambda one: one.isNotNull()).cast(FINDINGS)


def _has_other_user(rules: ArchiveRules) -> Column:
    """Return whether a row of a file with a column of users has another than its entry; an empty one is nobody."""
    user = F.coalesce(_user_of_row(), F.lit(rules.no_user).cast("string"))
    return F.col("c.user").isNotNull() & ~user.eqNullSafe(F.col("s.user"))


def _user_of_row() -> Column:
    return F.nullif(F.col("c.user"), F.lit(""))


def _is_off(rules: ArchiveRules) -> Column:
    """Return whether a row has a time that differs from its entry's."""
    tolerance = round(rules.time_tolerance_s * _MICROSECONDS)
    is_off = F.abs(F.col("c.event_time_us") - F.col("s.event_time_us")) > tolerance
    has_time = F.col("c.time_text").isNotNull()
    return has_time & F.coalesce(is_off, F.lit(True))  # noqa: FBT003 - a value of SQL


def _other_values(rules: ArchiveRules) -> list[Column]:
    """Name the columns whose values differ, without columns that the file does not have."""
    return [
        F.when(
            F.when(entry["is_text"], entry["digest"] != row["text"]).otherwise(
                ~entry["digest"].eqNullSafe(row["value"]) & row["text"].isNotNull()
            ),
            F.lit(name),
        )
        for nth, name in enumerate(rules.values)
        for entry, row in [(F.get("s.values", F.lit(nth)), F.get("c.values", F.lit(nth)))]
    ]


def _place(side: Column, user: Column) -> Column:
    hour = F.lpad(side["hour"].cast("string"), 2, "0")
    return F.concat_ws(" ", user, side["date"], hour)
