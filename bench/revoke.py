"""How long a rebalance at full load holds a worker up: a second one joins while the first works through a backlog."""

import time

from bench.lab import Lab
from bench.output import log_lines
from bench.worker import WORKER, Figures, require_alive, taken
from bench.workloads import Workload
from log_partitioner.formats.log_events import BatchCommitted, FlushStarted, LogLine, PartitionsRevoked
from tools.local.errors import StackError

_SECOND = "worker-2"
_TURN_S = 0.5
_LIMIT_S = 300.0
_REVOKED = "revoked"


def measure_revoke(lab: Lab, workload: Workload, variables: dict[str, str], share: float, *, name: str) -> Figures:
    """Return for how long the first worker's revoke blocked, and how many entries its flush had.

    The second one is started when this share of the records is taken.

    Raises:
        StackError: nothing was revoked within five minutes, or a worker ended.
    """
    fleet = lab.run(name, workload.name, variables).fleet()
    deadline = time.monotonic() + _LIMIT_S
    try:
        fleet.start(WORKER)
        first = fleet.workers[WORKER].process
        while taken(first) < share * workload.records:
            _wait(deadline, name)
        fleet.start(_SECOND)
        while True:
            lines = log_lines([first.log])
            if any(isinstance(line.event, PartitionsRevoked) for line in lines):
                return _blocked(lines)
            require_alive(first)
            _wait(deadline, name)
    finally:
        fleet.kill()


def _wait(deadline: float, name: str) -> None:
    if time.monotonic() > deadline:
        raise StackError(f"{name}: nothing was revoked within {_LIMIT_S:.0f} s.")
    time.sleep(_TURN_S)


def _blocked(lines: list[LogLine]) -> Figures:
    """Return the time from the begin of the revoke's flush until it was answered; nothing to flush blocks for none."""
    begun = next((line for line in lines if _is_of_revoke(line.event, FlushStarted)), None)
    revoked = next(line for line in lines if isinstance(line.event, PartitionsRevoked))
    flush = next((line for line in lines if _is_of_revoke(line.event, BatchCommitted)), None)
    return {
        "seconds": revoked.fields["mono"] - begun.fields["mono"] if begun else 0.0,
        "entries": flush.fields["entries"] if flush else 0,
    }


def _is_of_revoke(event: object, kind: type) -> bool:
    return isinstance(event, kind) and getattr(event, "reason", None) == _REVOKED
