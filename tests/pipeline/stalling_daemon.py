"""The parent of executors' Python workers, one of which stalls for ever: the first of a run that reads an object.

The environment names a symbolic link whose target is that worker's pid.
"""

import os
import time
from pathlib import Path
from typing import Any

from botocore.client import BaseClient
from pyspark.daemon import manager

from log_partitioner_pipeline.python_daemon import leave_out_archives

LINK = "LOGP_TEST_STALLED"
STALLS_S = 600.0


def stall_once(link: Path) -> None:
    """Let the first request for an object never be sent."""
    call = BaseClient._make_api_call  # type: ignore[attr-defined]

    def stalling(self: BaseClient, operation_name: str, api_params: dict[str, Any]) -> Any:
        if operation_name == "GetObject":
            try:
                link.symlink_to(str(os.getpid()))
            except FileExistsError:
                pass
            else:
                time.sleep(STALLS_S)
        return call(self, operation_name, api_params)

    BaseClient._make_api_call = stalling  # type: ignore[attr-defined]


if __name__ == "__main__":
    leave_out_archives()
    stall_once(Path(os.environ[LINK]))
    manager()  # type: ignore[no-untyped-call]
