"""`python -m bench.worker`: one worker from a full topic to the last commit, with the product's default settings.

Beside each run a fresh process reads the same topic and throws its records away: F, the least that any consumer in
Python pays for a record. CPU is what the kernel accounts to the worker, its start and what ends it included where said;
rounds go through all workloads in turn. Wall times of a shared machine are noise, multiples of F are not.
"""

import argparse
import json
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping

from bench.lab import Lab, Run, add_options, open_lab, variables_of
from bench.output import read_output
from bench.process import cpu_s, peak_bytes
from bench.workloads import TopicFiller, Workload, chosen, generate, next_offsets
from bench.workloads import add_options as add_workload_options
from deploy.demo.lag import GroupLag
from deploy.local.errors import ProcessDiedError, StackError
from deploy.local.s3_faults import S3FaultProxy

Figures = dict[str, float]

WORKER = "worker-1"
_F = "F: CPU us per record"
_CPU = "CPU us per entry, to the last commit"
_TURN_S = 0.1
_LIMIT_S = 3600.0


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return the exit code."""
    options = _parse(arguments)
    rounds: dict[str, list[Figures]] = {}
    try:
        workloads = [chosen(name, options) for name in options.workloads.split(",")]
        variables = variables_of(options.settings, options.layout)
        with open_lab(options.home) as lab:
            for workload in workloads:
                fill(lab, workload)
            for number in range(1, options.rounds + 1):
                for workload in workloads:
                    name = f"{workload.name.lower()}-{number}"
                    figures = measure(lab, workload, variables, name=name, counted=options.requests)
                    rounds.setdefault(workload.name, []).append(figures)
                    _tell(f"round {number}, {workload.name}: {figures[_CPU]:.1f} us, {figures['times F']:.1f} F")
    except StackError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    finally:
        if options.json:
            options.json.write_text(json.dumps(rounds, indent=1) + "\n", encoding="utf-8")
    print_table(rounds)
    return 0


def fill(lab: Lab, workload: Workload) -> None:
    """Write the workload to the topic of its name."""
    begun = time.monotonic()
    TopicFiller(lab.bootstrap, workload.name).write(generate(workload))
    _tell(f"{workload.name}: {workload.records:,} records in {time.monotonic() - begun:.0f} s")


def measure(lab: Lab, workload: Workload, variables: Mapping[str, str], *, name: str, counted: bool = False) -> Figures:
    """Return the figures of F and of one worker on the workload's topic; blocks until the worker has ended.

    Where `counted`, a proxy in front of the store counts the requests.

    Raises:
        StackError: the worker ended too early, was not done in an hour, or committed other numbers of entries.
    """
    least = discard(lab, workload.name)
    with S3FaultProxy(lab.s3) as store:
        run = lab.run(name, workload.name, dict(variables), s3=store.endpoint if counted else None)
        figures = {_F: least, **_work(run, workload.records)}
        requests = Counter(f"requests: {seen.method}" for seen in store.seen)
    figures["times F"] = figures[_CPU] / least
    figures |= read_output(run, [run.directory / WORKER / "worker.log"]) | requests
    if figures["entries"] != workload.records:
        raise StackError(f"{name}: {figures['entries']:.0f} entries of {workload.records} are committed.")
    shutil.rmtree(run.objects)
    return figures


def print_table(rounds: Mapping[str, list[Figures]]) -> None:
    """Print the median of each figure, and its least and largest where rounds differ."""
    names = list(dict.fromkeys(name for figures in rounds.values() for one in figures for name in one))
    print(f"{'':<40}" + "".join(f"{workload:>34}" for workload in rounds))
    for name in names:
        cells = (_cell([one[name] for one in figures if name in one]) for figures in rounds.values())
        print(f"{name:<40}" + "".join(f"{cell:>34}" for cell in cells))


def _cell(values: list[float]) -> str:
    if not values:
        return "-"
    low, median, high = (_number(value) for value in (min(values), statistics.median(values), max(values)))
    return median if low == high else f"{median} ({low} - {high})"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) or value >= 1000 else f"{value:,.3g}"  # noqa: PLR2004  # four digits


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


def _work(run: Run, records: int) -> Figures:
    """Run one worker until its group has committed everything, then end it by SIGTERM."""
    ends = next_offsets(run.lab.bootstrap, run.source)
    before = _cpu_of_children()
    fleet = run.fleet()
    lag = GroupLag(bootstrap=run.lab.bootstrap, group=run.name, topic=run.source)
    begun = time.monotonic()
    start_s = 0.0
    try:
        fleet.start(WORKER)
        process = fleet.workers[WORKER].process
        while lag.measure(ends) != 0:
            if not process.is_alive():
                raise ProcessDiedError(f"{WORKER} ended ({process.log})", last_lines=process.last_lines())
            if time.monotonic() - begun > _LIMIT_S:
                raise StackError(f"{run.name}: not done after {_LIMIT_S:.0f} s ({process.log}).")
            if not start_s and b'"partitions_assigned"' in process.log.read_bytes():
                start_s = cpu_s(process.pid)
            time.sleep(_TURN_S)
        wall_s = time.monotonic() - begun
        committed_s, peak = cpu_s(process.pid), peak_bytes(process.pid)
        late = fleet.stop()
    finally:
        fleet.kill()
        lag.close()
    if late:
        raise StackError(late[0])
    return {
        _CPU: committed_s / records * 1e6,
        "CPU us per entry, to the exit": (_cpu_of_children() - before) / records * 1e6,
        "CPU s of the start, included": start_s,
        "wall s": wall_s,
        "entries per s": records / wall_s,
        "peak RSS MiB": peak / 2**20,
    }


def _cpu_of_children() -> float:
    """Return the CPU seconds of all our children that have ended, as the kernel adds them up at wait4."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.worker", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workloads", default="A,B,C", help="of A, B, C, D; default: %(default)s")
    parser.add_argument("--rounds", type=int, default=5, help="default: %(default)s")
    parser.add_argument("--layout", choices=("auto", "pack", "file"), help="default: the product's")
    parser.add_argument("--requests", action="store_true", help="count requests at a proxy in front of the store, too")
    add_workload_options(parser)
    add_options(parser)
    return parser.parse_args(arguments)


def _tell(line: str) -> None:
    sys.stderr.write(f"bench: {line}\n")


if __name__ == "__main__":
    sys.exit(main())
