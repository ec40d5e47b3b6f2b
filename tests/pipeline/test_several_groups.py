"""Several groups on the same output topics: each table is of one of them, and exact."""

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from log_partitioner.errors import CouldNotTellError
from log_partitioner.proof.accounting import ExitCode
from log_partitioner.proof.oracle.equal import canonical
from log_partitioner_pipeline.audit.auditor import Auditor, Options
from log_partitioner_pipeline.audit.result import Window
from log_partitioner_pipeline.backfill.ranges import Wanted
from log_partitioner_pipeline.config import JobSettings
from log_partitioner_pipeline.errors import TableError
from log_partitioner_pipeline.jobs.backfill import Backfill
from log_partitioner_pipeline.jobs.compact import Compact
from log_partitioner_pipeline.jobs.materialize import Materialize
from tests.pipeline.by_hand import ByHand
from tests.pipeline.conftest import Lake, settings_of
from tests.pipeline.readback import Places, read_table
from tests.stack.kafka_helper import KafkaHelper, ToProduce
from tests.stack.names import Names
from tests.stack.s3_helper import S3Helper

EVERYTHING = Window(from_ms=None, until_ms=None, padding_s=600)
T0_MS = (int(time.time()) // 3600 - 3) * 3_600_000
GROUP, SOURCES = "LOGP_KAFKA__GROUP_ID", "LOGP_KAFKA__SOURCE_TOPICS"
EACH = 8


def delivered(deployment: ByHand, first: int) -> tuple[list[ToProduce], list[tuple[int, int]], Places]:
    """Deliver some entries, one of them dead; give them, where they stand, and what a table must have of them."""
    entries: list[dict[str, Any]] = [
        {"user": f"user-{number % 3}", "time": T0_MS + number, "n": number} for number in range(first, first + EACH)
    ]
    del entries[3]["user"]
    records = [
        ToProduce(value=json.dumps(one).encode(), partition=at % 2, timestamp_ms=T0_MS + at)
        for at, one in enumerate(entries)
    ]
    places = deployment.deliver(records)
    wanted = {(*place, 0): canonical(one) for place, one in zip(places, entries, strict=True) if "user" in one}
    return records, places, wanted


def given(lake: Lake, **variables: str | None) -> JobSettings:
    """Give the settings of a job; a variable that is None is not set."""
    every = lake.variables | variables
    return settings_of({name: value for name, value in every.items() if value is not None})


def materialized(lake: Lake, settings: JobSettings) -> Places:
    """Bring the table of these settings up to date, and read it."""
    lake.settings = settings
    Materialize(lake.spark, settings).run(continuous=False)
    return read_table(lake)


@pytest.mark.timeout(600)
def test_every_table_is_of_one_group_and_exact(
    kafka: KafkaHelper, s3: S3Helper, names: Names, lake_of: Callable[..., Lake]
) -> None:
    """Outline: production and staging; production is renamed and goes on; a stranger publishes everything again."""
    production = ByHand(kafka=kafka, s3=s3, names=names, layout="pack", partitions=2)
    staging = production.beside(names.group("staging"), source=kafka.create_topic(names.topic("staging"), partitions=2))
    records, places, expected = delivered(production, 0)
    *_, of_staging = delivered(staging, 1000)
    lake = lake_of(production, PIPELINE_AUDIT__UNREFERENCED_AGE_S="0")
    unnamed = given(lake, **{GROUP: None})
    assert materialized(lake, unnamed) == expected

    renamed = production.adopted_by(names.group("renamed"))
    *_, more = delivered(renamed, EACH)
    assert materialized(lake, unnamed) == expected | more
    result = Auditor(lambda: lake.spark, unnamed, Options(EVERYTHING, table=True, verdicts=False)).run()
    assert (result.exit_code, result.findings, result.could_not_tell) == (ExitCode.CLEAN, [], [])
    assert result.places["group"] == renamed.group
    assert (result.counts.in_table, result.counts.in_dead_letters) == (2 * EACH - 2, 2)
    assert Backfill(unnamed, "none", spark=lake.spark).summarise(Wanted(from_ms=0)).entries_in_files == 0

    stranger = production.beside(names.group("stranger"))
    stranger.flush(records, places)
    with pytest.raises(CouldNotTellError, match=f"{renamed.group}, {stranger.group} have flushed"):
        Materialize(lake.spark, unnamed).run(continuous=False)
    assert read_table(lake) == expected | more
    named = given(lake, **{GROUP: production.group})  # which goes on as `renamed`
    assert materialized(lake, named) == expected | more
    with pytest.raises(TableError, match=f"is of group {renamed.group}, not of {stranger.group}"):
        Materialize(lake.spark, given(lake, **{GROUP: stranger.group})).run(continuous=False)
    result = Auditor(lambda: lake.spark, named, Options(EVERYTHING, table=True, list_objects=True)).run()
    assert (result.exit_code, result.findings) == (ExitCode.CLEAN, [])
    assert Compact(lake.spark, unnamed).run().hours == []
    for other in (staging, stranger):
        assert [note for note in result.notes if f"messages are of group {other.group}, not of the history of" in note]

    beside = {SOURCES: json.dumps([staging.source]), "PIPELINE_TABLE__NAME": "logs.staging"}
    assert materialized(lake, given(lake, **{GROUP: None}, **beside)) == of_staging
    of_stranger = {GROUP: stranger.group, "PIPELINE_TABLE__NAME": "logs.stranger"}
    assert materialized(lake, given(lake, **of_stranger)) == expected


def test_group_that_never_was_could_not_tell(
    kafka: KafkaHelper, s3: S3Helper, names: Names, lake_of: Callable[..., Lake]
) -> None:
    """The audit names the groups that there are."""
    production = ByHand(kafka=kafka, s3=s3, names=names, layout="pack", partitions=2)
    delivered(production, 0)
    lake = lake_of(production, **{GROUP: "typo"})
    result = Auditor(lambda: lake.spark, lake.settings, Options(EVERYTHING, verdicts=False)).run()
    assert (result.exit_code, result.findings) == (ExitCode.COULD_NOT_TELL, [])
    assert f"flush records are of {production.group}" in result.could_not_tell[0]
