"""`python -m tests.kill_matrix --record FILE [TESTS]`: which mutants do these tests notice?

The record has a line of JSON for each mutant. The tests that call the changed function are asked, the cheapest first,
until one fails. The record names that one, or says that none did, or which one was asked when the mutant's time was
over. A test that fails without any change is not asked. Which test calls what is kept beside the record, in FILE.calls:
an interrupted run goes on at once.

With `--again FILE` the mutants are those of an earlier record, and the tests that noticed them are asked first: so two
records, before and after tests were taken away, can be compared.

Each mutant is a fork of one process that has imported everything, so that tests share nothing through it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import signal
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import pytest

from tests.kill_matrix.mutate import Site, put_in_force, sites_of

ROOT = Path(__file__).parents[2]
TESTS = ("tests/unit", "tests/property", "tests/contract", "tests/model", "tests/simulation", "tests/golden")
_LIMIT_S = 120.0
_CPU_LIMIT_S = 40  # of a mutant: the same on a busy machine
_PER_FUNCTION_MAX = 4


class Change(NamedTuple):
    """One mutant: the module, and what is changed in it."""

    file: str
    site: Site

    @property
    def id(self) -> str:
        """Name it: module, line, function, kind."""
        return f"{self.file}:{self.site.line}:{self.site.function}:{self.site.kind}:{self.site.node}"


Called = dict[str, list[tuple[str, str]]]
"""Functions, as module and first name, that each test calls."""


class Matrix:
    """A pytest plugin that takes the place of the run."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._failed: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note what fails."""
        if report.failed:
            self._failed.append(report.nodeid)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Ask which functions each test calls, choose mutants, and try each."""
        items = {item.nodeid: item for item in session.items}
        _say(f"{len(items)} tests; which functions do they call?")
        calls = Path(f"{self._options.record}.calls")
        if not calls.exists():
            calls.write_text(json.dumps(self._asked(items)))
        costs, called, failed = json.loads(calls.read_text())
        if failed:  # such as those that measure times, while they are watched
            _say(f"without any change these fail, and are not asked: {', '.join(failed)}")
        by_function: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        for test in sorted(called.keys() - set(failed), key=lambda name: (costs[name], name)):
            for file, name in called[test]:
                by_function[file, name].append(test)
        record = Path(self._options.record)
        known = {json.loads(line)["id"] for line in record.read_text().splitlines()} if record.exists() else set()
        chosen = [one for one in self._choose(by_function) if one[0].id not in known]
        _say(f"{len(chosen)} mutants")
        with record.open("a") as out:
            for number, line in enumerate(self._try_all(chosen, items, by_function), 1):
                out.write(json.dumps(line) + "\n")
                out.flush()
                if number % 50 == 0:
                    _say(f"{number} of {len(chosen)}")
        return True

    def _asked(self, items: dict[str, pytest.Item]) -> tuple[dict[str, float], Called, list[str]]:
        """Run every test in a child, and have it tell cost in seconds, calls and failures."""
        costs: dict[str, float] = {}
        called: Called = {}
        failed: list[str] | None = None
        last = ""

        def run() -> Iterator[dict[str, Any]]:
            watched = _Watched()
            for test, item in items.items():
                begun_s = time.process_time()
                yield {"asked": test}
                with watched:
                    item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
                yield {"test": test, "s": time.process_time() - begun_s, "calls": sorted(watched.taken())}
            yield {"failed": self._failed}

        for line in _Child(run, limit_s=7200.0).lines():
            if "asked" in line:
                last = line["asked"]
            elif "failed" in line:
                failed = line["failed"]
            else:
                costs[line["test"]] = line["s"]
                called[line["test"]] = [(file, name) for file, name in line["calls"]]
        if failed is None:
            raise pytest.UsageError(f"without any change the process ends in {last}")
        return costs, called, failed

    def _choose(self, by_function: dict[tuple[str, str], list[str]]) -> list[tuple[Change, str | None]]:
        """Return mutants with the test that noticed each before, if there was an earlier record."""
        if self._options.again:
            lines = map(json.loads, Path(self._options.again).read_text().splitlines())
            return [(Change(one["file"], Site(*one["site"])), one["noticed"]) for one in lines]
        chooser = random.Random(self._options.seed)
        possible: list[Change] = []
        for file in sorted({file for file, _ in by_function}):
            of_function: defaultdict[str, list[Change]] = defaultdict(list)
            for site in sites_of(ROOT / file):
                if (file, site.function) in by_function:
                    of_function[site.function].append(Change(file, site))
            for some in of_function.values():
                possible += chooser.sample(some, min(len(some), _PER_FUNCTION_MAX))
        chosen: list[Change] = []
        for room, count in (("service/", self._options.count), ("pipeline/", self._options.pipeline)):
            there = [one for one in possible if one.file.startswith(room)]
            chosen += chooser.sample(there, min(count, len(there)))
        return [(one, None) for one in chosen]

    def _try_all(
        self,
        chosen: Sequence[tuple[Change, str | None]],
        items: dict[str, pytest.Item],
        by_function: dict[tuple[str, str], list[str]],
    ) -> Iterator[dict[str, Any]]:
        waiting = list(chosen)
        running: list[tuple[Change, _Child]] = []
        while waiting or running:
            while waiting and len(running) < self._options.processes:
                change, first = waiting.pop(0)
                tests = by_function.get((change.file, change.site.function), [])
                asked = [first, *tests] if first in items else tests
                child = _Child(self._tried(change, [items[test] for test in asked]), limit_s=_LIMIT_S)
                running.append((change, child))
            for change, child in running:
                if child.is_done():
                    yield {"id": change.id, "file": change.file, "site": list(change.site), **_verdict(child)}
            running = [one for one in running if not one[1].was_read]
            time.sleep(0.01)

    def _tried(self, change: Change, items: Sequence[pytest.Item]) -> Callable[[], Iterator[dict[str, Any]]]:
        def run() -> Iterator[dict[str, Any]]:
            resource.setrlimit(resource.RLIMIT_CPU, (_CPU_LIMIT_S, _CPU_LIMIT_S + 5))
            yield {"applied": put_in_force(ROOT / change.file, change.site)}
            for item in items:
                yield {"asked": item.nodeid}
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
                if self._failed:
                    yield {"noticed": item.nodeid}
                    return
            yield {"noticed": None}

        return run


def _verdict(child: _Child) -> dict[str, Any]:
    told: dict[str, Any] = {"applied": 0, "asked": None, "noticed": None, "tests": 0}
    ended = False
    for line in child.lines():
        told["tests"] += "asked" in line
        ended = ended or "noticed" in line
        told.update(line)
    if not ended and told["asked"] is not None:  # it hung, or took the process with it: the suite would not be green
        if child.code in (-signal.SIGXCPU, -signal.SIGKILL):
            told["limit"] = told["asked"]
        else:
            told["noticed"] = told["asked"]
    del told["asked"]
    return told


class _Child:
    """A fork that runs a generator, and tells what it yields as lines of JSON; killed at its limit."""

    def __init__(self, run: Callable[[], Iterator[dict[str, Any]]], *, limit_s: float) -> None:
        self.was_read = False
        self._until_s = time.monotonic() + limit_s
        self._lines: list[str] = []
        reading, writing = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(reading)
            os.setsid()
            code = 1
            try:
                with os.fdopen(writing, "w", buffering=1) as out:
                    for line in run():
                        out.write(json.dumps(line) + "\n")
                code = 0
            except Exception as error:  # noqa: BLE001 - a fork may not return into what it was made in
                _say(f"{type(error).__name__}: {error}")
            finally:
                os._exit(code)
        os.close(writing)
        self._told = os.fdopen(reading)
        self._reader = threading.Thread(target=lambda: self._lines.extend(self._told), daemon=True)
        self._reader.start()

    def is_done(self) -> bool:
        """Return whether it has ended; kills it when its time is over."""
        if self._reader.is_alive() and time.monotonic() > self._until_s:
            os.killpg(self._pid, signal.SIGKILL)
        return not self._reader.is_alive()

    def lines(self) -> list[dict[str, Any]]:
        """Wait for its end, and return what it told."""
        while not self.is_done():
            self._reader.join(0.05)
        self.code = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        self._told.close()
        self.was_read = True
        return [json.loads(line) for line in self._lines]


class _Watched:
    """Notes which functions of the product are called in a block, in every thread that begins in it."""

    def __init__(self) -> None:
        self._codes: dict[int, CodeType] = {}  # by identity: the hash of code reads all of it

    def __enter__(self) -> None:
        threading.setprofile(self._note)
        sys.setprofile(self._note)

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            self._codes[id(frame.f_code)] = frame.f_code

    def taken(self) -> set[tuple[str, str]]:
        """Return what was called since the last time, as module and the outermost function's name."""
        found = set()
        for code in list(self._codes.values()):  # at once: threads that a test has left still add to it
            path = Path(code.co_filename)
            ours = path.suffix == ".py" and path.is_relative_to(ROOT)
            if ours and path.relative_to(ROOT).parts[0] in {"service", "pipeline"}:
                outer = code.co_qualname.split(".<locals>")[0].rpartition(".")[2]
                found.add((str(path.relative_to(ROOT)), outer))
        self._codes.clear()
        return found


def _say(text: str) -> None:
    sys.__stderr__.write(f"kill matrix: {text}\n")  # type: ignore[union-attr]


def main() -> int:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.kill_matrix", description=__doc__)
    parser.add_argument(
        "--record", required=True, metavar="FILE", help="one line for each mutant; an interrupted run goes on"
    )
    parser.add_argument("--again", metavar="FILE", help="the mutants of this record")
    parser.add_argument("--count", type=int, default=700, help="of service/ (default: %(default)s)")
    parser.add_argument("--pipeline", type=int, default=150, help="of pipeline/ (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the choice (default: %(default)s)")
    parser.add_argument("--processes", type=int, default=2, help="at once (default: %(default)s)")
    options, arguments = parser.parse_known_args()
    tests = [] if any(not one.startswith("-") for one in arguments) else list(TESTS)
    quiet = ["-p", "no:randomly", "-p", "no:xdist", "-p", "no:terminal", "-p", "no:cacheprovider"]
    quiet += ["-o", "addopts=--import-mode=importlib"]
    return int(pytest.main([*quiet, *tests, *arguments], plugins=[Matrix(options)]))


if __name__ == "__main__":
    sys.exit(main())
