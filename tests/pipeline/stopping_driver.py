"""Runs materialize and stops it, Spark's JVM too, at one call of one point: `stopping_driver.py POINT CALL [OPTION]`.

The test waits for the line `stopped at POINT` in its output, and then kills it or lets it go on.
"""

import sys

from log_partitioner_pipeline.announced import AnnouncedTable
from log_partitioner_pipeline.cli import main
from log_partitioner_pipeline.entries import EntryTable
from tests.pipeline.stopping import Point, stop_at

BETWEEN_RENAMES = "between the renames of a rebuild"

# The driver stops before or after a call of this method.
POINTS: dict[str, Point] = {
    "between files and commit of an announcement": Point(AnnouncedTable, "_update", is_before=False),
    "before the read": Point(EntryTable, "append"),
    "between data files and table commit": Point(EntryTable, "_update", is_before=False),
    "after the table commit": Point(EntryTable, "append", is_before=False),
}
OF_REBUILD = {BETWEEN_RENAMES: Point(EntryTable, "rename", is_before=False)}


if __name__ == "__main__":
    stop_at(sys.argv[1], (POINTS | OF_REBUILD)[sys.argv[1]]._replace(call=int(sys.argv[2])))
    sys.exit(main(["materialize", *sys.argv[3:]]))
