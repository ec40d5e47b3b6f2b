"""The figures of docs/PERFORMANCE.md: one JSON file, written after each measurement, from which the page is made."""

import os
import platform
import statistics
import subprocess
from pathlib import Path

import msgspec

from bench.worker import CPU

QUIET_LOAD = 0.5
QUIET_SPREAD = 0.15
F = "F"


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a system over a workload in a round; `F` is a system, too."""

    round: int
    workload: str
    system: str
    figures: dict[str, float]


class Amount(msgspec.Struct, frozen=True, kw_only=True):
    """The size of a workload; the commit and the machine of its figures."""

    records: int
    entries: int
    bytes: int
    of: str


class Steady(msgspec.Struct, frozen=True, kw_only=True):
    """One run at a steady rate; `broken` says which bound did not hold."""

    rate: int
    minutes: float
    settings: dict[str, str]
    figures: dict[str, float]
    broken: str | None


class Book(msgspec.Struct, kw_only=True):
    """All figures of the page; `absent` says of a workload and a system why it was not measured.

    `stages_of` has the commit and the machine of a workload's stages.
    `loads` are the machine's load averages before the run, and before each time that it was resumed.
    """

    loads: list[float] = []
    workloads: dict[str, Amount] = {}
    measured: list[Measured] = []
    absent: dict[str, dict[str, str]] = {}
    stages: dict[str, dict[str, dict[str, dict[str, float]]]] = {}
    stages_of: dict[str, str] = {}
    revoke: dict[str, dict[str, float]] = {}
    steady: list[Steady] = []

    def has(self, number: int, workload: str, system: str) -> bool:
        """Return whether this is measured already."""
        return any((one.round, one.workload, one.system) == (number, workload, system) for one in self.measured)

    def begin(self, workload: str, amount: Amount) -> None:
        """Go on with a workload; begin anew if it is another by now, or was measured of another commit or elsewhere."""
        if self.workloads.get(workload) != amount:
            self.workloads[workload] = amount
            self.measured = [one for one in self.measured if one.workload != workload]
            self.absent.pop(workload, None)
            self.stages.pop(workload, None)

    def drop_incomplete(self, workload: str, systems: list[str]) -> None:
        """Forget rounds in which a system is missing that can be measured: its F would be of another time."""
        systems = [system for system in systems if system not in self.absent.get(workload, {})]
        rounds = {one.round for one in self.measured if one.workload == workload}
        dropped = {one for one in rounds if not all(self.has(one, workload, system) for system in systems)}
        self.measured = [one for one in self.measured if one.workload != workload or one.round not in dropped]

    def values(self, workload: str, system: str, name: str) -> list[float]:
        """Return one figure of all rounds."""
        found = (one for one in self.measured if (one.workload, one.system) == (workload, system))
        return [one.figures[name] for one in found if name in one.figures]

    def times_f(self, workload: str, system: str) -> list[float]:
        """Return the cost of an entry, in multiples of the cost of reading one in the same round."""
        least = {one.round: one.figures[CPU] for one in self.measured if (one.workload, one.system) == (workload, F)}
        found = (one for one in self.measured if (one.workload, one.system) == (workload, system))
        return [one.figures[CPU] / least[one.round] for one in found if one.round in least]

    def unrest(self) -> list[str]:
        """Return why this run was not quiet, a sentence for each reason; none if it was."""
        sentences = []
        if loads := [f"{load:.2f}" for load in self.loads if load >= QUIET_LOAD]:
            sentences.append(f"load average {', '.join(loads)} before its runs")
        spreads = {workload: _spread(self.values(workload, F, CPU)) for workload in self.workloads}
        if noisy := [f"{spread:.0%} ({workload})" for workload, spread in spreads.items() if spread >= QUIET_SPREAD]:
            sentences.append(f"F varied by {', '.join(noisy)}")
        return sentences


def _spread(values: list[float]) -> float:
    return (max(values) - min(values)) / statistics.median(values) if values else 0.0


def read_book(file: Path) -> Book:
    """Read the figures."""
    return msgspec.json.decode(file.read_bytes(), type=Book)


def write_book(book: Book, file: Path) -> None:
    """Write the figures; the file is the old one or the new one, whole."""
    file.parent.mkdir(parents=True, exist_ok=True)
    beside = file.with_suffix(".new")
    beside.write_bytes(msgspec.json.format(msgspec.json.encode(book, order="deterministic"), indent=1) + b"\n")
    beside.replace(file)


def this_machine() -> str:
    """Return the commit that is checked out, its day, and this machine."""
    command = ["git", "log", "-1", "--format=commit %h, %cs"]
    commit = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() or "unknown"
    cpu_lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    cpu = next((line.partition(":")[2].strip() for line in cpu_lines if line.startswith("model name")), "unknown")
    gib = round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)
    return f"{commit}; {cpu}, {os.cpu_count()} cores, {gib} GiB; Python {platform.python_version()}"
