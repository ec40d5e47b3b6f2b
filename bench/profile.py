"""`python -m bench.profile`: which functions take a worker's CPU, those of compiled code among them (py-spy).

One worker works through a workload; its start is left out. Shares are of the samples in which a thread did not wait;
functions whose names are not in their library stand together as `?`. py-spy is installed to a directory of its own the
first time; if the system lets only parents trace a process, run this as root.
"""

import argparse
import re
import subprocess
import sys
import time
import venv
from collections import Counter
from pathlib import Path

from bench.lab import Run, add_options, open_lab, variables_of
from bench.worker import WORKER, fill, taken
from bench.workloads import add_options as add_workload_options
from bench.workloads import chosen
from tools.local.errors import StackError

_PY_SPY = "py-spy==0.4.3"
_LINES = 40  # of each list
_ADDRESS = re.compile(r"^0x[0-9a-f]+ ")
_LINE_NUMBER = re.compile(r":\d+\)$")
_WAITING = ("PyThread_acquire_lock", "poll (", "select (", "epoll_wait (", "cnd_timedwait", "cnd_wait")


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.profile", description=__doc__)
    parser.add_argument("--workload", default="A", help="default: %(default)s")
    add_workload_options(parser)
    add_options(parser, has_json=False)
    options = parser.parse_args(arguments)
    try:
        py_spy = _py_spy(options.home / _PY_SPY)
        workload = chosen(options.workload, options)
        with open_lab(options.home) as lab:
            fill(lab, workload)
            run = lab.run("profile", workload.name, {**workload.variables, **variables_of(options.settings, None)})
            _print(_record(run, py_spy, workload.records))
    except StackError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    return 0


def _py_spy(home: Path) -> Path:
    """Return the program, installed if it is not yet."""
    program = home / "bin" / "py-spy"
    if not program.exists():
        venv.create(home, clear=True, with_pip=True)
        install = [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        if subprocess.run([*install, _PY_SPY], check=False).returncode != 0:
            raise StackError(f"pip could not install {_PY_SPY}.")
    return program


def _record(run: Run, py_spy: Path, records: int) -> Counter[tuple[str, ...]]:
    """Return how often each stack was seen, outermost function first, until the worker has taken and committed all."""
    fleet = run.fleet()
    stacks = run.directory / "stacks"
    try:
        fleet.start(WORKER)
        process = fleet.workers[WORKER].process
        process.wait_for_line('"partitions_assigned"', timeout_s=120)
        look = ["record", "--native", "--format", "raw", "--output", str(stacks), "--pid", str(process.pid)]
        with subprocess.Popen([py_spy, *look], stdout=subprocess.DEVNULL):  # it ends with the worker
            while taken(process) < records:
                time.sleep(0.5)
            for sentence in fleet.stop():
                raise StackError(sentence)
    finally:
        fleet.kill()
    if not stacks.exists():
        raise StackError("py-spy has written nothing: may this user look at other processes?")
    counted: Counter[tuple[str, ...]] = Counter()
    for line in stacks.read_text(encoding="utf-8").splitlines():
        text, _, count = line.rpartition(" ")
        stack = tuple(_LINE_NUMBER.sub(")", _ADDRESS.sub("? ", frame)) for frame in text.split(";"))
        if not any(frame.startswith(_WAITING) for frame in stack):
            counted[stack] += int(count)
    return counted


def _print(stacks: Counter[tuple[str, ...]]) -> None:
    leaves: Counter[str] = Counter()
    inclusive: Counter[str] = Counter()
    for stack, count in stacks.items():
        leaves[stack[-1]] += count
        inclusive.update(dict.fromkeys(stack, count))
    for title, counted in (("with what it calls", inclusive), ("itself", leaves)):
        print(f"\n{title}, % of {stacks.total():,} samples")
        for name, count in counted.most_common(_LINES):
            print(f"{100 * count / stacks.total():6.1f}  {name}")


if __name__ == "__main__":
    sys.exit(main())
