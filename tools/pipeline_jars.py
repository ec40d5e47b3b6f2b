"""`python -m tools.pipeline_jars [lock]`: fetch the jars of the Spark session, or write their lock list anew."""

import sys
from functools import cache
from importlib.metadata import distribution
from pathlib import Path

from log_partitioner_pipeline import jars
from tools.local.class_archive import class_archive_of
from tools.local.errors import StackError
from tools.local.jars import require_java
from tools.maven import JarSet

_PIPELINE = Path(__file__).parents[1] / "pipeline"
_HOME = _PIPELINE.parent / jars.DIRECTORY
_JARS = JarSet(_PIPELINE / "pom.xml", jars.LOCK, "Iceberg and what Spark needs for it (133 MB)")


def ensure_pipeline_jars(home: Path = _HOME) -> Path:
    """Give the directory of the jars, fetched to `home` the first time (133 MB).

    Raises:
        StackError: they cannot be had.
    """
    return _JARS.ensure(home / jars.version())


def has_pipeline_jars() -> bool:
    """Return whether they are here already."""
    return (_HOME / jars.version()).is_dir()


@cache
def spark_class_archive() -> Path:
    """Return the directory of Spark's classes, once `tools.spark_classes` has put them there.

    Raises:
        MissingPrerequisiteError: there is no Java.
    """
    spark_jars = distribution("pyspark").locate_file("pyspark/jars")  # importing it takes 0.2 s
    return class_archive_of(_HOME, "spark", require_java(), Path(str(spark_jars)))


def main(arguments: list[str]) -> int:
    """Run the command; returns the exit code."""
    try:
        print(_JARS.write_lock() if arguments == ["lock"] else ensure_pipeline_jars())
    except StackError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
