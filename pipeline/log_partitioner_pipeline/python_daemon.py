"""The parent of an executor's Python workers, as `spark.python.daemon.module`: PySpark's own, without its archives.

Spark puts `pyspark.zip`, `py4j.zip` and a jar before everything on the path of its workers, and has every task forget
what Python knows of its path: until Python 3.13 each task then reads the lists of contents of these archives anew (67 %
of the samples of the workers of small jobs, `zipimport` in Python 3.11). Here PySpark is installed as a package.
"""

import sys
from pathlib import Path


def leave_out_archives() -> None:
    """Take archives off the path of this process and of its forks; Spark adds those of a job later."""
    sys.path[:] = [entry for entry in sys.path if not Path(entry).is_file()]
    for entry in [known for known in sys.path_importer_cache if Path(known).is_file()]:
        del sys.path_importer_cache[entry]


if __name__ == "__main__":
    leave_out_archives()
    from pyspark.daemon import manager

    manager()  # type: ignore[no-untyped-call]
