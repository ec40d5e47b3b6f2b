"""Every entry in exactly one place: source, files, dead letters and table side by side, by position.

Owns the rules for findings about an entry. One shuffle by (topic, partition, offset, index) brings the four sides
together; each side's share of an entry is a list, because the side may have it twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as F

from log_partitioner.formats.findings import Kind
from log_partitioner_pipeline.audit.frames import ENTRY_KEY
from log_partitioner_pipeline.audit.windows import is_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from log_partitioner_pipeline.audit.result import Window

_SOURCE = [
    "timestamp_ms",
    "deliverable",
    "whole",
    "entries",
    "reasons",
    "user",
    "date",
    "hour",
    "event_time_us",
    "id",
    "root",
]
_DIGESTS = ["digest", "record_digest"]
_ROW = ["reference_id", "user", "date", "hour", "meta_user", "event_time_us", "timestamp_ms", "id", "root", "digest"]
_DEAD = ["reason", "batch_id", "object", "all_of_it", "record_digest"]
_TABLE = ["reference_id", "user", "event_time_us", "timestamp_ms", "id", "root", "digest"]


def compare(
    *, source: DataFrame, rows: DataFrame, dead: DataFrame, table: DataFrame | None, spans: DataFrame, window: Window
) -> DataFrame:
    """Return one row per entry of the window that any side has, with its `findings`.

    `rows` say by `taken` whether the table must have them.
    """
    sides = [
        _side(source.where(F.col("index") >= 0), "s", [*_SOURCE, *_DIGESTS]),
        _side(rows, "f", [*_ROW, "taken"]),
        _side(dead, "d", _DEAD),
    ]
    if table is not None:
        sides.append(_side(table, "t", _TABLE))
    together = sides[0]
    for side in sides[1:]:
        together = together.unionByName(side, allowMissingColumns=True)
    lists = [F.collect_list(name).alias(name) for name in ("f", "d")]
    # the type is needed where there is no table, too
    lists.append(F.collect_list("t").alias("t") if table is not None else F.lit(0).alias("t"))
    grouped = together.groupBy(*ENTRY_KEY).agg(F.first("s", ignorenulls=True).alias("s"), *lists)
    in_window = is_of(window, F.col("s.timestamp_ms"))
    judged = grouped.join(F.broadcast(spans), on=["topic", "partition"], how="inner").where(in_window)
    has_table = table is not None
    return judged.select(
        *ENTRY_KEY,
        F.col("s.timestamp_ms").alias("timestamp_ms"),
        F.col("s").isNotNull().alias("in_source"),
        F.coalesce("s.deliverable", F.lit(False)).alias("deliverable"),  # noqa: FBT003 - a value of SQL
        _place("user"),
        _place("date"),
        _place("hour"),
        F.size("f").alias("in_files"),
        F.size("d").alias("in_dead_letters"),
        (F.size("t") if has_table else F.lit(0)).alias("in_table"),
        _place("id"),
        F.expr("transform(f, r -> r.id)").alias("row_ids"),
        F.expr("transform(f, r -> named_struct('date', r.date, 'hour', r.hour))").alias("row_places"),
        F.expr("transform(d, l -> l.reason)").alias("dead_reasons"),
        F.expr(_findings(has_table=has_table)).alias("findings"),
    )


def _side(frame: DataFrame, name: str, columns: list[str]) -> DataFrame:
    return frame.select(*ENTRY_KEY, F.struct(*columns).alias(name))


def _place(name: str) -> Column:
    """Return the place to which the entry belongs; if the source does not have it, the place of its row in files."""
    return F.coalesce(F.col(f"s.{name}"), F.when(F.col("s").isNull(), F.get("f", F.lit(0))[name])).alias(name)


_TIMESTAMP_MS_MAX = 253_402_300_799_999  # 9999-12-31T23:59:59.999Z; a row has none that is later
_TIMESTAMP_OF_SOURCE = f"if(s.timestamp_ms <= {_TIMESTAMP_MS_MAX}, s.timestamp_ms, -1)"
_NAMED = "coalesce(s.deliverable, false)"
_MUST_BE_DEAD = "(s is not null and not s.deliverable)"
_MAY_BE_DEAD = "(s is not null and s.reasons != '')"
_PLACE_OF_ROW = "concat(r.user, ' ', r.date, ' ', lpad(cast(r.hour as string), 2, '0'))"
_PLACE_OF_SOURCE = "concat(s.user, ' ', s.date, ' ', lpad(cast(s.hour as string), 2, '0'))"


def _same_meta(row: str) -> str:
    return (
        f"{row}.event_time_us <=> s.event_time_us and {row}.id <=> s.id and {row}.root <=> s.root "
        f"and coalesce({row}.timestamp_ms, -1) = {_TIMESTAMP_OF_SOURCE}"
    )


def _same_row(row: str, other: str) -> str:
    user = f"{other}.user" if other == "s" else f"{other}.meta_user"
    timestamp_ms = _TIMESTAMP_OF_SOURCE if other == "s" else f"coalesce({other}.timestamp_ms, -1)"
    return (
        f"{row}.digest <=> {other}.digest and {row}.user <=> {user} and {row}.event_time_us <=> {other}.event_time_us "
        f"and {row}.id <=> {other}.id and {row}.root <=> {other}.root "
        f"and coalesce({row}.timestamp_ms, -1) = {timestamp_ms}"
    )


_WRONG_LETTER = (
    "concat_ws('; ', "
    "if(instr(s.reasons, concat(',', r.reason, ',')) = 0, "
    "concat('says ', r.reason, ', should be ', trim(both ',' from s.reasons)), null), "
    "if(r.all_of_it and not s.whole and s.entries > 1, "
    "concat('all of a record that splits into ', s.entries, ' entries'), null), "
    "if(r.record_digest != s.record_digest, 'value, key or headers are not those of the record', null))"
)


class _Rule(NamedTuple):
    """A rule as SQL, and the finding if it is broken; if `side` is set, each element `r` of it is judged by itself."""

    kind: Kind
    condition: str
    text: str
    side: str | None = None
    times: str = "1"
    reference: str = "cast(null as string)"

    def is_broken(self) -> str:
        return self.condition if self.side is None else f"exists({self.side}, r -> {self.condition})"

    def findings(self) -> str:
        finding = (
            f"named_struct('kind', '{self.kind}', 'count', cast(if({self.condition}, {self.times}, 0) as bigint), "
            f"'reference_id', {self.reference}, 'text', {self.text})"
        )
        return f"array({finding})" if self.side is None else f"transform({self.side}, r -> {finding})"


def _findings(*, has_table: bool) -> str:
    """Return the findings of an entry; almost all entries break no rule, and for these no list of findings is built."""
    rules = [*_RULES, *(_TABLE_RULES if has_table else [])]
    found = f"filter(concat({', '.join(rule.findings() for rule in rules)}), finding -> finding.count > 0)"
    return f"if({' or '.join(f'({rule.is_broken()})' for rule in rules)}, {found}, array())"


_OF_ROW = "r.reference_id"
_RULES = [
    # places
    _Rule(Kind.MISSING, f"{_NAMED} and size(f) + size(d) = 0", "'in no file and in no dead letter'"),
    _Rule(
        Kind.DUPLICATED,
        f"{_NAMED} and size(f) > 1",
        "concat(size(f), ' times in files: references ', array_join(transform(f, r -> r.reference_id), ', '))",
        times="size(f) - 1",
        reference="get(f, size(f) - 1).reference_id",
    ),
    _Rule(Kind.UNEXPECTED, "s is null", "'the source has no such entry'", side="f", reference=_OF_ROW),
    _Rule(
        Kind.UNEXPECTED,
        _MUST_BE_DEAD,
        "concat('in a file, must be dead: ', trim(both ',' from s.reasons))",
        side="f",
        reference=_OF_ROW,
    ),
    # rows
    _Rule(
        Kind.MISPLACED,
        f"{_NAMED} and not (r.user <=> s.user and r.date <=> s.date and r.hour <=> s.hour and r.meta_user <=> s.user)",
        f"concat('belongs to ', {_PLACE_OF_SOURCE}, ', is under ', {_PLACE_OF_ROW}, ', user ', "
        "coalesce(r.meta_user, 'none'))",
        side="f",
        reference=_OF_ROW,
    ),
    _Rule(
        Kind.META,
        f"{_NAMED} and not ({_same_meta('r')})",
        "concat('in _meta: event time ', coalesce(cast(r.event_time_us as string), 'none'), ', id ', "
        "coalesce(r.id, 'none'), ', timestamp ', "
        "coalesce(r.timestamp_ms, -1), ', root ', coalesce(r.root, 'none'), '; in the source: ', s.event_time_us, "
        f"', ', coalesce(s.id, 'none'), ', ', {_TIMESTAMP_OF_SOURCE}, ', ', coalesce(s.root, 'none'))",
        side="f",
        reference=_OF_ROW,
    ),
    _Rule(
        Kind.ALTERED,
        f"{_NAMED} and not r.digest <=> s.digest",
        "'values are not those of the source'",
        side="f",
        reference=_OF_ROW,
    ),
    # dead letters
    _Rule(
        Kind.DEAD_LETTER_MISSING,
        f"{_MUST_BE_DEAD} and size(f) + size(d) = 0",
        "concat('in no dead letter: ', trim(both ',' from s.reasons))",
    ),
    _Rule(
        Kind.DEAD_LETTER_DUPLICATED,
        f"{_MAY_BE_DEAD} and size(d) + if(s.deliverable, least(size(f), 1), 0) > 1 and size(d) > 0",
        "concat(size(d), ' dead letters: ', array_join(transform(d, r -> r.reason), ', '))",
        times="size(d) + if(s.deliverable, least(size(f), 1), 0) - 1",
    ),
    _Rule(Kind.DEAD_LETTER_UNEXPECTED, "s is null", "'the source has no such entry'", side="d"),
    _Rule(
        Kind.DEAD_LETTER_UNEXPECTED,
        f"{_NAMED} and s.reasons = ''",
        "concat('nothing is wrong with it: ', r.reason)",
        side="d",
    ),
    _Rule(Kind.DEAD_LETTER_WRONG, f"{_MAY_BE_DEAD} and {_WRONG_LETTER} != ''", _WRONG_LETTER, side="d"),
]
_TABLE_RULES = [
    _Rule(
        Kind.TABLE_MISSING,
        f"{_NAMED} and size(t) = 0 and exists(f, r -> r.taken)",
        "'in a file that the table has taken, not in the table'",
        reference="get(filter(f, r -> r.taken), 0).reference_id",
    ),
    _Rule(
        Kind.TABLE_DUPLICATED,
        f"{_NAMED} and size(t) > greatest(size(f), 1)",
        "concat(size(t), ' times in the table: references ', array_join(transform(t, r -> r.reference_id), ', '))",
        times="size(t) - greatest(size(f), 1)",
        reference="get(t, size(t) - 1).reference_id",
    ),
    _Rule(
        Kind.TABLE_UNEXPECTED,
        "(s is null or not s.deliverable) and size(t) > 0 and size(f) = 0",
        "if(s is null, 'the source has no such entry', 'in the table, must be dead')",
        times="size(t)",
        reference="get(t, 0).reference_id",
    ),
    _Rule(
        Kind.TABLE_ALTERED,
        f"{_NAMED} and not (({_same_row('r', 's')}) or exists(f, x -> {_same_row('r', 'x')}))",
        "'values or _meta in the table are neither those of the source nor of a file'",
        side="t",
        reference=_OF_ROW,
    ),
]
