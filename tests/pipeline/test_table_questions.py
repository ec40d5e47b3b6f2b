"""The statements of docs/TABLE.md give in Spark, with its default settings, and in DuckDB the answers written here.

DuckDB is set up by the lines of docs/READING.md.
"""

import json
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from log_partitioner.formats.dead_letter import DeadLetter, Reason, headers_of
from log_partitioner.formats.model import SourceRecord, TopicPartition
from log_partitioner.formats.reference import decode_references
from log_partitioner_pipeline.jobs.materialize import Materialize
from log_partitioner_pipeline.session import catalog_options
from tests.pipeline.by_hand import ByHand
from tests.pipeline.conftest import Lake
from tests.pipeline.readback import pyiceberg_catalog
from tests.stack.kafka_helper import KafkaHelper, ToProduce
from tests.stack.names import Names
from tests.stack.s3_helper import S3Helper

PAGE = Path(__file__).parents[2] / "docs" / "TABLE.md"
READING = PAGE.parent / "READING.md"
UP_TO_WHERE = "Up to where a table holds everything"
HOUR_5 = datetime(2026, 3, 4, 5, tzinfo=UTC)
HOUR_6 = HOUR_5 + timedelta(hours=1)
RECORDED = (HOUR_6 + timedelta(minutes=30), HOUR_5 + timedelta(days=1))
"""Kafka's time of the records of each flush."""

Rows = list[tuple[Any, ...]]


def entry(user: str | None, minute: int, **fields: Any) -> dict[str, Any]:
    """Make an entry of so many minutes after five; without a user it is dead."""
    at = HOUR_5 + timedelta(minutes=minute)
    return ({} if user is None else {"user": user}) | {"time": round(at.timestamp() * 1000), **fields}


ORDERLY = [
    entry("ann", 1, id="id-1", level="info", message="hello", status=200),
    entry("ann", 10, id="id-2", level="error", message="failed", status=500, error={"message": "disk full"}),
    entry("ann", 70, id="id-3", level="error", message="failed again", status=500, error={"message": "no route"}),
    entry("bob", 20, id="id-4", level="error", message="failed", status=500, error={"message": "denied"}),
    entry("bob", 60, id="id-5", level="info", message="hello", status=200),
    entry(None, 5),
]
HOSTILE = [
    entry("ann", 2, id="id-6", level="info", message="late", status="200"),
    entry("ann", 75, id="id-7", level="error", Level="INFO", error="a text"),
    entry("bob", 21, id="id-8", status="500", Status="n/a", error={"message": 7, "Message": "twin"}),
    entry("bob", 65, id="id-9", Status="n/a", level=3),
    entry("eve", 30, id="id-10", status=True, message=["a", "list"]),
    entry("eve", 80, id="id-11", status={"code": 1}),
    entry(None, 6),
    entry(None, 7),
]


def test_statements_of_the_page_are_answered_alike_by_spark_and_duckdb(
    kafka: KafkaHelper, s3: S3Helper, names: Names, lake_of: Callable[..., Lake]
) -> None:
    """Orderly entries come first and make the columns; then late ones, case twins, values of several types."""
    deployment = ByHand(kafka=kafka, s3=s3, names=names, layout="file")
    lake = lake_of(deployment)
    deployment.deliver(records(ORDERLY, RECORDED[0]))
    begun = datetime.now(UTC).replace(microsecond=0)
    Materialize(lake.spark, lake.settings).run(continuous=False)
    places = deployment.deliver(records(HOSTILE, RECORDED[1]))
    bury_unsplit(deployment)
    Materialize(lake.spark, lake.settings).run(continuous=False)

    statements = statements_of(PAGE.read_text())
    expected = answers(deployment, place_of_7=places[1])
    by_spark, by_duckdb = ask_spark(lake, statements), ask_duckdb(lake, statements)
    for answered in (by_spark, by_duckdb):
        ((committed_at, offsets, complete_through),) = answered.pop(UP_TO_WHERE)
        assert json.loads(offsets) == messages(deployment)
        assert begun <= datetime.fromisoformat(complete_through) < committed_at
        assert answered == expected


def statements_of(page: str) -> dict[str, str]:
    """Return the statements of a page by the headings that they stand under, one under each."""
    found = re.findall(r"^#+ (?:\d\. )?([^\n]+)\n[^#]*?```sql\n(.+?)\n```", page, re.MULTILINE | re.DOTALL)
    assert len(found) == page.count("```sql"), "a statement has no heading of its own"
    return dict(found)


def answers(deployment: ByHand, *, place_of_7: tuple[int, int]) -> dict[str, Rows]:
    """Return what the questions are to be answered."""
    (object_key,) = [
        one.location.object
        for one in deployment.references()
        if one.batch_id == "batch-1" and one.partition_key == ("ann", "2026-03-04", 6)
    ]
    return {
        "What did a user do in an hour?": [
            (HOUR_5 + timedelta(minutes=1), "info", "hello"),
            (HOUR_5 + timedelta(minutes=2), "info", "late"),
            (HOUR_5 + timedelta(minutes=10), "error", "failed"),
        ],
        "How many entries and users has each hour of a day?": [(HOUR_5, 6, 3), (HOUR_6, 5, 3)],
        "What is the newest error of each user?": [
            ("ann", HOUR_5 + timedelta(minutes=70), "no route"),
            ("bob", HOUR_5 + timedelta(minutes=20), "denied"),
        ],
        "Which values has a field, whatever their types and its spelling?": [
            ("500", 4),
            ("200", 3),
            ("n/a", 1),
            ("true", 1),
            ('{"code":1}', 1),
        ],
        "In which object does an entry lie?": [(deployment.bucket, object_key, deployment.source, *place_of_7)],
        "How late do entries come?": [
            (
                HOUR_5,
                6,
                timedelta(hours=12, minutes=29, seconds=30),
                timedelta(hours=23, minutes=58),
                longest(deployment, 5),
            ),
            (HOUR_6, 5, timedelta(hours=22, minutes=40), timedelta(hours=22, minutes=55), longest(deployment, 6)),
        ],
        "How many entries died, on which day and why?": [
            (date(2026, 3, 4), "no_user", 1, 1),
            (date(2026, 3, 5), "malformed", 1, 1),
            (date(2026, 3, 5), "no_user", 1, 2),
        ],
        "What has each worker delivered, and how long did its flushes take?": [("w", 2, 11, timedelta(seconds=1))],
    }


def records(entries: list[dict[str, Any]], recorded: datetime) -> list[ToProduce]:
    """Make a record of each entry, and one of all that are dead."""
    dead = [one for one in entries if "user" not in one]
    values: list[Any] = [*(one for one in entries if "user" in one), dead]
    timestamp_ms = round(recorded.timestamp() * 1000)
    return [
        ToProduce(value=json.dumps(one).encode(), partition=number % 3, timestamp_ms=timestamp_ms)
        for number, one in enumerate(values)
    ]


def bury_unsplit(deployment: ByHand) -> None:
    """Write the dead letter of a record that could not be split."""
    timestamp_ms = round(RECORDED[1].timestamp() * 1000)
    record = SourceRecord(TopicPartition(deployment.source, 0), 1_000, timestamp_ms, None, b"{", ())
    letter = DeadLetter(record, Reason.MALFORMED, "no JSON", None)
    headers = {name: text or b"" for name, text in headers_of(letter, batch_id="batch-1", group_id=deployment.group)}
    deployment.kafka.produce(deployment.dead_letters_topic, [ToProduce(value=b"{", headers=headers)])


def messages(deployment: ByHand) -> dict[str, int]:
    """Count the messages of references by the partition of their topic."""
    partitions = [str(one.partition()) for one in deployment.kafka.read_committed(deployment.references_topic)]
    return {number: partitions.count(number) for number in ("0", "1")}


def longest(deployment: ByHand, hour: int) -> timedelta:
    """Return the longest time from a record of an hour to the message that announces it."""
    recorded = {f"batch-{number}": at for number, at in enumerate(RECORDED)}
    return max(
        datetime.fromtimestamp(message.timestamp()[1] / 1000, tz=UTC) - recorded[one.batch_id]
        for message in deployment.kafka.read_committed(deployment.references_topic)
        for one in decode_references(message.value() or b"")
        if one.partition_key.hour == hour
    )


def ask_spark(lake: Lake, statements: dict[str, str]) -> dict[str, Rows]:
    """Ask a session that is only set up with its catalogue."""
    spark = lake.spark.newSession()
    for key, value in catalog_options(lake.settings).items():
        spark.conf.set(key, value)
    assert spark.conf.get("spark.sql.caseSensitive") == "false"
    spark.sql("USE lake")
    return {
        question: [tuple(map(in_utc, row)) for row in spark.sql(statement).collect()]
        for question, statement in statements.items()
    }


def ask_duckdb(lake: Lake, statements: dict[str, str]) -> dict[str, Rows]:
    """Ask a connection that the page's own lines have made."""
    (lines,) = re.findall(r"```python\n(import duckdb\n.+?)```", READING.read_text(), re.DOTALL)
    with pyiceberg_catalog(lake) as catalog:
        made: dict[str, Any] = {"catalog": catalog}
        exec(lines, made)  # noqa: S102 - the page is ours
    with made["connection"] as connection:
        connection.execute("SET TimeZone = 'UTC'")
        return {
            question: [tuple(map(in_utc, row)) for row in connection.execute(statement).fetchall()]
            for question, statement in statements.items()
        }


def in_utc(value: Any) -> Any:
    """Return an instant in UTC, whether the engine's client gives it a zone or takes that of the machine."""
    return value.astimezone(UTC) if isinstance(value, datetime) else value
