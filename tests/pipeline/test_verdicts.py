"""Verdicts of hours: the newest counts, and findings give way only to an audit that saw what they were of."""

import uuid
from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession

from log_partitioner.config.settings import KafkaSettings
from log_partitioner_pipeline.audit.result import Verdict, Window
from log_partitioner_pipeline.audit.verdicts import read_passed, write_verdicts
from log_partitioner_pipeline.table import Position

TOPIC = "references"
KAFKA = KafkaSettings(bootstrap_servers="nowhere:1", source_topics=("logs",), group_id="g")
HOUR = ("2026-03-04", 5)
FIVE_MS = 1_772_600_400_000  # 2026-03-04T05:00Z
HOUR_MS = 3_600_000
_LINE = (
    "date string, hour int, verdict string, is_whole boolean, expected bigint, in_files bigint, "
    "in_dead_letters bigint, findings map<string, bigint>"
)
Audited = Callable[..., list[tuple[str, int]]]


def window(first: int | None, behind: int | None) -> Window:
    """Return a window from so many hours after five to so many."""
    bounds = [None if at is None else FIVE_MS + at * HOUR_MS for at in (first, behind)]
    return Window(from_ms=bounds[0], until_ms=bounds[1], padding_s=600)


@pytest.fixture
def audited(spark: SparkSession) -> Audited:
    """Give what writes the verdict of an hour by one audit after the other, and tells which hours pass then."""
    name = f"verdicts.v{uuid.uuid4().hex[:8]}"
    runs = iter(range(1, 100))

    def audit(
        of: Window,
        verdict: Verdict,
        *,
        is_whole: bool = True,
        hour: int = HOUR[1],
        position: Position | None = None,
        groups: tuple[str, ...] = ("g",),
    ) -> list[tuple[str, int]]:
        run = next(runs)
        found = {"missing": 1} if verdict is Verdict.FINDINGS else {}
        line = (HOUR[0], hour, verdict.value, is_whole, 2, 2 - len(found), 0, found)
        write_verdicts(
            spark,
            spark.createDataFrame([line], _LINE),
            name=name,
            kafka=KAFKA.model_copy(update={"group_id": groups[0]}),
            references_offsets={0: run},
            position=position,
            started_at_ms=FIVE_MS + run * 1000,
            window=of,
            run_id=f"run-{run}",
            groups=groups,
        )
        passed = read_passed(
            spark, name=name, references_topic=TOPIC, group_id=groups[0], table_id=position and position.table_id
        )
        return [(one.date, one.hour) for one in passed if position is None or one.table_offsets]

    return audit


def test_findings_do_not_give_way_to_a_window_beside_them(audited: Audited) -> None:
    """One late entry is all that is announced of the hour there: it is whole and clean, and knows of nothing else."""
    assert audited(window(0, 2), Verdict.FINDINGS, is_whole=False) == []
    assert audited(window(3, 5), Verdict.CLEAN) == []
    assert audited(window(1, 5), Verdict.CLEAN) == []
    assert audited(window(0, 1), Verdict.CLEAN) == []
    assert audited(window(3, 5), Verdict.COULD_NOT_TELL) == []
    assert audited(window(0, 2), Verdict.CLEAN) == [HOUR], "what they were of was seen again"


def test_findings_give_way_to_a_window_that_holds_theirs(audited: Audited) -> None:
    """All of theirs since the hour was last clean; a bound that is open holds every other."""
    assert audited(window(0, 2), Verdict.FINDINGS) == []
    assert audited(window(1, 4), Verdict.FINDINGS) == []
    assert audited(window(1, 4), Verdict.CLEAN) == []
    assert audited(window(0, None), Verdict.CLEAN) == [HOUR]
    assert audited(window(6, 7), Verdict.CLEAN) == [HOUR], "they are settled"


def test_findings_of_a_full_audit_give_way_to_a_full_one(audited: Audited) -> None:
    """No window holds everything."""
    assert audited(window(None, None), Verdict.FINDINGS) == []
    for some in (window(0, 2), window(None, 9), window(-999, None)):
        assert audited(some, Verdict.CLEAN) == []
    assert audited(window(None, None), Verdict.CLEAN) == [HOUR]


def test_an_hour_without_findings_passes_as_it_was_seen(audited: Audited) -> None:
    """Those of another hour are none of its own; new ones count, whatever their window."""
    assert audited(window(0, 2), Verdict.FINDINGS, hour=9) == []
    assert audited(window(1, 2), Verdict.CLEAN) == [HOUR]
    assert audited(window(4, 5), Verdict.FINDINGS) == []


def test_findings_in_the_table_give_way_to_an_audit_of_it(audited: Audited) -> None:
    """A clean audit of the files alone settles those of files; of another table nobody asks."""
    table, other = (Position({0: 99}, 1, name, 1) for name in ("one", "other"))
    assert audited(window(0, 2), Verdict.FINDINGS, position=table) == []
    assert audited(window(0, 2), Verdict.CLEAN) == [HOUR]
    assert audited(window(3, 4), Verdict.CLEAN, position=other) == [HOUR]
    assert audited(window(3, 4), Verdict.CLEAN, position=table) == []
    assert audited(window(0, 2), Verdict.CLEAN, position=table) == [HOUR]


def test_findings_do_not_give_way_to_an_adoption(audited: Audited) -> None:
    """Those of a group that was adopted stay open; those of a group that has nothing to do with it never count."""
    assert audited(window(0, 2), Verdict.FINDINGS) == []
    assert audited(window(3, 5), Verdict.CLEAN, groups=("other",)) == [HOUR]
    assert audited(window(3, 5), Verdict.CLEAN, groups=("new", "g")) == []
    assert audited(window(0, 2), Verdict.CLEAN, groups=("new", "g")) == [HOUR]
