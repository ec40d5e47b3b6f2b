"""Runs a job whose work is done by executors, however little it is: `executors_driver.py JOB [OPTION]`."""

import sys

from log_partitioner_pipeline.audit import auditor
from log_partitioner_pipeline.cli import main

if __name__ == "__main__":
    defaults = auditor.Options._field_defaults | {"here_entries_max": 0}
    auditor.Options.__new__.__defaults__ = tuple(defaults.values())
    sys.exit(main(sys.argv[1:]))
