"""Runs user-activity and stops it, Spark's JVM too, before one of its writes: `activity_driver.py METHOD`.

The test waits for the line `stopped before METHOD` in its output, and then kills it or lets it go on.
"""

import os
import signal
import sys
from typing import Any

from log_partitioner_pipeline.cli import main
from log_partitioner_pipeline.jobs.user_activity import UserActivity


def stop_before(name: str) -> None:
    """Make the driver stop the first time that it comes to this method."""
    method = getattr(UserActivity, name)

    def stopping(*args: Any) -> Any:
        setattr(UserActivity, name, method)
        print(f"stopped before {name}", flush=True)
        os.killpg(os.getpgrp(), signal.SIGSTOP)
        return method(*args)

    setattr(UserActivity, name, stopping)


if __name__ == "__main__":
    stop_before(sys.argv[1])
    sys.exit(main(["user-activity"]))
