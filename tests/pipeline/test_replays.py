"""Replays that a worker has discarded: the audit on Spark judges them, and no backfill makes them anew."""

import json
from collections.abc import Callable
from pathlib import Path

from log_partitioner.formats.findings import Kind
from log_partitioner_pipeline.audit.auditor import Auditor, Options
from log_partitioner_pipeline.jobs.backfill import Backfill, Summary
from tests.integration.harness import Deployment
from tests.integration.one_worker import run_through
from tests.pipeline.conftest import Lake
from tests.pipeline.test_audit_backfills import EVERYTHING as EVER
from tests.pipeline.test_backfill import EVERYTHING
from tests.stack.kafka_helper import KafkaHelper, ToProduce
from tests.stack.names import Names
from tests.stack.s3_helper import S3Helper

ROOTS = (17, 18, 17, 18, 20, 19, 20)  # 17 and 18 are published twice, and 19 after 20: it is lost
REPLAYS, LOST = [2, 3, 5, 6], 5


def test_replays_are_judged_and_not_made_anew(
    kafka: KafkaHelper, s3: S3Helper, names: Names, tmp_path: Path, lake_of: Callable[..., Lake]
) -> None:
    """Both audits name the output that a republisher out of order has lost; they miss no other."""
    with Deployment(kafka=kafka, s3=s3, names=names, root=tmp_path, partitions=1) as deployment:
        records = [
            ToProduce(
                value=json.dumps({"user": "u", "time": "2026-03-04T05:06:07Z", "n": root}).encode(),
                partition=0,
                headers={"source-topic-chain": json.dumps([["raw", 0, root, 0, "splitter/1"]]).encode()},
            )
            for root in ROOTS
        ]
        run_through(deployment, records, LOGP_INPUT__DISCARD_REPLAYS="true")
        (line,) = [line for flush in deployment.flush_records() for line in flush.topic_partitions]
        assert (line.records, line.entries, line.discarded_replays) == (
            len(ROOTS),
            len(ROOTS) - len(REPLAYS),
            len(REPLAYS),
        )

        small = deployment.audit()
        assert small.json["findings"].keys() == {Kind.REPLAY_MISSING}, small.text
        lake = lake_of(deployment)
        for here in (1_000_000, 0):
            options = Options(EVER, examples=9, verdicts=False, here_entries_max=here)
            found = Auditor(lambda: lake.spark, lake.settings, options).run().findings
            assert [(one.kind, one.count) for one in found] == [(Kind.REPLAY_MISSING, 1)]
            assert [(one.partition, one.offset) for one in found[0].examples] == [(0, LOST)]

        backfill = Backfill(lake.settings, names.group("run"), spark=lake.spark)
        assert backfill.summarise(EVERYTHING) == Summary(0, 0, {})
