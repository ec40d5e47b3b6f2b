"""`python -m tools.spark_classes`: have the archive of the classes that Spark loads made, once (half a minute).

Jobs that are over in seconds, as tests and the demo run them, spend half of their time on loading classes.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from log_partitioner_pipeline.config import load_all
from log_partitioner_pipeline.session import open_session
from tools.demo.options import SPARK_OPTIONS, for_spark, small_spark
from tools.local.class_archive import ensure_class_archive, options_to_dump
from tools.local.errors import StackError
from tools.pipeline_jars import ensure_pipeline_jars, spark_class_archive

_LIMIT_S = 600


def main(arguments: list[str]) -> int:
    """Make the archive, or be the process whose Java does (`first-run`); returns the exit code."""
    if arguments == ["first-run"]:
        _use_spark()
        return 0
    try:
        ensure_pipeline_jars()
        ensure_class_archive(spark_class_archive(), _run_once)
    except StackError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _run_once(archive: Path) -> None:
    """Run a Spark that writes its classes to a file when it ends."""
    variables = small_spark(is_compiled=True)
    properties = json.loads(variables["PIPELINE_SPARK__PROPERTIES"])
    properties[SPARK_OPTIONS] += " " + for_spark(options_to_dump(archive))
    with tempfile.TemporaryDirectory() as scratch:
        settings = {
            "LOGP_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:1",
            "LOGP_KAFKA__SOURCE_TOPICS": '["none"]',
            "LOGP_S3__BUCKET": "none",
            "PIPELINE_CATALOG__URI": f"{scratch}/catalog.db",
            "PIPELINE_CATALOG__WAREHOUSE": f"{scratch}/warehouse",
            "PIPELINE_SPARK__JARS_DIRECTORY": str(ensure_pipeline_jars()),
            "PIPELINE_SPARK__MASTER": "local[2]",
            "PIPELINE_SPARK__PROPERTIES": json.dumps(properties),
        }
        own = {name: value for name, value in os.environ.items() if not name.startswith(("LOGP_", "PIPELINE_"))}
        command = [sys.executable, "-m", "tools.spark_classes", "first-run"]
        # The output that is read is Java's, too: it ends with Java, for which Python does not wait.
        done = subprocess.run(
            command, env=own | settings, capture_output=True, text=True, timeout=_LIMIT_S, check=False
        )
    if done.returncode != 0:
        raise StackError(f"Spark did not run:\n{done.stderr[-2000:]}")


def _use_spark() -> None:
    """Do the work of the jobs in small: write a table, read it, sort and group, in Python as well."""
    spark = open_session(load_all(), name="classes")
    columns = "id bigint, text string, day date"
    spark.sql(f"create table lake.first_run.entries ({columns}) using iceberg partitioned by (day)")
    rows = "select id, cast(id as string) text, date_add(date '2026-01-01', cast(id % 2 as int)) day from range(100)"
    spark.sql(f"insert into lake.first_run.entries {rows}")
    spark.sql(f"merge into lake.first_run.entries t using ({rows}) s on t.id = s.id when matched then delete")
    spark.sql("select text, count(*) from lake.first_run.entries group by text order by text").collect()
    spark.table("lake.first_run.entries").mapInArrow(lambda rows: rows, columns).collect()
    spark.stop()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
