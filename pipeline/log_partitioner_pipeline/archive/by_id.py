"""Source and archive side by side by unique id, the n-th of an id with its n-th row -> findings and counts.

Owns the rules for findings about rows that have no position in the source. An id that the source repeats is compared by
number alone, because nobody knows which of its rows is which entry's. One shuffle by id; no list grows with the number
of times that an id is there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import Window
from pyspark.sql import functions as F

from log_partitioner.formats.findings import Kind
from log_partitioner_pipeline.frames import ENTRY_KEY

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_HOUR = ["date", "hour"]
_FIRST = [*ENTRY_KEY, "timestamp_ms", "user", *_HOUR]
_ENTRY = [*_FIRST, "deliverable", "event_time_us", "values", "in_window"]
_ROW = ["file", "line", "user", *_HOUR, "event_time_us", "time_text", "values"]
_ABOUT = [*ENTRY_KEY, "timestamp_ms", "user", *_HOUR, "id", "object"]
_MICROSECONDS = 1_000_000


class ArchiveRules(NamedTuple):
    """The rules by which a row of the archive is wrong.

    `values` are the names of the columns to compare. Rows whose time is in [from_us, until_us) must have an entry in
    the source; if `from_us` is None, the beginning is open. Unless every file was read, no entry is missing.
    """

    values: tuple[str, ...]
    time_tolerance_s: float
    from_us: int | None
    until_us: int
    is_all_read: bool = True


def compare(source: DataFrame, archived: DataFrame, rules: ArchiveRules) -> DataFrame:
    """Return one row per entry with an id (`source.IDENTIFIED` with `in_window`) and its row, or of one of both.

    Columns are those of the entry; if there is none, those of the id's first entry or of the row itself; `nth` of its
    id; `is_expected` (a deliverable entry of the window), `is_dead` (another one of the window), `in_archive`,
    `of_window` (the id is of the window), `is_judged` (a row that the source should know, and does not),
    `is_timeless`, and `findings`.
    """
    found = [
        F.expr(f"if({condition}, named_struct('kind', '{kind}', 'text', {text}), null)")
        for kind, condition, text in _RULES
        if rules.is_all_read or kind is not Kind.MISSING
    ]
    return (
        _pairs(source, archived)
        .withColumns(
            {
                "is_expected": F.expr("coalesce(s.deliverable and s.in_window, false)"),
                "is_judged": F.expr(f"coalesce(entries = 0 and {_is_in('c.event_time_us', rules)}, false)"),
                "is_off": F.expr(_is_off(rules)),
                "is_moved": F.expr("coalesce(c.date != s.date or c.hour != s.hour, false)"),
            }
        )
        .withColumn("altered", F.concat_ws(", ", F.expr("if(is_off and not is_moved, 'time', null)"), *_others(rules)))
        .select(
            *[F.coalesce(f"s.{name}", f"oldest.{name}").alias(name) for name in (*ENTRY_KEY, "timestamp_ms")],
            F.expr("coalesce(s.user, oldest.user, nullif(c.user, '')) as user"),
            *[F.coalesce(f"s.{name}", f"oldest.{name}", f"c.{name}").alias(name) for name in _HOUR],
            "id",
            "nth",
            "is_expected",
            F.expr("coalesce(s.in_window and not s.deliverable, false) as is_dead"),
            F.expr("c is not null as in_archive"),
            "of_window",
            "is_judged",
            F.expr("c is not null and c.event_time_us is null as is_timeless"),
            F.expr("c.file as object"),
            F.array_compact(F.array(*found)).alias("findings"),
        )
    )


def _pairs(source: DataFrame, archived: DataFrame) -> DataFrame:
    """Bring the n-th entry `s` and the n-th row `c` of each id together, with the numbers of both."""
    entries = source.where("id is not null and index >= 0").select("id", F.struct(*_ENTRY).alias("s"))
    rows = archived.where("id is not null").select("id", F.struct(*_ROW).alias("c"))
    of_id = Window.partitionBy("id")
    order = [
        F.expr("coalesce(s.deliverable, true)").desc(),
        F.expr("coalesce(s.event_time_us, c.event_time_us)").asc_nulls_last(),
        *[F.col(name) for name in (*[f"s.{name}" for name in ENTRY_KEY], "c.file", "c.line")],
    ]
    numbered = entries.unionByName(rows, allowMissingColumns=True).select(
        "id",
        "s",
        "c",
        F.row_number().over(Window.partitionBy("id", F.col("s").isNull()).orderBy(*order)).alias("nth"),
        F.count("s").over(of_id).alias("entries"),
        F.count("c").over(of_id).alias("rows"),
        F.max(F.expr("coalesce(s.in_window, false)")).over(of_id).alias("of_window"),
        F.min(F.when(F.col("s").isNotNull(), F.struct(*[f"s.{name}" for name in _FIRST]))).over(of_id).alias("oldest"),
    )
    return numbered.groupBy("id", "nth").agg(
        *[F.first(name, ignorenulls=True).alias(name) for name in ("s", "c")],
        *[F.first(name).alias(name) for name in ("entries", "rows", "of_window", "oldest")],
    )


def _is_in(time_us: str, rules: ArchiveRules) -> str:
    is_before = f"{time_us} < {rules.until_us}"
    return is_before if rules.from_us is None else f"{is_before} and {time_us} >= {rules.from_us}"


def _is_off(rules: ArchiveRules) -> str:
    """Return whether a row has a time that is not its entry's, or none at all."""
    most_us = round(rules.time_tolerance_s * _MICROSECONDS)
    return f"coalesce(c.time_text != '' and coalesce(abs(c.event_time_us - s.event_time_us) > {most_us}, true), false)"


def _others(rules: ArchiveRules) -> list[Column]:
    """Name the columns whose values differ, without columns that the file does not have."""
    differs = (
        "if(get(s.values, {0}).is_text, get(s.values, {0}).digest != get(c.values, {0}).text, "
        "get(c.values, {0}).text is not null and not (get(s.values, {0}).digest <=> get(c.values, {0}).value))"
    )
    return [F.when(F.expr(differs.format(nth)), F.lit(name)) for nth, name in enumerate(rules.values)]


def _place(side: str) -> str:
    return f"concat_ws(' ', nullif({side}.user, ''), {side}.date, lpad(cast({side}.hour as string), 2, '0'))"


_COMPARED = "is_expected and c is not null and entries = 1"
_AT = "'line ', c.line, "
_NUMBERS_SAID = "format_string('the source has its id %d times, the archive %d times', entries, rows)"
_RULES = [
    (
        Kind.MISSING,
        "is_expected and c is null",
        f"if(rows = 0, 'in no row of the archive', {_NUMBERS_SAID})",
    ),
    (
        Kind.DUPLICATED,
        "s is null and entries > 0 and of_window",
        f"concat({_AT}': ', {_NUMBERS_SAID})",
    ),
    (Kind.UNEXPECTED, "is_judged", f"concat({_AT}': the source has no entry of this id')"),
    (
        Kind.MISPLACED,
        f"{_COMPARED} and (c.user != s.user or is_off and is_moved)",
        f"concat({_AT}': belongs to ', {_place('s')}, ', is under ', {_place('c')})",
    ),
    (Kind.ALTERED, f"{_COMPARED} and altered != ''", f"concat({_AT}': not as in the source: ', altered)"),
]


_COUNTS = {
    "rows_compared": "in_archive and (of_window or is_judged)",
    "rows_dead": "in_archive and is_dead",
    "rows_not_judged": "in_archive and not of_window and not is_judged",
    "rows_timeless": "is_timeless and not of_window and not is_judged",
    "expected": "is_expected",
    "found": "is_expected and in_archive",
    "of_window": "in_archive and of_window",
}
_COUNTS_OF_FILES = {
    "rows": "line is not null and kind is null",
    "rows_without_id": "line is not null and kind is null and id is null",
    "broken_lines": f"kind = '{Kind.CSV_BROKEN}'",
    "broken_elsewhere": "kind is not null and not is_in_window",
}


def count(archived: DataFrame, compared: DataFrame) -> dict[str, int]:
    """Count rows of the archive, entries of the window, and ids that entries of the window repeat."""
    repeated = F.count_distinct(F.expr("if(is_expected and nth > 1, id, null)")).alias("repeated")
    rows = archived.agg(*_counts(_COUNTS_OF_FILES)).first(), compared.agg(*_counts(_COUNTS), repeated).first()
    return {name: number for row in rows if row is not None for name, number in row.asDict().items()}


def _counts(conditions: dict[str, str]) -> list[Column]:
    return [count_if(one).alias(name) for name, one in conditions.items()]


def count_if(condition: str) -> Column:
    """Count the rows for which a condition of SQL is true."""
    return F.count_if(F.expr(condition))


def findings_of(compared: DataFrame, archived: DataFrame) -> DataFrame:
    """Return findings about entries, rows and files of the window."""
    of_files = archived.where("kind is not null and is_in_window").select("kind", F.col("file").alias("object"), "text")
    of_entries = compared.select(*_ABOUT, F.inline("findings"))
    return of_entries.unionByName(of_files, allowMissingColumns=True)
