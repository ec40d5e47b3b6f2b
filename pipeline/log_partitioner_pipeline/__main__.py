"""`python -m log_partitioner_pipeline JOB`."""

import sys

from log_partitioner_pipeline.cli import main

sys.exit(main())
