"""Measures the cost of one worker from a full topic to the last commit, and F, the cost of reading alone.

F is a fresh process that reads the same topic and throws its records away, the least that any consumer in Python pays.
CPU is the time that the kernel accounts to a process and its descendants. Wall times of a shared machine are noise;
multiples of F of the same topic, measured in the same minutes, are less so.
"""

import http.client
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from bench.lab import Lab, Run
from bench.output import log_lines, read_output
from bench.process import cpu_s, peak_bytes
from bench.workloads import TopicFiller, Workload, generate
from log_partitioner.formats.log_events import WorkerStarted
from tools.demo.fleet import Fleet
from tools.local.errors import ProcessDiedError, StackError
from tools.local.processes import ServerProcess
from tools.local.s3_faults import S3FaultProxy

Figures = dict[str, float]

WORKER = "worker-1"
CPU = "CPU us per entry"
RATE = "entries per s"
RSS = "peak RSS MiB"
START = "CPU s of the start, not included"
_TURN_S = 0.5  # each asks for metrics, 2 ms of the worker's time
_STOPPING_TURN_S = 0.1
_START_LIMIT_S = 300.0
_LIMIT_S = 3600.0


def fill(lab: Lab, workload: Workload) -> int:
    """Write the workload to the topic of its name; return how many bytes its values have."""
    begun = time.monotonic()
    size = 0

    def counted() -> Iterator[bytes]:
        nonlocal size
        for value in generate(workload):
            size += len(value)
            yield value

    TopicFiller(lab.bootstrap, workload.name).write(counted())
    tell(f"{workload.name}: {workload.records:,} records in {time.monotonic() - begun:.0f} s")
    return size


def discard(lab: Lab, topic: str) -> float:
    """Return the CPU microseconds per record of a process that reads the topic and does nothing."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.discard", lab.bootstrap, topic],
        stdout=subprocess.PIPE,
        check=True,
        timeout=_LIMIT_S,
    )
    found = json.loads(done.stdout)
    return float(found["cpu_s"]) / int(found["records"]) * 1e6


def measure(lab: Lab, workload: Workload, variables: Mapping[str, str], *, name: str, counted: bool = False) -> Figures:
    """Return the figures of one worker on the workload's topic; blocks until the worker has ended.

    If `counted`, a proxy in front of the store counts the requests.

    Raises:
        StackError: the worker ended too early, was not done in an hour, or committed other numbers of entries.
    """
    with S3FaultProxy(lab.s3) as store:
        run = lab.run(name, workload.name, {**workload.variables, **variables}, s3=store.endpoint if counted else None)
        [figures] = work([(run, 1)], workload)
        requests = Counter(f"requests: {seen.method}" for seen in store.seen)
    figures |= read_output(run, [run.directory / WORKER / "worker.log"]) | requests
    if figures["entries"] != workload.entries:
        raise StackError(f"{name}: {figures['entries']:.0f} entries of {workload.entries} are committed.")
    shutil.rmtree(run.objects, ignore_errors=True)  # if the store is a process of ours
    return figures


def print_table(rounds: Mapping[str, list[Figures]]) -> None:
    """Print the median of each figure, and its least and largest if rounds differ."""
    names = list(dict.fromkeys(name for figures in rounds.values() for one in figures for name in one))
    print(f"{'':<40}" + "".join(f"{column:>34}" for column in rounds))
    for name in names:
        cells = (cell([one[name] for one in figures if name in one]) for figures in rounds.values())
        print(f"{name:<40}" + "".join(f"{text:>34}" for text in cells))


def cell(values: list[float]) -> str:
    """Return the median, and the least and the largest if they differ."""
    if not values:
        return "-"
    low, median, high = (number(value) for value in (min(values), statistics.median(values), max(values)))
    return median if low == high else f"{median} ({low} - {high})"


def tell(line: str) -> None:
    """Say how far a run is."""
    sys.stderr.write(f"bench: {line}\n")


def taken(process: ServerProcess) -> int:
    """Return how many records a worker has taken so far; asks its metrics.

    Raises:
        ProcessDiedError: it has ended.
    """
    started = [line.event for line in log_lines([process.log]) if isinstance(line.event, WorkerStarted)]
    if not started:
        require_alive(process)
        return 0
    connection = http.client.HTTPConnection("127.0.0.1", started[-1].http_port, timeout=30)
    try:
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().decode().splitlines()
    except OSError:
        require_alive(process)
        return 0
    finally:
        connection.close()
    return int(
        sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith("log_partitioner_records_total"))
    )


def require_alive(process: ServerProcess) -> None:
    """Do nothing.

    Raises:
        ProcessDiedError: the worker has ended.
    """
    if not process.is_alive():
        raise ProcessDiedError(f"{process.name} ended ({process.log})", last_lines=process.last_lines())


def work(runs: Sequence[tuple[Run, int]], workload: Workload) -> list[Figures]:
    """Let so many workers of each run take everything, then end them by SIGTERM, upon which they commit.

    Runs go on side by side: what else the machine does bears on all of them. CPU and peak are those of a run's workers
    together.

    Raises:
        StackError: a worker ended too early, or they were not done in an hour.
    """
    fleets = [run.fleet() for run, _ in runs]
    begun = time.monotonic()
    try:
        for fleet, (_, workers) in zip(fleets, runs, strict=True):
            for count in range(1, workers + 1):
                fleet.start(f"worker-{count}")
        groups = [_Group(fleet) for fleet in fleets]
        while sum(group.is_done(workload.records) for group in groups) < len(groups):
            if time.monotonic() - begun > _LIMIT_S:
                raise StackError(f"{[run.name for run, _ in runs]}: not done after {_LIMIT_S:.0f} s.")
            time.sleep(_STOPPING_TURN_S if any(group.is_stopping for group in groups) else _TURN_S * len(groups))
        return [group.figures(workload.entries, begun) for group in groups]
    finally:
        for fleet in fleets:
            fleet.kill()


class _Group:
    """The workers of one run, all of which have been assigned something."""

    def __init__(self, fleet: Fleet) -> None:
        self.is_stopping = False
        self._fleet = fleet
        self._processes = [worker.process for worker in fleet.workers.values()]
        for process in self._processes:
            process.wait_for_line('"partitions_assigned"', timeout_s=_START_LIMIT_S)
        self._starts_s = [cpu_s(process.pid) for process in self._processes]
        self._peaks = dict.fromkeys([process.pid for process in self._processes], 0)
        self._ended = 0.0

    def is_done(self, records: int) -> bool:
        """Say whether all have ended; asks them to once they have taken as many records.

        This process does not wait for them, so that the kernel still tells their CPU.
        """
        if self._ended:
            return True
        if not self.is_stopping and sum(map(taken, self._processes)) >= records:
            self.is_stopping = True
            for process in self._processes:
                process.terminate()
        self._peaks = {pid: max(peak, peak_bytes(pid)) for pid, peak in self._peaks.items()}
        if self.is_stopping and all(map(_has_ended, self._peaks)):
            self._ended = time.monotonic()
        return self._ended > 0

    def figures(self, entries: int, begun: float) -> Figures:
        """Return what it took since `begun`.

        Raises:
            StackError: a worker had to be killed.
        """
        used_s = [cpu_s(one.pid) - start_s for one, start_s in zip(self._processes, self._starts_s, strict=True)]
        for sentence in self._fleet.stop():
            raise StackError(sentence)
        return {
            CPU: sum(used_s) / entries * 1e6,
            START: sum(self._starts_s),
            "wall s": self._ended - begun,
            RATE: entries / (self._ended - begun),
            RSS: sum(self._peaks.values()) / 2**20,
            **{f"CPU s of {one.name}": s for one, s in zip(self._processes, used_s, strict=True)},
        }


def _has_ended(pid: int) -> bool:
    """Say whether a child has ended, without taking it from the kernel."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None


def number(value: float) -> str:
    """Return a figure in as many digits as it means anything in."""
    return f"{value:,.0f}" if value == int(value) or value >= 1000 else f"{value:,.3g}"  # noqa: PLR2004  # four digits
