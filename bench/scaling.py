"""`python -m bench.scaling`: what an entry costs one worker, and several of one group on the same topic.

Groups of one worker, of two and of four work through the same backlog side by side, on one core, while Kafka and S3
have the others: what else the machine does, caches and hyperthreads bear on all of them alike. The broker waits for the
members of a group before it assigns anything, so that no rebalance is measured. CPU seconds count, which the kernel
accounts to each worker from its first assignment to its end; wall times say nothing here. An interval too long to be
reached (--settings LOGP_FLUSH__INTERVAL_S=600) leaves it to size alone when a batch is flushed, however slow the
machine is.

With --audit the small audit judges each run: 60 CPU seconds for 400,000 entries.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from itertools import product
from pathlib import Path
from typing import Any

from bench.figures import this_machine
from bench.lab import Lab, Run, add_options, open_lab, variables_of
from bench.output import read_output, read_topic
from bench.page import WORKERS
from bench.worker import CPU, Figures, fill, print_table, tell, work
from bench.workloads import add_options as add_workload_options
from bench.workloads import chosen
from log_partitioner.formats.reference import decode_references
from tools.local.errors import StackError

_RATIO = "times the first number"
_READ = "CPU us to read a reference"
# Kafka's default is 3 s; here as many interpreters as there are workers start on one core.
_MEMBERS_ARE_AWAITED = {"group.initial.rebalance.delay.ms": 6000}
_AUDIT_LIMIT_S = 3600.0


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return the exit code: 1 if a run was not possible, or not clean."""
    options = _parse(arguments)
    cases = options.cases.split(",")
    columns: dict[str, list[Figures]] = {}
    try:
        everywhere = os.sched_getaffinity(0)
        *others, last = sorted(everywhere)
        os.sched_setaffinity(0, others or {last})
        with open_lab(options.home, properties=_MEMBERS_ARE_AWAITED) as lab:
            os.sched_setaffinity(0, everywhere)
            for name in dict.fromkeys(case.partition(":")[0] for case in cases):
                fill(lab, chosen(name, options))
            for _, case in product(range(options.rounds), cases):
                os.sched_setaffinity(0, {last})
                measured = _measure(lab, case, options)
                os.sched_setaffinity(0, everywhere)
                for run, workers, figures in measured:
                    columns.setdefault(f"{case}, {workers}", []).append(figures)
                    audit = _audit(run) if options.audit else None
                    shutil.rmtree(run.objects, ignore_errors=True)
                    _record(options.record, case, workers, figures, audit)
    except StackError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    finally:
        print_table(columns)
    return 0


def _measure(lab: Lab, case: str, options: argparse.Namespace) -> list[tuple[Run, int, Figures]]:
    """Let each number of workers do a case, which is WORKLOAD:LANE.

    Raises:
        StackError: other numbers of entries are committed.
    """
    name, _, lane = case.partition(":")
    workload = chosen(name, options)
    variables = {**workload.variables, **variables_of(options.settings, None), **WORKERS[lane]}
    numbers = [int(number) for number in options.workers.split(",")]
    mark = time.time_ns()
    runs = [lab.run(f"{name}-{lane}-{number}-{mark}".lower(), name, variables) for number in numbers]
    measured = work(list(zip(runs, numbers, strict=True)), workload)
    for run, figures in zip(runs, measured, strict=True):
        figures[_RATIO] = figures[CPU] / measured[0][CPU]
        figures.update(read_output(run, sorted(run.directory.glob("*/worker.log"))))
        figures[_READ] = _read_us(run)
        if figures["entries"] != workload.entries:
            raise StackError(f"{run.name}: {figures['entries']:.0f} entries of {workload.entries} are committed.")
        tell(f"{run.name}: {figures[CPU]:.2f} us, {figures[_RATIO]:.3f}")
    return list(zip(runs, numbers, measured, strict=True))


def _read_us(run: Run) -> float:
    """Return the CPU microseconds that a reference costs its reader, such as the driver of a job."""
    begun_s = time.process_time()
    messages = read_topic(run.lab.bootstrap, run.topic("references"))
    count = sum(len(decode_references(message.value or b"")) for message in messages)
    return (time.process_time() - begun_s) / count * 1e6


def _audit(run: Run) -> dict[str, Any]:
    """Return the report of the small audit.

    Raises:
        StackError: it is not clean.
    """
    report = run.directory / "audit.json"
    command = [sys.executable, "-m", "log_partitioner", "audit", "--require-caught-up", "--json", str(report)]
    done = subprocess.run(
        command, env=run.environment(), capture_output=True, text=True, timeout=_AUDIT_LIMIT_S, check=False
    )
    if done.returncode:
        raise StackError(f"{run.name}: the audit ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    told: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
    return told


def _record(file: Path | None, case: str, workers: int, figures: Figures, audit: dict[str, Any] | None) -> None:
    if file is None:
        return
    line = {"date": time.strftime("%Y-%m-%d"), "of": this_machine(), "case": case, "workers": workers}
    if audit is not None:
        line["audit"] = {name: audit[name] for name in ("verdict", "counts", "findings")}
    line["figures"] = {name: round(value, 4) for name, value in figures.items()}
    with file.open("a", encoding="utf-8") as lines:
        lines.write(json.dumps(line) + "\n")


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.scaling", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--cases", default="A:fast,C:fast,A:python", help="WORKLOAD:LANE of each; default: %(default)s")
    add("--workers", default="1,2,4", help="numbers of workers; default: %(default)s")
    add("--rounds", type=int, default=3, help="default: %(default)s")
    add("--audit", action="store_true", help="judge each run by the small audit")
    add("--record", type=Path, metavar="FILE", help="append each run as a line of JSON there")
    add_workload_options(parser)
    add_options(parser, has_json=False)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
