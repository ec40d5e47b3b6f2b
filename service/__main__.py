"""`python -m service` is the console command `log-partitioner`."""

import os
import sys

from service.cli import main


def run() -> None:
    """Run the command and end the process with its exit code.

    At once: what the client library still waits for in a broker that does not answer would hold up the interpreter's
    own end. Everything is committed or discarded, and said, by then.
    """
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    run()
