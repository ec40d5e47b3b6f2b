"""`python -m log_partitioner` is the console command `log-partitioner`."""

import os
import sys
from contextlib import suppress

from log_partitioner.cli import main


def run() -> None:
    """Run the command and end the process with its exit code, without the interpreter's own shutdown.

    That shutdown would wait for the client library, which may wait for a broker that does not answer. By then
    everything is committed or discarded, and reported.
    """
    code = main()
    with suppress(BrokenPipeError):  # who was reading has enough
        sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    run()
