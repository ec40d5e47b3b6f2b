"""`python -m bench.liveness`: does the group go on under a store and CPUs held to a share of what they could do?

For each layout: 6,000 users and a backlog that is kept full; phases that change the number of workers, the store's pace
(a proxy in front of it, for all workers together) or the workers' share of CPU. In each phase a worker may discard one
batch; then the group's committed offsets advance in every two minutes. The exit code is 1 if a bound is broken.

A phase is written WORKERS:PACE, where PACE is free, 50/s (PUTs; more are answered 503 SlowDown, or wait with --wait),
1MB/s (of bodies) or 0.25cpu (of each worker, by a cgroup if one can be made, else by stop and go).
"""

import argparse
import json
import re
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice

from bench.lab import Lab, Run, add_options, open_lab, variables_of
from bench.process import held_to
from bench.workloads import TopicFiller, Workload, generate
from tools.demo.fleet import Fleet, WorkerState
from tools.demo.lag import GroupLag
from tools.local.errors import StackError
from tools.local.s3_faults import S3FaultProxy
from tools.local.s3_pace import Pace

_PHASES = "1:free 1:50/s 1:10/s 1:1MB/s 3:free 3:50/s 3:10/s 3:1MB/s 3:0.25cpu"
_GAP_MAX_S = 120.0
_DISCARDS_MAX = 1
_TURN_S = 0.5
_BACKLOG = 1_000_000  # records at the begin, and what is kept
_PIECE = 100_000  # records written between two looks at the group
_PACE = re.compile(r"(?P<number>[0-9.]+)(?P<unit>/s|MB/s|cpu)")


@dataclass(frozen=True, slots=True)
class Phase:
    """The conditions during a phase."""

    text: str
    workers: int
    puts_per_s: float | None = None
    bytes_per_s: float | None = None
    cpus: float | None = None

    @classmethod
    def parse(cls, text: str) -> "Phase":
        """Read WORKERS:PACE.

        Raises:
            StackError: it is not of this form.
        """
        workers, _, pace = text.partition(":")
        found = _PACE.fullmatch(pace)
        if not workers.isdigit() or (found is None and pace != "free"):
            raise StackError(f"{text!r} is not WORKERS:PACE, such as 3:50/s, 1:1MB/s, 3:0.25cpu or 1:free.")
        if found is None:
            return cls(text, int(workers))
        number = float(found["number"])
        match found["unit"]:
            case "/s":
                return cls(text, int(workers), puts_per_s=number)
            case "MB/s":
                return cls(text, int(workers), bytes_per_s=number * 1e6)
            case _:
                return cls(text, int(workers), cpus=number)


@dataclass(slots=True, kw_only=True)
class Told:
    """Measurements of a phase; `gap_s` begins anew at the phase's begin and at each first discard of a worker."""

    layout: str
    phase: str
    how: str = ""
    seconds: float = 0.0
    records: int = 0
    commits: int = 0
    discards: dict[str, int]
    restarts: int = 0
    longest_s: float = 0.0
    gap_s: float = 0.0

    def broken(self) -> list[str]:
        """Return a sentence for each bound that does not hold."""
        sentences = [
            f"{worker} discarded {count} batches" for worker, count in self.discards.items() if count > _DISCARDS_MAX
        ]
        if self.gap_s > _GAP_MAX_S:
            sentences.append(f"no advance for {self.gap_s:.0f} s")
        if self.restarts:
            sentences.append(f"{self.restarts} workers ended by themselves")
        return sentences

    def line(self) -> str:
        """Return the phase's row of the table."""
        discards = " ".join(str(count) for count in self.discards.values())
        verdict = "; ".join(self.broken()) or "ok"
        return (
            f"{self.layout:<9}{self.phase:<12}{self.records / self.seconds:>11,.0f}{self.commits:>10}{discards:>10}"
            f"{self.longest_s:>11.0f}{self.gap_s:>15.0f}  {verdict}{f' ({self.how})' if self.how else ''}"
        )


class _Group:
    """The group under test: its workers, its backlog, and how far it has come."""

    def __init__(self, run: Run, workload: Workload) -> None:
        self.fleet = run.fleet()
        self._filler = TopicFiller(run.lab.bootstrap, run.source)
        self._records = generate(workload)
        self._lag = GroupLag(bootstrap=run.lab.bootstrap, group=run.name, topic=run.source)
        self._ends: dict[int, int] = {}
        self._written = 0
        self._behind = 0

    def look(self) -> int:
        """Keep the backlog full and return how many records are committed."""
        if self._behind < _BACKLOG:
            self.write(_PIECE)
        behind = self._lag.measure(self._ends)
        if behind is not None:
            self._behind = behind
        return self._written - self._behind

    def write(self, records: int) -> None:
        """Append records to the source topic."""
        self._ends = self._filler.write(islice(self._records, records))
        self._written += records
        self._behind += records

    def discards(self) -> dict[str, int]:
        """Return how many batches each worker has discarded so far."""
        return {name: self.fleet.log_of(name).read_bytes().count(b'"batch_discarded"') for name in self.fleet.workers}

    def close(self) -> None:
        """End the workers."""
        self.fleet.kill()
        self._lag.close()


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return the exit code: 0 all bounds hold, 1 one is broken or it could not run."""
    options = _parse(arguments)
    told: list[Told] = []
    try:
        phases = [Phase.parse(text) for text in options.phases.split()]
        _header()
        with open_lab(options.home) as lab:
            for layout in options.layouts.split(","):
                variables = variables_of(options.settings, None if layout == "default" else layout)
                told += _try_layout(lab, layout, variables, phases, options)
    except StackError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    if options.json:
        figures = [{name: getattr(one, name) for name in Told.__slots__} | {"broken": one.broken()} for one in told]
        options.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    return int(any(one.broken() for one in told))


def _try_layout(
    lab: Lab, layout: str, variables: dict[str, str], phases: list[Phase], options: argparse.Namespace
) -> list[Told]:
    workload = Workload(name=layout, records=100_000_000, users=options.users, hours=200)
    with S3FaultProxy(lab.s3) as store:
        run = lab.run(f"live-{layout}", f"live-{layout}-logs", variables, s3=store.endpoint)
        group = _Group(run, workload)
        try:
            for _ in range(0, _BACKLOG, _PIECE):
                group.write(_PIECE)
            told = []
            for phase in phases:
                told.append(_try_phase(group, store.pace, phase, layout, options))
                print(told[-1].line(), flush=True)
        finally:
            group.close()
    return told


def _try_phase(group: _Group, pace: Pace, phase: Phase, layout: str, options: argparse.Namespace) -> Told:
    """Make the change, look at the group for the length of a phase, and return the measurements."""
    fleet = group.fleet
    told = Told(layout=layout, phase=phase.text, discards={})
    restarts = fleet.restarts
    before = group.discards()
    with ExitStack() as held:
        pace.set(puts_per_s=phase.puts_per_s, bytes_per_s=phase.bytes_per_s, is_refusing=not options.wait)
        _staff(fleet, phase.workers)
        if phase.cpus is not None:
            told.how = held.enter_context(held_to(phase.cpus, _running(fleet)))
        begun = advanced = excused = time.monotonic()
        first = committed = group.look()
        while (now := time.monotonic()) < begun + options.seconds:
            told.longest_s = max(told.longest_s, now - advanced)
            told.gap_s = max(told.gap_s, now - max(advanced, excused))
            discards = {name: count - before.get(name, 0) for name, count in group.discards().items()}
            if any(count == 1 and told.discards.get(name, 0) == 0 for name, count in discards.items()):
                excused = now
            told.discards = discards
            if (position := group.look()) > committed:
                committed, advanced, told.commits = position, now, told.commits + 1
            fleet.mend()
            time.sleep(_TURN_S)
    told.seconds = time.monotonic() - begun
    told.records = committed - first
    told.restarts = fleet.restarts - restarts
    return told


def _staff(fleet: Fleet, wanted: int) -> None:
    """Start workers until there are as many as wanted, or end the last ones by SIGTERM."""
    names = [f"worker-{number}" for number in range(1, wanted + 1)]
    for name in names:
        if name not in fleet.workers or fleet.workers[name].state is WorkerState.STOPPED:
            fleet.start(name)
    for name, worker in fleet.workers.items():
        if name not in names and worker.state is WorkerState.RUNNING:
            worker.process.terminate()
            worker.state = WorkerState.STOPPING


def _running(fleet: Fleet) -> list[int]:
    return [worker.process.pid for worker in fleet.workers.values() if worker.state is WorkerState.RUNNING]


def _header() -> None:
    print(
        f"{'layout':<9}{'phase':<12}{'records/s':>11}{'advances':>10}{'discards':>10}"
        f"{'longest s':>11}{'after discard':>15}  verdict"
    )


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.liveness", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--layouts", default="auto,pack,file", help="or `default`, to leave it unset; default: %(default)s")
    add("--phases", default=_PHASES, help="default: %(default)s")
    add("--seconds", type=float, default=150.0, help="of a phase; default: %(default)s")
    add("--users", type=int, default=6_000, help="default: %(default)s")
    add("--wait", action="store_true", help="PUTs over the rate wait; without it they are refused")
    add_options(parser)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
