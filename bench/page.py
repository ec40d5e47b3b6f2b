"""`python -m bench.page`: what an entry costs, here and elsewhere: measures, and writes docs/PERFORMANCE.md.

Each round goes through all workloads, and over each through all systems: F (see `bench.worker`), one worker with the
fast lane and without, and on A and real logs others that do the same work. The page is made of a JSON file, which is
written after each measurement: --resume goes on with a run that was cut short, and measures anew the workloads that
were measured of another commit or elsewhere; --from makes the page without measuring.
"""

import argparse
import os
import sys
import time
from operator import itemgetter
from pathlib import Path

from bench import real
from bench.figures import Amount, Book, F, Measured, read_book, this_machine, write_book
from bench.lab import Lab, add_options, open_lab, variables_of
from bench.page_plots import draw
from bench.page_text import render
from bench.peers.run import PEERS, Ready, measure_peer, prepare
from bench.revoke import measure_revoke
from bench.stages import LANES, stage_figures
from bench.worker import CPU, Figures, discard, fill, measure, print_table, tell
from bench.workloads import WORKLOADS, Workload, chosen
from bench.workloads import add_options as add_workload_options
from log_partitioner import native
from tools.local.errors import StackError

WORKERS = {"fast": {"LOGP_FAST_LANE": "auto"}, "python": {"LOGP_FAST_LANE": "off"}}
_OF_PEERS = "A"  # and real logs
_WORKLOADS = ",".join((*real.SETS, real.MIX, "A", "B", "C", "M", "N"))
_ONLY_FLAT = "flink"
_REVOKE_SHARES = 0.02, 0.15, 0.3  # of the records: a flush may end just before the revoke


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return the exit code."""
    options = _parse(arguments)
    try:
        if options.source:
            write_page(read_book(options.source), options.directory)
            return 0
        file = options.directory / "performance" / "figures.json"
        book = read_book(file) if options.resume and file.exists() else Book()
        book.loads.append(os.getloadavg()[0])
        _Run(book, file, options).go()
    except StackError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    write_page(book, options.directory)
    _print(book)
    return 0


class _Run:
    """Measures the figures that the book does not have yet; writes it after each measurement."""

    def __init__(self, book: Book, file: Path, options: argparse.Namespace) -> None:
        self._book = book
        self._file = file
        self._options = options
        self._deadline = time.monotonic() + 60 * options.minutes
        self._systems = options.systems.split(",")
        self._workloads = [chosen(name, options) for name in options.workloads.split(",")]
        self._variables = variables_of(options.settings, options.layout)
        self._ready: dict[str, Ready] = {}

    def go(self) -> None:
        """Measure everything, or as much as the time allows."""
        self._prepare()
        with open_lab(self._options.home) as lab:
            for workload in self._workloads:
                self._fill(lab, workload)
            for number in range(1, self._options.rounds + 1):
                for workload in self._workloads:
                    for system in [F, *self._systems_of(workload)]:
                        if time.monotonic() > self._deadline:
                            tell("the time is over: go on with --resume")
                            return
                        self._measure(lab, workload, system, number)
            self._measure_rest(lab)

    def _prepare(self) -> None:
        for system in [one for one in self._systems if one in PEERS]:
            try:
                self._ready[system] = prepare(system, self._options.home)
            except StackError as error:
                self._leave_out(system, str(error))
        if "fast" in self._systems and not native.IS_INSTALLED:
            self._leave_out("fast", "it is not installed (`make native`)")

    def _leave_out(self, system: str, why: str) -> None:
        for workload in self._workloads:
            if system in self._systems_of(workload):
                self._note_absent(workload, system, why)
        self._systems.remove(system)

    def _note_absent(self, workload: Workload, system: str, why: str) -> None:
        tell(f"{workload.name}: {system} is left out: {why}")
        self._book.absent.setdefault(workload.name, {})[system] = why.splitlines()[0]
        write_book(self._book, self._file)

    def _fill(self, lab: Lab, workload: Workload) -> None:
        amount = Amount(
            records=workload.records, entries=workload.entries, bytes=fill(lab, workload), of=this_machine()
        )
        self._book.begin(workload.name, amount)
        self._book.drop_incomplete(workload.name, [F, *self._systems_of(workload)])

    def _systems_of(self, workload: Workload) -> list[str]:
        if workload.shape == "real":
            return [one for one in self._systems if one != _ONLY_FLAT]
        return [one for one in self._systems if one in WORKERS or workload.name == _OF_PEERS]

    def _measure(self, lab: Lab, workload: Workload, system: str, number: int) -> None:
        is_absent = system in self._book.absent.get(workload.name, {})
        if is_absent or self._book.has(number, workload.name, system):
            return
        name = f"{workload.name.lower()}-{system.lower()}-{number}"
        try:
            figures = self._figures_of(lab, workload, system, name)
        except StackError as error:
            if system not in PEERS:
                raise
            self._note_absent(workload, system, str(error))
            return
        measured = Measured(round=number, workload=workload.name, system=system, figures=figures)
        self._book.measured.append(measured)
        write_book(self._book, self._file)
        tell(f"round {number}, {workload.name}, {system}: {figures[CPU]:.1f} us")

    def _figures_of(self, lab: Lab, workload: Workload, system: str, name: str) -> Figures:
        if system == F:
            return {CPU: discard(lab, workload.name) / workload.per_record}
        if system in WORKERS:
            variables = {**self._variables, **WORKERS[system]}
            return measure(lab, workload, variables, name=name, counted=self._options.requests)
        return measure_peer(lab, system, self._ready[system], workload, name=name)

    def _measure_rest(self, lab: Lab) -> None:
        """Measure the figures outside the rounds: a revoke in each lane, and stages in one process."""
        for workload in [one for one in self._workloads if one.name == _OF_PEERS]:
            for system in [one for one in self._systems if one in WORKERS and one not in self._book.revoke]:
                variables = {**self._variables, **WORKERS[system]}
                found = [
                    measure_revoke(lab, workload, variables, share, name=f"revoke-{system}-{time.monotonic_ns()}")
                    for share in _REVOKE_SHARES
                ]
                self._book.revoke[system] = max(found, key=itemgetter("seconds"))
                write_book(self._book, self._file)
        for workload in [one for one in self._workloads if one.name not in self._book.stages]:
            self._book.stages_of[workload.name] = this_machine()
            self._book.stages[workload.name] = stage_figures(
                workload, [lane for lane in LANES if lane in self._systems]
            )
            write_book(self._book, self._file)


def write_page(book: Book, directory: Path) -> None:
    """Write the page and its plots."""
    directory.mkdir(parents=True, exist_ok=True)
    draw(book, directory / "performance")
    page = directory / "PERFORMANCE.md"
    page.write_text(render(book), encoding="utf-8")
    tell(f"{page} is written")


def _print(book: Book) -> None:
    """Print every figure of every system, as the page does not."""
    for workload in book.workloads:
        columns: dict[str, list[Figures]] = {}
        for one in book.measured:
            if one.workload == workload:
                columns.setdefault(f"{workload}: {one.system}", []).append(one.figures)
        print_table(columns)


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.page", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    systems = [*WORKERS, *PEERS]
    add = parser.add_argument
    add("--workloads", default=_WORKLOADS, help=f"of {', '.join(WORKLOADS)}; default: %(default)s")
    add("--systems", default=",".join(systems), help="beside F; default: %(default)s")
    add("--rounds", type=int, default=5, help="default: %(default)s")
    add("--minutes", type=float, default=600.0, help="begin no measurement after; default: %(default)s")
    add("--resume", action="store_true", help="measure what the file of figures does not have yet")
    add("--from", dest="source", type=Path, metavar="FILE", help="make the page of these figures, measure nothing")
    add("--directory", type=Path, default=Path("docs"), help="where the page is written; default: %(default)s")
    add("--layout", choices=("auto", "pack", "file"), help="default: the product's")
    add("--requests", action="store_true", help="count a worker's requests at a proxy in front of the store, too")
    add_workload_options(parser)
    add_options(parser, has_json=False)
    options = parser.parse_args(arguments)
    if unknown := set(options.systems.split(",")) - {*systems}:
        parser.error(f"there is no system {', '.join(sorted(unknown))}, but {', '.join(systems)}")
    return options


if __name__ == "__main__":
    sys.exit(main())
