"""`python -m tools.demo.spark_jobs`: jobs of the pipeline, one after the other, in one Spark session.

The session is there before the first job is asked for: starting Java takes ten seconds, once instead of for each job. A
line of standard input is a job, {"arguments": [...], "report": FILE}: what `python -m log_partitioner_pipeline
ARGUMENTS` would do, with the report for its standard output. The answer is its exit code, on a line of standard output.
"""

import json
import os
import sys
from contextlib import redirect_stdout
from pathlib import Path

from log_partitioner_pipeline import cli
from log_partitioner_pipeline.config import load_all
from log_partitioner_pipeline.jobs import audit, materialize
from log_partitioner_pipeline.report import page
from log_partitioner_pipeline.session import open_session

PRELOADED = (audit, materialize, page)  # `cli` imports them job by job, and they take seconds


def main() -> int:
    """Run jobs until standard input ends."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1, encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever Java prints is log
    open_session(load_all(), name="demo")
    if len(sys.argv) > 1:  # the terminal: Java's lines stay in the log, the jobs' own lines and progress go there
        sys.stderr = os.fdopen(int(sys.argv[1]), "w", buffering=1, encoding="utf-8")
    for line in sys.stdin:
        job = json.loads(line)
        with Path(job["report"]).open("w", encoding="utf-8") as report, redirect_stdout(report):
            code = cli.main(job["arguments"])
        answers.write(f"{code}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
