"""Erases a user and stops, Spark's JVM too, before the second table: `erase_driver.py USER`.

The test waits for the line `stopped at TABLE` in its output, and then kills it.
"""

import sys

from log_partitioner_pipeline.cli import main
from log_partitioner_pipeline.jobs.erase import Erase
from tests.pipeline.stopping import Point, stop_at

if __name__ == "__main__":
    stop_at("TABLE", Point(Erase, "_delete_from", call=2))
    sys.exit(main(["erase", sys.argv[1]]))
