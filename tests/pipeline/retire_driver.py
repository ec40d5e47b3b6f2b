"""Runs compaction and stops it, Spark's JVM too, at one point of retirement: `retire_driver.py POINT`.

The test waits for the line `stopped at POINT` in its output, and then kills it.
"""

import sys

from log_partitioner_pipeline.cli import main
from log_partitioner_pipeline.retire import Retirement
from tests.pipeline.stopping import Point, stop_at

POINTS: dict[str, Point] = {
    "between record and delete": Point(Retirement, "_delete_objects"),
    "between delete and the record of it": Point(Retirement, "_delete_objects", is_before=False),
}


if __name__ == "__main__":
    stop_at(sys.argv[1], POINTS[sys.argv[1]])
    sys.exit(main(["compact"]))
