"""Runs a job as a process and measures its cost."""

import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec

from bench.process import cpu_s
from tools.demo.environment import Environment
from tools.local.errors import StackError

_LOOK_EVERY_S = 0.2


@dataclass(frozen=True, slots=True)
class Cost:
    """Wall time, CPU seconds (Java's too) and log of a job."""

    wall_s: float
    cpu_s: float
    log: list[dict[str, object]]  # its log lines


def run_job(
    environment: Environment, arguments: list[str], *, cores: int, module: str = "log_partitioner_pipeline"
) -> Cost:
    """Run `python -m MODULE ARGUMENTS`, Spark on local[cores]; blocks until it has ended.

    Raises:
        StackError: it failed.
    """
    log = environment.directory / f"{module}-{arguments[0]}.log"
    variables = {**environment.variables, "PIPELINE_SPARK__MASTER": f"local[{cores}]"}
    begun, used_s = time.monotonic(), 0.0
    with log.open("wb") as lines:
        job = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=lines,
            env=variables,
        )
        while job.poll() is None:
            used_s = max(used_s, cpu_s(job.pid))  # Java ends before it
            time.sleep(_LOOK_EVERY_S)
    if job.returncode != 0:
        raise StackError(f"`{module} {' '.join(arguments)}` ended with {job.returncode} ({log}).")
    return Cost(time.monotonic() - begun, used_s, _events(log))


def _events(log: Path) -> list[dict[str, object]]:
    """Read the log's JSON lines; Java writes others between them."""
    return [msgspec.json.decode(line) for line in log.read_bytes().splitlines() if line.startswith(b"{")]
