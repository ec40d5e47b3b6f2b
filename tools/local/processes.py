"""One server process: its log, its readiness, its signals; always by pid, never by name.

`ServerProcess` is a child of ours. `ProcessRecord` is a process started by an earlier run, known by pid and
start time, so that a pid that the system has given to another process is never signalled.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.local.errors import ProcessDiedError

_LEASH = Path(__file__).with_name("leash.py")
_POLL_S = 0.05
_ERRORS_SHOWN = 5


class ServerProcess:
    """A running child in a session of its own, so that Ctrl-C in a terminal does not reach it.

    With `leashed` it dies when the thread that started it ends (that is how Linux defines it), so start
    servers from the main thread. Without, it outlives us.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        log: Path,
        leashed: bool = True,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        prefix = [sys.executable, "-I", "-S", str(_LEASH), str(os.getpid())] if leashed else []
        with log.open("ab") as output:
            self._log_start = output.tell()
            self._child = subprocess.Popen(
                [*prefix, *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=env,
            )

    @property
    def pid(self) -> int:
        """The server's own process id (the leash has become the server)."""
        return self._child.pid

    @property
    def exit_code(self) -> int | None:
        """How the process ended: its code, minus the signal that ended it, None while it runs."""
        return self._child.poll()

    def is_alive(self) -> bool:
        """Say whether the process still exists; true also while it is paused."""
        return self._child.poll() is None

    def wait_for_line(self, text: str, *, timeout_s: float) -> None:
        """Block until the log of this run has a line with the text.

        Raises:
            ProcessDiedError: the process ended or the time is over; the process is then gone.
        """
        deadline = time.monotonic() + timeout_s
        while text not in self._log_of_this_run():
            if not self.is_alive():
                raise ProcessDiedError(
                    f"{self.name} ended with code {self._child.returncode} before it was ready",
                    last_lines=self._first_errors() + self.last_lines(),
                )
            if time.monotonic() > deadline:
                self.kill()
                raise ProcessDiedError(
                    f"{self.name} was not ready after {timeout_s:.0f} s", last_lines=self.last_lines()
                )
            time.sleep(_POLL_S)

    def last_lines(self, count: int = 15) -> str:
        """Return the end of this run's log."""
        return "\n".join(self._log_of_this_run().splitlines()[-count:])

    def _first_errors(self) -> str:
        """Return the first errors in this run's log, each on a line: a server writes much more while it ends."""
        lines = self._log_of_this_run().splitlines()
        errors = [line for line in lines if "ERROR" in line or "Exception" in line]
        return "".join(f"{line}\n" for line in errors[:_ERRORS_SHOWN])

    def terminate(self) -> None:
        """Send SIGTERM and return at once; a paused process is resumed, or it would never see it."""
        if self.is_alive():
            self._child.send_signal(signal.SIGTERM)
            self._child.send_signal(signal.SIGCONT)

    def wait(self, *, grace_s: float) -> None:
        """Wait for the process to end by itself, then use SIGKILL; on return it is gone."""
        try:
            self._child.wait(grace_s)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """Send SIGKILL and wait until the process is gone."""
        self._child.kill()
        self._child.wait()

    def pause(self) -> None:
        """Send SIGSTOP: the process keeps its connections and does nothing."""
        self._child.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Send SIGCONT."""
        self._child.send_signal(signal.SIGCONT)

    def release(self) -> "ProcessRecord":
        """Hand the process over to the reader of the record; this object is not used afterwards."""
        record = ProcessRecord.of(self.name, self.pid)
        self._child.returncode = 0  # Popen would warn that a child is still running
        return record

    def _log_of_this_run(self) -> str:
        with self.log.open("rb") as lines:
            lines.seek(self._log_start)
            return lines.read().decode(errors="replace")


@dataclass(frozen=True, slots=True)
class ProcessRecord:
    """A process as it can be found again by another run."""

    name: str
    pid: int
    started: str  # as the kernel tells it; two processes never have the same pid and start

    @classmethod
    def of(cls, name: str, pid: int) -> "ProcessRecord":
        """Record a process that is running now."""
        started = _start_of(pid)
        if started is None:
            raise ProcessDiedError(f"{name} (pid {pid}) is not running", last_lines="")
        return cls(name=name, pid=pid, started=started)

    def is_running(self) -> bool:
        """Say whether this very process still runs; another one with its pid does not count."""
        return _start_of(self.pid) == self.started

    def stop(self, *, grace_s: float) -> bool:
        """End the process, by SIGTERM first; return whether there was one to end."""
        if not self.is_running():
            return False
        os.kill(self.pid, signal.SIGTERM)
        deadline = time.monotonic() + grace_s
        while self.is_running():
            if time.monotonic() > deadline:
                os.kill(self.pid, signal.SIGKILL)
                deadline = float("inf")
            time.sleep(_POLL_S)
        return True


def _start_of(pid: int) -> str | None:
    """Return when the process started (clock ticks since boot), None if there is none or only a zombie."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The second field is the command in parentheses and may itself have spaces and parentheses.
    fields = status.rpartition(")")[2].split()
    state, start_ticks = fields[0], fields[19]
    return None if state in "ZX" else start_ticks
