"""`python -m pipeline JOB`."""

import sys

from pipeline.cli import main

sys.exit(main())
