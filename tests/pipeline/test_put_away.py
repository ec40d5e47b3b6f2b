"""Records that an operator skipped, that ended the worker, or that Spark cannot read: Spark's jobs go on."""

import sys
import time
from collections.abc import Callable
from pathlib import Path

from log_partitioner_pipeline.audit.auditor import Auditor, Options
from log_partitioner_pipeline.audit.result import Result, Verdict, Window
from log_partitioner_pipeline.backfill.ranges import Wanted
from log_partitioner_pipeline.jobs.backfill import Backfill
from tests.integration.harness import Deployment
from tests.integration.test_fatal_record import DEADLY, ENDS, EXIT_CODE
from tests.integration.test_unreadable import BATCH, damage, entry, write_batches
from tests.pipeline.conftest import Lake
from tests.stack.kafka_helper import KafkaHelper, ToProduce
from tests.stack.names import Names
from tests.stack.providers import jars
from tests.stack.s3_helper import S3Helper
from tools.local.kafka import KafkaCluster

TIMESTAMP_MAX_MS = (2**63 - 1) // 1000  # that Spark's microseconds hold
BEYOND_SPARK = [2**63 - 1, 1_700_000_000_000, TIMESTAMP_MAX_MS, TIMESTAMP_MAX_MS + 1]


def audit(lake: Lake, *, until_ms: int | None = None) -> Result:
    """Audit in this process."""
    window = Window(from_ms=None, until_ms=until_ms, padding_s=600)
    return Auditor(lambda: lake.spark, lake.settings, Options(window, verdicts=False)).run()


def test_both_audits_are_clean_where_everything_else_is(
    s3: S3Helper, names: Names, tmp_path: Path, lake_of: Callable[..., Lake]
) -> None:
    """A batch is damaged on the broker's disk, a record ends each process that decodes it, and some are of no year."""
    with KafkaCluster(jars=jars(), root=tmp_path / "damaged", brokers=1) as broker:
        kafka = KafkaHelper(broker.bootstrap_servers, provider="local process")
        settings = {"LOGP_FLUSH__INTERVAL_S": "1"}
        with Deployment(kafka=kafka, s3=s3, names=names, root=tmp_path, partitions=2, settings=settings) as deployment:
            written = write_batches(deployment, damaged=2)
            deadly = [ToProduce(value=entry(n, text="deadly" if n == 3 else "fine"), partition=1) for n in range(BATCH)]
            written += kafka.produce(deployment.source, deadly)
            late = [ToProduce(value=entry(n), partition=1, timestamp_ms=ms) for n, ms in enumerate(BEYOND_SPARK)]
            written += kafka.produce(deployment.source, late)
            damage(broker, deployment.source)
            for _ in range(ENDS):
                deployment.start("w1", inside=[sys.executable, "-c", DEADLY])
                assert deployment.exit_code("w1", within_s=60) == EXIT_CODE
            deployment.start("w1", inside=[sys.executable, "-c", DEADLY])
            deployment.wait_drained([one for one in written if one[0] == 1], timeout_s=90)
            deployment.wait_metric("w1", "held_topic_partitions", 1)
            assert deployment.stop_all() == {"w1": 0}
            assert deployment.skip(partition=0, first=2 * BATCH)[0] == 0
            deployment.start("w2")
            deployment.wait_drained(written, timeout_s=90)
            assert deployment.stop_all()["w2"] == 0
            dead = {"skipped": 1, "fatal": 1}
            assert deployment.require_clean(put_away=dead).json["dead_letters"] == dead

            lake = lake_of(deployment)
            for until_ms in (None, time.time_ns() // 1_000_000):
                result = audit(lake, until_ms=until_ms)
                assert (result.verdict, result.dead_letters) == (Verdict.CLEAN, dead), result
                assert result.counts.in_files == len(written) - BATCH - 1

            kafka.create_topic(lake.settings.worker.kafka.backfills_topic)
            assert Backfill(lake.settings, "all", spark=lake.spark).run(Wanted(from_ms=0)).messages == 0, "all is held"
