"""Runs a peer as a process, reads its marks, and counts its output."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import venv
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fastavro

from bench.lab import Lab, Run
from bench.process import tree
from bench.worker import CPU, RATE, RSS, Figures
from bench.workloads import Workload
from tools.local.errors import ProcessDiedError, StackError
from tools.local.processes import ServerProcess
from tools.maven import JarSet

_HERE = Path(__file__).parent
_REPOSITORY = _HERE.parents[1]
_SPARK = JarSet(_HERE / "spark.xml", _HERE / "spark.lock")
SPARK_SOURCES = JarSet(_HERE.parent / "pom.xml", _HERE.parent / "jars.lock")
_FLINK = JarSet(_HERE / "flink.xml", _HERE / "flink.jars.lock")
_FLINK_PYTHON = _HERE / "flink.lock"
_FLINK_SETTINGS = {
    "numberOfTaskSlots: 1": "numberOfTaskSlots: 4",  # with one, the second of two tasks waits without a word
    "all: --add": "all: -Xmx3g --add",  # of everything, as Spark has
}
_TURN_S = 0.1
_LIMIT_S = 300.0
_INSTALL_LIMIT_S = 1800.0


@dataclass(frozen=True, slots=True)
class Ready:
    """The needs of a peer beside its module: a Python, jars, and the place of its files."""

    python: Path = Path(sys.executable)
    jars: list[Path] = field(default_factory=list)
    is_local: bool = False  # its files are in `out` of its directory, and not in the store


def prepare(peer: str, home: Path) -> Ready:
    """Return the needs of the peer; the first time it is fetched, which takes minutes.

    Raises:
        StackError: it cannot be had; the message says why.
    """
    return PEERS[peer](home)


def measure_peer(lab: Lab, peer: str, ready: Ready, workload: Workload, *, name: str) -> Figures:
    """Return the figures of one run of a peer, between its marks; blocks until it has ended.

    Raises:
        StackError: it failed, took longer than five minutes, or has written other numbers of entries.
    """
    run = lab.run(name, workload.name, {})
    run.directory.mkdir(parents=True)
    start, end = _run(run, peer, ready, workload)
    files = _files(run.directory / "out" if ready.is_local else run.objects)
    entries = sum(map(_entries_in, files)) + int(end.pop("skipped", 0))
    if entries != workload.entries:
        raise StackError(f"{name}: {entries} entries of {workload.entries} are in {len(files)} files.")
    wall_s = end.pop("mono") - start["mono"]
    cpu_s = end.pop("cpu_s") - start["cpu_s"]
    figures = {
        CPU: cpu_s / entries * 1e6,
        "CPU s of the start, not included": start["cpu_s"],
        "wall s": wall_s,
        RATE: entries / wall_s,
        RSS: end.pop("peak_bytes") / 2**20,
        "objects": len(files),
        "object MB": sum(file.stat().st_size for file in files) / 1e6,
        **end,
    }
    shutil.rmtree(run.directory)
    shutil.rmtree(run.objects, ignore_errors=True)
    return figures


def _run(run: Run, peer: str, ready: Ready, workload: Workload) -> tuple[Any, Any]:
    """Run a peer to its end; return its two marks."""
    log = run.directory / f"{peer}.log"
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("LOGP_", "PIPELINE_"))}
    environment |= {"PYTHONPATH": str(_REPOSITORY), "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    task = run.task(workload, jars=[str(jar.absolute()) for jar in ready.jars])
    process = ServerProcess(
        peer,
        [str(ready.python), "-m", f"bench.peers.{peer}"],
        log=log,
        env={**environment, **task.environment()},
    )
    deadline = time.monotonic() + _LIMIT_S
    try:
        while process.is_alive():
            if time.monotonic() > deadline:
                raise StackError(f"{run.name}: not done after {_LIMIT_S:.0f} s.")
            time.sleep(_TURN_S)
    finally:
        if process.is_alive():
            for pid in tree(process.pid):  # what it started would outlive it
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        process.kill()
    marks = _marks(log)
    if process.exit_code != 0 or not marks.keys() >= {"start", "end"}:
        raise ProcessDiedError(f"{run.name} ended with {process.exit_code}", last_lines=process.last_lines())
    return marks["start"], marks["end"]


def _marks(log: Path) -> dict[str, dict[str, Any]]:
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if '{"mark"' in line]
    marks = [json.loads(line[line.index("{") :]) for line in lines]
    return {mark.pop("mark"): mark for mark in marks}


def _files(directory: Path) -> list[Path]:
    """Return the finished files; Spark's book of them and Flink's unfinished ones have names of their own."""
    found = (file for file in directory.rglob("*") if file.is_file() and "_spark_metadata" not in file.parts)
    return [file for file in found if not file.name.startswith((".", "_"))]


def _entries_in(file: Path) -> int:
    with file.open("rb") as content:
        return sum(block.num_records for block in fastavro.block_reader(content))


def _jars_of(jars: JarSet, home: Path) -> list[Path]:
    return sorted(jars.ensure(home / f"{jars.lock.stem}-{_digest(jars.lock)}").glob("*.jar"))


def _digest(lock: Path) -> str:
    return hashlib.sha256(lock.read_bytes()).hexdigest()[:12]


def _prepare_obvious(_home: Path) -> Ready:
    return Ready()


def _prepare_spark(home: Path) -> Ready:
    """Return the jars beside PySpark's own: 15 MB, and those of the pipeline for Kafka."""
    return Ready(jars=_jars_of(_SPARK, home / "peers") + _jars_of(SPARK_SOURCES, home / "peers"))


def _prepare_flink(home: Path) -> Ready:
    """Return a Python in which Flink is installed (850 MB), and jars."""
    jars = _jars_of(_FLINK, home / "peers")
    place = (home / "peers" / f"flink-{_digest(_FLINK_PYTHON)}").absolute()
    python = place / "bin" / "python"
    if not (place / ".installed").is_file():
        venv.create(place, clear=True, with_pip=True)
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes"]
        done = subprocess.run(
            [*install, "-r", str(_FLINK_PYTHON)], capture_output=True, text=True, check=False, timeout=_INSTALL_LIMIT_S
        )
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["?"])[-1]
            raise StackError(f"pip could not install apache-flink: {last}")
        (theirs,) = place.glob("lib/python*/site-packages/pyflink/conf/config.yaml")
        settings = theirs.read_text(encoding="utf-8")
        for default, ours in _FLINK_SETTINGS.items():
            if default not in settings:
                raise StackError(f"Flink's config.yaml does not say {default!r}.")
            settings = settings.replace(default, ours)
        theirs.write_text(settings, encoding="utf-8")
        (place / ".installed").touch()
    return Ready(python, jars, is_local=True)


PEERS: dict[str, Callable[[Path], Ready]] = {
    "obvious": _prepare_obvious,
    "spark": _prepare_spark,
    "flink": _prepare_flink,
}
