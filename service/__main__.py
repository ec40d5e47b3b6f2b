"""`python -m service` is the console command `log-partitioner`."""

import sys

from service.cli import main

sys.exit(main())
