"""Objects and messages that are lost for good: recorded, passed over by every job, noted by audits; nothing else is."""

import json
import time
from collections.abc import Callable

import pytest
from pyspark.errors import PythonException

from log_partitioner_pipeline.acknowledged import Acknowledgements
from log_partitioner_pipeline.audit.auditor import Auditor, Options
from log_partitioner_pipeline.audit.result import Result, Verdict, Window
from log_partitioner_pipeline.backfill.ranges import Wanted, parse_offsets
from log_partitioner_pipeline.errors import PipelineError, RangeError
from log_partitioner_pipeline.jobs import acknowledge as job
from log_partitioner_pipeline.jobs.acknowledge import Losses
from log_partitioner_pipeline.jobs.backfill import Backfill
from log_partitioner_pipeline.jobs.materialize import Materialize
from tests.pipeline.by_hand import ByHand
from tests.pipeline.conftest import Lake
from tests.pipeline.test_announced import forget
from tests.stack.kafka_helper import KafkaHelper, ToProduce
from tests.stack.names import Names
from tests.stack.s3_helper import S3Helper

NOW_MS = time.time_ns() // 3_600_000_000_000 * 3_600_000
USERS = "ann", "bob", "cleo"


def records(count: int) -> list[ToProduce]:
    """Make entries of three users in turn, all of one hour."""
    entries = [{"user": USERS[n % 3], "time": NOW_MS + 1000 * n, "id": f"id-{n}", "n": n} for n in range(count)]
    return [
        ToProduce(value=json.dumps(one).encode(), partition=n % 3, timestamp_ms=NOW_MS) for n, one in enumerate(entries)
    ]


@pytest.fixture
def deployment(kafka: KafkaHelper, s3: S3Helper, names: Names) -> ByHand:
    """Write an object for each user and hour."""
    return ByHand(kafka=kafka, s3=s3, names=names, layout="file")


@pytest.fixture
def lake(deployment: ByHand, kafka: KafkaHelper, lake_of: Callable[..., Lake]) -> Lake:
    """Give the pipeline beside it, in which backfills have their topic."""
    return lake_of(deployment, LOGP_KAFKA__BACKFILLS_TOPIC=kafka.create_topic(f"{deployment.source}-backfills"))


def acknowledge(lake: Lake, losses: Losses) -> str:
    """Run the job in this session."""
    return job.acknowledge(lake.spark, lake.settings, losses)


def materialize(lake: Lake) -> dict[str, int]:
    """Bring the table up to date; count its rows by user."""
    Materialize(lake.spark, lake.settings).run(continuous=False)
    return dict(map(tuple, lake.spark.table(lake.table).groupBy("user").count().collect()))


def audit(lake: Lake, *, table: bool = True, here: int = 1_000_000) -> Result:
    """Audit everything, here or in tasks."""
    everything = Window(from_ms=None, until_ms=None, padding_s=0)
    options = Options(everything, table=table, verdicts=False, here_entries_max=here)
    return Auditor(lambda: lake.spark, lake.settings, options).run()


def require_clean(lake: Lake, *, entries: int) -> None:
    """Require that audits are clean, wherever they judge, and note how many entries are lost."""
    told = f"{entries} entries are of objects whose loss is acknowledged: nobody has them"
    for result in audit(lake), audit(lake, here=0), audit(lake, table=False):
        assert (result.verdict, result.findings, result.could_not_tell) == (Verdict.CLEAN, [], [])
        assert [note for note in result.notes if "acknowledged" in note] == ([told] if entries else [])


def object_of(deployment: ByHand, user: str) -> str:
    """Find the newest object of a user."""
    found = deployment.s3.client.list_objects_v2(Bucket=deployment.bucket)["Contents"]
    keys = sorted((one["LastModified"], one["Key"]) for one in found if f"user={user}/" in one["Key"])
    return keys[-1][1]


@pytest.mark.timeout(600)
def test_entries_of_a_lost_object_are_made_anew_by_a_backfill(deployment: ByHand, lake: Lake) -> None:
    """Outline: one object gone, one altered -> acknowledged -> backfilled -> the object of the backfill gone, too."""
    deployment.deliver(records(12))
    client, bucket = deployment.s3.client, deployment.bucket
    of_ann, of_bob = (object_of(deployment, user) for user in ("ann", "bob"))
    client.delete_object(Bucket=bucket, Key=of_ann)
    with pytest.raises(PythonException, match="is referenced and not there"):
        materialize(lake)
    with pytest.raises(PipelineError, match="is there, as references name it"):
        acknowledge(lake, Losses("not lost at all", [of_bob]))
    assert audit(lake).findings, "nothing of this is acknowledged"
    client.put_object(Bucket=bucket, Key=of_bob, Body=b"something else")
    acknowledge(lake, Losses("a rule deleted it", [f"s3://{bucket}/{of_ann}", of_bob]))

    assert materialize(lake) == {"cleo": 4}
    require_clean(lake, entries=8)
    assert Backfill(lake.settings, "anew", spark=lake.spark).run(Wanted(from_ms=0)).messages > 0
    assert materialize(lake) == dict.fromkeys(USERS, 4)
    require_clean(lake, entries=0)
    assert Backfill(lake.settings, "again", spark=lake.spark).summarise(Wanted(from_ms=0)).entries_in_files == 0

    again = object_of(deployment, "bob")
    assert again != of_bob
    client.delete_object(Bucket=bucket, Key=again)
    assert audit(lake).findings
    acknowledge(lake, Losses("the same rule", [again]))
    held = materialize(lake)
    assert held == dict.fromkeys(USERS, 4), "the table keeps what it has taken"
    require_clean(lake, entries=4)


@pytest.mark.timeout(600)
def test_stray_messages_are_passed_over_where_they_cannot_be_read(
    deployment: ByHand, lake: Lake, kafka: KafkaHelper
) -> None:
    """One in each topic that workers write to; and messages that retention took before the tables had them."""
    deployment.deliver(records(6))
    worker = lake.settings.worker.kafka
    topics = worker.references_topic, worker.flushes_topic, worker.dead_letters_topic, worker.backfills_topic
    places = {topic: kafka.produce(topic, [ToProduce(value=b"stray", partition=0)])[0][1] for topic in topics}
    deployment.deliver(records(6))
    with pytest.raises(PipelineError, match="acknowledge --offsets '") as refused:
        materialize(lake)
    named = str(refused.value).partition("--offsets '")[2].rstrip("'")
    assert parse_offsets(named).keys() == {(topics[0], 0)}
    assert len(audit(lake, table=False).findings) == 4
    wrong = {
        json.dumps({topics[0]: {"0": [places[topics[0]], places[topics[0]] + 2]}}): "can be read: it is not passed",
        json.dumps({topics[1]: {"0": [0, 99]}}): "ends at",
        json.dumps({deployment.source: {"0": [0, 1]}}): "is none of",
    }
    for offsets, said in wrong.items():
        with pytest.raises(RangeError, match=said):
            acknowledge(lake, Losses("nonsense", offsets=offsets))
    with pytest.raises(PipelineError, match="nothing is named"):
        acknowledge(lake, Losses("nothing"))
    strays = {topic: {"0": [at, at + 1]} for topic, at in places.items()}
    said = acknowledge(lake, Losses("typed into the wrong window", offsets=json.dumps(strays)))
    assert "from their next start on jobs pass over" in said

    assert materialize(lake) == dict.fromkeys(USERS, 4)
    result = audit(lake)
    assert (result.verdict, sum(note.endswith(": acknowledged") for note in result.notes)) == (Verdict.CLEAN, 4)
    assert Backfill(lake.settings, "nothing", spark=lake.spark).summarise(Wanted(from_ms=0)).entries_in_files == 0

    deployment.deliver(records(3))
    for topic in topics[:3]:
        forget(kafka, topic)
    deployment.deliver(records(3))
    for _ in range(2):  # of references, and of flush records
        with pytest.raises(PipelineError, match="were deleted before they were read") as refused:
            materialize(lake)
        acknowledge(lake, Losses("retention", offsets=str(refused.value).split("'")[1]))
    assert materialize(lake) == dict.fromkeys(USERS, 5)
    kept = Acknowledgements(lake.spark, lake.settings).read().messages
    assert {one.tp.topic for one in kept} == set(topics)
