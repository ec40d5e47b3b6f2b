"""Runs backfill and stops it, Spark's JVM too, at one point: `backfill_driver.py POINT ARGUMENTS...`.

The test waits for the line `stopped at POINT` in its output, and then kills it or lets it go on.
"""

import sys

from log_partitioner.adapters.kafka.committer import KafkaCommitter
from log_partitioner_pipeline.backfill import publish, write
from log_partitioner_pipeline.backfill.publish import Publication
from log_partitioner_pipeline.cli import main
from log_partitioner_pipeline.jobs.backfill import Backfill
from log_partitioner_pipeline.publisher import Publisher
from tests.pipeline.stopping import Point, stop_at

# The driver stops before or after a call of this method; the number says which call.
POINTS: dict[str, Point] = {
    "before the upload": Point(Backfill, "_write"),
    "between upload and manifest": Point(Backfill, "_write_outbox"),
    "between manifest and first transaction": Point(Backfill, "publish"),
    "inside an open transaction": Point(KafkaCommitter, "_end", call=2),
    "between two transactions": Point(Publisher, "commit", is_before=False),
    "after the last transaction": Point(Publication, "_await_visible"),
}


if __name__ == "__main__":
    publish.TRANSACTION_MESSAGES_MAX, write.PART_MESSAGES_MAX = 3, 2
    stop_at(sys.argv[1], POINTS[sys.argv[1]])
    sys.exit(main(["backfill", *sys.argv[2:]]))
