"""Entries and bytes of users: counted by hour in the table of entries, summed up by day, as tables beside it (ADR 7).

Every state carries the position of the table at which it was counted, and never takes the place of a later one.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from log_partitioner_pipeline.columns import EVENT_TIME, META, Kind, MapOf, Struct, struct_of
from log_partitioner_pipeline.errors import TableError
from log_partitioner_pipeline.references import join_spans
from log_partitioner_pipeline.table import Form, Table, format_offsets

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from zoneinfo import ZoneInfo

    from pyspark.sql import DataFrame, SparkSession

    from log_partitioner_pipeline.config import JobSettings
    from log_partitioner_pipeline.table import Position

Spans = list[tuple[int, int]]
"""Event times in microseconds, both ends among them, that are whole hours in the zone of the dates."""

Dates = list[tuple[date, date]]
"""First and last ones."""

HOURS_TABLE, DAYS_TABLE = "user_hours", "user_days"
PROPERTY_COUNTED = "log-partitioner.counted"  # the sequence number up to which the states have counted everything
_COUNTS: dict[str, Kind] = {"entries": "long", "bytes": "long"}
_COUNTED_AT: dict[str, Kind] = {"sequence_number": "long", "offsets": MapOf("long")}
HOURS = struct_of(user="string", date="date", hour="int", **_COUNTS, **_COUNTED_AT)
DAYS = struct_of(user="string", date="date", **_COUNTS, **_COUNTED_AT)
HOUR_KEY = ["user", "date", "hour"]
DAY_KEY = ["user", "date"]
_RECORD = "topic", "partition", "offset"
_HOUR_S = 3600
_ATTEMPTS = 10
_OVERTAKEN = "ValidationException", "CommitFailedException"


class StateTable(Table):
    """The states by their key."""

    def __init__(self, spark: SparkSession, settings: JobSettings, name: str, columns: Struct) -> None:
        self._key = [one for one in columns.columns if one not in _COUNTS | _COUNTED_AT]
        more = tuple(one for one in self._key if one not in DAY_KEY)
        form = Form(columns, "date", "days", ("user",), more=more)
        topic = settings.worker.kafka.references_topic
        super().__init__(spark, settings.pipeline.table.beside(name), topic=topic, form=form)

    def ensure_of(self, wanted: Mapping[str, str]) -> None:
        """Create the table with these properties if it is not there.

        Raises:
            TableError: there is one that has others.
        """
        self.ensure()
        found = self.properties()
        self.set_properties({name: value for name, value in wanted.items() if name not in found})
        for name, value in wanted.items():
            if found.get(name, value) != value:
                raise TableError(
                    f"table {self.name} has {name} {found[name]}, this job has {value}: it can count anew once both "
                    f"{HOURS_TABLE} and {DAYS_TABLE} are dropped"
                )

    def states(self, dates: Dates) -> DataFrame:
        """Return the states of these dates; files of others are not read."""
        return self.spark.table(self.name).where(_dates_within(dates, "date"))

    def merge(self, states: DataFrame, *, dates: Dates) -> None:
        """Replace the states that were counted earlier, in one commit; all are of these dates.

        Raises:
            TableError: others change the table again and again.
        """
        old = self.name.rpartition(".")[2]
        same_key = " AND ".join(f"{old}.{name} = new.{name}" for name in self._key)
        is_same = F.expr(f"{same_key} AND ({_dates_within(dates, f'{old}.date')})")
        is_later = F.expr(f"new.sequence_number > {old}.sequence_number")
        merge = states.alias("new").mergeInto(self.name, is_same)
        merge = merge.whenMatched(is_later).updateAll().whenNotMatched().insertAll()
        for _ in range(_ATTEMPTS):
            try:
                merge.merge()
            except (PySparkException, Py4JJavaError) as error:
                if not any(one in str(error) for one in _OVERTAKEN):
                    raise
            else:
                return
        raise TableError(f"{self.name} was changed by others during each of {_ATTEMPTS} attempts to write to it")

    def written_at_ms(self) -> int:
        """Return when states were last written, by the writer's clock; 0 if they never were."""
        snapshot = self._java().currentSnapshot()
        return 0 if snapshot is None else int(snapshot.timestampMillis())


def touched_hours(spark: SparkSession, table: str, *, since: int) -> list[int]:
    """Return the hours since 1970, in UTC, to which files were added after a sequence number; reads metadata only.

    A rewrite of compaction adds none: its files have the number of the snapshot from which it began.
    """
    hour = f"data_file.partition.{EVENT_TIME}_hour"
    files = spark.sql(f"SELECT {hour} AS hour FROM {table}.entries WHERE status < 2 AND sequence_number > {since}")
    return sorted(row["hour"] for row in files.distinct().collect())


def whole_hours(hours: Iterable[int], zone: ZoneInfo) -> Spans:
    """Return the times of all hours of a zone that have a part in these hours of UTC."""
    spans = []
    for hour in hours:
        first = datetime.fromtimestamp(hour * _HOUR_S, zone)
        last = datetime.fromtimestamp((hour + 1) * _HOUR_S - 1, zone)
        # An hour that comes twice when a clock is put back is one.
        begin_s = first.replace(minute=0, second=0, fold=0).timestamp()
        end_s = last.replace(minute=59, second=59, fold=1).timestamp() + 1
        spans.append((round(begin_s) * 1_000_000, round(end_s) * 1_000_000 - 1))
    return join_spans(spans)


def times_within(spans: Spans) -> str:
    """Make a condition for rows of the table of entries."""
    return " OR ".join(
        f"{EVENT_TIME} BETWEEN timestamp_micros({first}) AND timestamp_micros({last})" for first, last in spans
    )


def dates_of(spans: Spans, zone: ZoneInfo) -> Dates:
    """Return the dates of these times."""
    return [(_date(first, zone), _date(last, zone)) for first, last in spans]


def _date(time_us: int, zone: ZoneInfo) -> date:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time_us)).astimezone(zone).date()


def _dates_within(dates: Dates, column: str) -> str:
    return " OR ".join(f"{column} BETWEEN DATE '{first}' AND DATE '{last}'" for first, last in dates)


def count_hours(entries: DataFrame, zone: ZoneInfo, *, by_roots: bool) -> DataFrame:
    """Count rows of the table by user and hour: each entry once, however often it was republished if `by_roots`.

    An entry is identified by its place, record and index, or by that of its root if it has one. The largest of copies
    that differ in size counts.
    """
    meta, root, local = F.col(META), F.col(META)["root"], F.from_utc_timestamp(EVENT_TIME, str(zone))
    own = [meta[name].alias(name) for name in _RECORD]
    of_root = [F.coalesce(root[name], meta[name]).alias(name) for name in _RECORD]
    place = [*of_root, root["index"].alias("output")] if by_roots else own
    time = [F.to_date(local).alias("date"), F.hour(local).alias("hour")]
    rows = entries.select("user", *time, *place, meta["index"].alias("index"), meta["bytes"].alias("bytes"))
    together = rows.repartition(*HOUR_KEY)  # so that neither of both aggregations shuffles
    once = together.groupBy(*[name for name in rows.columns if name != "bytes"]).agg(F.max("bytes").alias("bytes"))
    return once.groupBy(*HOUR_KEY).agg(F.count("*").alias("entries"), F.sum("bytes").alias("bytes"))


def changed(counts: DataFrame, states: DataFrame) -> DataFrame:
    """Return the counts of hours that differ from the states, or are new."""
    before = states.select(*HOUR_KEY, *[F.col(name).alias(f"{name}_before") for name in _COUNTS])
    is_same = (F.col("entries") == F.col("entries_before")) & (F.col("bytes") == F.col("bytes_before"))
    joined = counts.join(before, on=HOUR_KEY, how="left")
    return joined.where(~F.coalesce(is_same, F.lit(False))).select(*HOUR_KEY, *_COUNTS)  # noqa: FBT003 - a value of SQL


def sum_days(hours: DataFrame, states: DataFrame) -> DataFrame:
    """Sum up the days of these hours, with the states of their other hours."""
    others = states.join(hours, on=HOUR_KEY, how="left_anti").join(hours, on=DAY_KEY, how="left_semi")
    every = hours.select(*DAY_KEY, *_COUNTS).unionByName(others.select(*DAY_KEY, *_COUNTS))
    return every.groupBy(*DAY_KEY).agg(*[F.sum(name).alias(name) for name in _COUNTS])


def counted_at(counts: DataFrame, position: Position) -> DataFrame:
    """Make states of counts: add the position at which they were made."""
    offsets = F.from_json(F.lit(format_offsets(position.offsets)), "map<string, bigint>")
    return counts.withColumns({"sequence_number": F.lit(position.sequence_number).cast("bigint"), "offsets": offsets})
