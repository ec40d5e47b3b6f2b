"""Tiers of the tests: the order, the processes that share them, and how long they took.

A marker puts a test into a tier: `make test` leaves out `slow`, `integration` and `spark` but for `main_path`,
`make test-all` only `sweep`. A test without a marker has three seconds: a run with `--too-slow S` says which take
longer, and fails if one takes more than S. Seconds are those of the test's own thread without its wait for a processor.
They include its wait for other processes, so runs without the option, on loaded machines, say nothing.
"""

import os
import resource
import time
from collections import defaultdict
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from xdist.scheduler import LoadScopeScheduling

UNMARKED_MAX_S = 3.0
_SLOW_SHOWN = 3
_MARKED = {"slow", "integration", "spark"}
_HERE = Path(__file__).parent
_OWN_S = "own_s"
# Tests of these need nothing that their module has made: each goes to whichever process is free.
_SPREAD = ("simulation", "mutants", "property", "model", "contract")
_SPARK = "pipeline"  # a session takes 2 GB and 25 s to begin: two of them, of about as many tests
# Modules of minutes, each one process's work: begun late, the last of them would keep one busy and the others idle.
_LONGEST = (
    "integration/test_chaos.py",
    "integration/test_faults_brokers.py",
    "integration/test_lost_offsets.py",
    "integration/test_real_logs.py",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.addoption("--too-slow", type=float, metavar="S", help="fail if a test without marker takes longer")


class Groups(LoadScopeScheduling):
    """Sends what shares servers or a Spark session to one process; `--dist loadgroup` does nothing with pytest 9.2."""

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        room = Path(path).parts[1]
        if room == _SPARK:
            return f"{room} {Path(path).name < 'test_m'}"
        return nodeid if room in _SPREAD else path


@pytest.hookimpl(optionalhook=True)  # not known if the runner has one process
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Groups:
    """Say which process runs what: one of two with Spark, each other module at one of its own, or each test."""
    return Groups(config, log)


class Order:
    """Begins with what has servers: those wait, and what only computes fills the processors meanwhile."""

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Sort; within a module the order stays random."""
        place = {path: at for at, path in enumerate(dict.fromkeys(item.path for item in items))}
        items.sort(key=lambda item: (_rank(item), place[item.path]))


def _room(item: pytest.Item) -> str:
    return item.path.relative_to(_HERE).parts[0]


def _rank(item: pytest.Item) -> int:
    if item.get_closest_marker("main_path"):
        return 0
    if item.get_closest_marker("spark"):
        return 1
    if any(item.path.match(longest) for longest in _LONGEST):
        return 2
    return 3 if item.get_closest_marker("integration") else 4


def pytest_configure(config: pytest.Config) -> None:
    """Sort after every other plugin has chosen an order."""
    config.pluginmanager.register(Order())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Note how long a test without a marker took, whatever comes of it."""
    begun_s = _own_s()
    try:
        return (yield)
    finally:
        if not any(item.get_closest_marker(name) for name in _MARKED):
            item.user_properties.append((_OWN_S, _own_s() - begun_s))


def _own_s() -> float:
    """Return the time of this thread, but for what it waited for a processor while it could have run."""
    try:
        waited_ns = int(Path("/proc/thread-self/schedstat").read_text(encoding="ascii").split()[1])
    except (OSError, IndexError):
        waited_ns = 0
    return time.monotonic() - waited_ns / 1e9


def _reports(terminalreporter: pytest.TerminalReporter) -> Iterator[pytest.TestReport]:
    for reports in terminalreporter.stats.values():
        yield from (one for one in reports if isinstance(one, pytest.TestReport))


def _slow_ones(terminalreporter: pytest.TerminalReporter, over_s: float) -> list[tuple[float, str]]:
    """Return seconds and name of tests without a marker that took longer, the longest first."""
    found = [
        (seconds, report.nodeid)
        for report in _reports(terminalreporter)
        if report.when == "call"
        for name, seconds in report.user_properties
        if name == _OWN_S and seconds > over_s
    ]
    return sorted(found, reverse=True)


@pytest.hookimpl(wrapper=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None, None, None]:
    """Fail a run that was to, if a test without marker was slow."""
    yield
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    most_s: float | None = session.config.getoption("--too-slow")
    if reporter and most_s and not hasattr(session.config, "workerinput") and _slow_ones(reporter, most_s):
        session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List the modules that took longest, name tests that want a marker if asked to, and say what all of it took."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for report in _reports(terminalreporter):
        seconds[report.nodeid.partition("::")[0]] += report.duration
    terminalreporter.section("slowest 10 modules")
    for name, total in sorted(seconds.items(), key=lambda one: -one[1])[:10]:
        terminalreporter.write_line(f"{total:.0f} s of a process  {name}")
    most_s: float | None = terminalreporter.config.getoption("--too-slow")
    if most_s and (slow := _slow_ones(terminalreporter, min(UNMARKED_MAX_S, most_s))):
        shown = ", ".join(f"{name} {took_s:.1f} s" for took_s, name in slow[:_SLOW_SHOWN])
        failing = sum(took_s > most_s for took_s, _ in slow)
        terminalreporter.write_line(
            f"want the marker `slow`: {len(slow)} tests, {failing} over {most_s:g} s fail the run; longest: {shown}"
        )
    used = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    cpu_s = sum(one.ru_utime + one.ru_stime for one in used)
    terminalreporter.write_line(f"processors: {cpu_s:.0f} s, of {os.cpu_count()}")
