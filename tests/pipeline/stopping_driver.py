"""Runs materialize and stops it, Spark's JVM too, at one point of one slice: `stopping_driver.py POINT SLICE`.

Whoever started it sees the line `stopped at POINT` in its output, and then kills it or lets it go on.
"""

import sys

from log_partitioner_pipeline.cli import main
from log_partitioner_pipeline.table import Table
from tests.pipeline.stopping import Point, stop_at

# Where the driver stops: before or after a call of this method.
POINTS: dict[str, Point] = {
    "before the read": Point(Table, "append"),
    "between data files and table commit": Point(Table, "_update", is_before=False),
    "after the table commit": Point(Table, "append", is_before=False),
}


if __name__ == "__main__":
    stop_at(sys.argv[1], POINTS[sys.argv[1]]._replace(call=int(sys.argv[2])))
    sys.exit(main(["materialize"]))
