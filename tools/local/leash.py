"""Run a command that dies with the process that started it, even if that one is killed by SIGKILL.

Started as a file (`python -I -S leash.py PARENT_PID COMMAND...`), it replaces itself by the command, so that
the pid is the command's. Imports nothing of ours, and may not: it must start in milliseconds.
"""

import ctypes
import os
import signal
import sys

# From <sys/prctl.h>. The setting survives exec, which is why this works without a watchdog process.
PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    """Ask the kernel for SIGKILL when the parent ends, then become the command."""
    parent_pid, command = int(arguments[0]), arguments[1:]
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    # The parent may have ended before prctl took hold; then the signal never comes.
    if os.getppid() != parent_pid:
        sys.exit("leash: the parent is gone")
    os.execvp(command[0], command)  # noqa: S606  # the command is ours


if __name__ == "__main__":
    main(sys.argv[1:])
