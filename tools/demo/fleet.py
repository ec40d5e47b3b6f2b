"""The worker processes of the demo: start, signals, and restarts of those that end unasked.

Each worker is `python -m log_partitioner run`, leashed to this process, in a session of its own, with its own name,
spool and port, and writes JSON lines to its own log file. Main thread only (the leash hangs on it).
"""

import math
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from tools.demo.faults import Action, Step
from tools.local.errors import ProcessDiedError
from tools.local.ports import find_free_ports
from tools.local.processes import ServerProcess

_TOO_EARLY_S = 5.0  # a worker that ends sooner does not work at all
_RESTARTS_MAX = 20
_STOP_GRACE_S = 180.0  # all is committed by then: it bounds a worker that hangs
AS_IN_THE_IMAGE = {"MALLOC_ARENA_MAX": "4"}
"""Variables that workers have in the image, so that they take the same memory here."""


class WorkerState(Enum):
    """The state of a worker by the last action of the demo on it."""

    RUNNING = "running"
    PAUSED = "paused"
    STOPPING = "stopping"
    STOPPED = "stopped"
    KILLED = "killed"


@dataclass(slots=True)
class Worker:
    """One worker by its name; restarts under the same name go on in the same log."""

    name: str
    process: ServerProcess
    started_at: float
    state: WorkerState = WorkerState.RUNNING
    kill_at: float = math.inf
    """When it has not ended by then, though it was asked to."""

    def terminate(self) -> None:
        """Ask it to end."""
        self.process.terminate()
        self.state = WorkerState.STOPPING
        self.kill_at = time.monotonic() + _STOP_GRACE_S


class Fleet:
    """All workers that ever were, by name."""

    def __init__(
        self,
        *,
        root: Path,
        settings: Mapping[str, str],
        restarts_max: int = _RESTARTS_MAX,
        too_early_s: float = _TOO_EARLY_S,
    ) -> None:
        """Unasked ends beyond `restarts_max`, or sooner than `too_early_s` after a start, are those of no use."""
        self.workers: dict[str, Worker] = {}
        self.restarts = 0
        self._late: list[str] = []
        self._root = root
        self._restarts_max = restarts_max
        self._too_early_s = too_early_s
        self._settings = settings  # the whole environment of a worker but for what is its own

    def start(self, name: str) -> None:
        """Start a worker; also again, after it has ended."""
        own = {
            "LOGP_WORKER": name,
            "LOGP_HTTP__HOST": "127.0.0.1",
            "LOGP_HTTP__PORT": str(find_free_ports(1)[0]),
            "LOGP_SPOOL__DIRECTORY": str(self._root / name / "spool"),
            "LOGP_LOG__FORMAT": "json",
        }
        process = ServerProcess(
            name,
            [sys.executable, "-m", "log_partitioner", "run"],
            log=self.log_of(name),
            env={**AS_IN_THE_IMAGE, **self._settings, **own},
        )
        self.workers[name] = Worker(name, process, time.monotonic())

    def log_of(self, name: str) -> Path:
        """Return the file of the worker's output."""
        return self._root / name / "worker.log"

    def perform(self, step: Step) -> None:
        """Execute the plan; a worker that has ended by itself meanwhile is left alone."""
        if step.action is Action.START:
            self.start(step.worker)
            return
        worker = self.workers[step.worker]
        if not worker.process.is_alive():
            return
        match step.action:
            case Action.KILL:
                worker.process.kill()
                worker.state = WorkerState.KILLED
            case Action.PAUSE:
                worker.process.pause()
                worker.state = WorkerState.PAUSED
            case Action.RESUME:
                worker.process.resume()
                worker.state = WorkerState.RUNNING
            case Action.TERMINATE:
                worker.terminate()

    def mend(self) -> list[str]:
        """Start workers that ended unasked again, as a cluster would; return a sentence for each.

        Raises:
            ProcessDiedError: a worker ended right after its start, or it happened too often.
        """
        sentences = []
        for worker in list(self.workers.values()):
            if worker.process.is_alive():
                if worker.state is WorkerState.STOPPING and time.monotonic() >= worker.kill_at:
                    sentences.append(self._kill_late(worker))
                continue
            if worker.state is WorkerState.STOPPING:
                worker.state = WorkerState.STOPPED
                sentences.append(f"{worker.name} has stopped")
            elif worker.state is WorkerState.RUNNING:
                self._require_use(worker)
                self.restarts += 1
                self.start(worker.name)
                sentences.append(f"{worker.name} ended by itself and was started again")
        return sentences

    def stop(self) -> list[str]:
        """End all workers by SIGTERM; return a sentence for each that ever had to be killed."""
        running = [worker for worker in self.workers.values() if worker.process.is_alive()]
        for worker in running:
            worker.terminate()
        for worker in running:
            while worker.process.is_alive() and time.monotonic() < worker.kill_at:
                time.sleep(0.05)
            if worker.process.is_alive():
                self._kill_late(worker)
            else:
                worker.state = WorkerState.STOPPED
        return self._late

    def _kill_late(self, worker: Worker) -> str:
        worker.process.kill()
        worker.state = WorkerState.KILLED
        self._late.append(f"{worker.name} did not stop within {_STOP_GRACE_S:.0f} s and was killed")
        return self._late[-1]

    def kill(self) -> None:
        """End all workers by SIGKILL; on return they are gone."""
        for worker in self.workers.values():
            worker.process.kill()

    def _require_use(self, worker: Worker) -> None:
        early = time.monotonic() - worker.started_at < self._too_early_s
        if early or self.restarts >= self._restarts_max:
            when = "right after its start" if early else f"after {self.restarts} restarts of workers"
            raise ProcessDiedError(
                f"{worker.name} ended {when} ({worker.process.log})", last_lines=worker.process.last_lines()
            )
