"""The steps after the logs, with the workers' settings: the table, a query over it, and the audit.

On Spark (`tools.demo.spark_jobs`), or small (`python -m log_partitioner audit`): no table, seconds instead of a minute.
The demo waits for a slow job as long as Kafka and S3 live.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from tools.demo.environment import Environment
from tools.demo.options import temporary_files
from tools.demo.verdict import ExitCode
from tools.local import leash

_TURN_S = 0.1
_LOG_LINES = 20

Tell = Callable[[str], None]


class SparkJobs:
    """The process with the Spark session; started early, it has its session when the first job comes."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._log = environment.directory / "spark.log"
        self._answers = environment.directory / "spark.answers"
        self._temporary = environment.directory / "spark"
        terminal = os.dup(sys.stderr.fileno()) if sys.stderr.isatty() else None
        further = [] if terminal is None else [str(terminal)]
        reading_end, writing_end = os.pipe()
        self._orders = os.fdopen(writing_end, "w", buffering=1, encoding="utf-8")
        with self._answers.open("wb") as output, self._log.open("wb") as log:
            self._process = subprocess.Popen(
                _leashed("tools.demo.spark_jobs", *further),
                stdin=reading_end,
                stdout=output,
                stderr=log,
                start_new_session=True,
                env=environment.variables | temporary_files(self._temporary),
                pass_fds=() if terminal is None else (terminal,),
            )
        for descriptor in (reading_end, terminal):
            if descriptor is not None:
                os.close(descriptor)

    def run(self, arguments: Sequence[str], report: Path) -> int:
        """Run one job and print its report; return its exit code, 2 if the process has ended without one.

        Raises:
            ProcessDiedError: Kafka or S3 has ended meanwhile.
        """
        answered = len(self._codes())
        job = json.dumps({"arguments": list(arguments), "report": str(report)})
        with suppress(BrokenPipeError):
            self._orders.write(f"{job}\n")
        is_alive = True
        while len(codes := self._codes()) == answered and is_alive:
            is_alive = self._process.poll() is None
            self._environment.require_alive()
            time.sleep(_TURN_S)
        code = codes[answered] if len(codes) > answered else ExitCode.COULD_NOT_TELL
        _print_report(report, self._log, code)
        return code

    def kill(self) -> None:
        """End the process, and Java with it."""
        _kill(self._process)
        with suppress(BrokenPipeError):
            self._orders.close()
        shutil.rmtree(self._temporary, ignore_errors=True)

    def _codes(self) -> list[int]:
        return [
            int(line) for line in self._answers.read_text(encoding="utf-8").splitlines(keepends=True) if "\n" in line
        ]


def audit_on_spark(environment: Environment, jobs: SparkJobs, tell: Tell) -> int:
    """Materialise the table, query it, audit files and table; print query, rows and the audit's table.

    Blocks for a minute or so. Returns the exit code (0 clean, 1 findings, 2 could not tell or no table).

    Raises:
        ProcessDiedError: Kafka or S3 has ended meanwhile.
    """
    tell("materialising: references into an Iceberg table, and a query over it")
    materialized = jobs.run(["materialize", "--show"], environment.directory / "materialize.txt")
    if materialized != 0:
        return ExitCode.COULD_NOT_TELL
    tell("auditing on Spark: every entry of the source against everything that references name, and against the table")
    page = environment.directory / "audit.html"
    logs = [f"--logs={log}" for log in sorted(environment.directory.glob("workers/*/worker.log"))]
    arguments = ["audit", "--table", "--require-caught-up", "--html", str(page), *logs]
    code = jobs.run(arguments, environment.audit_report)
    if page.exists():
        tell(f"the audit as a page: {page}")
    return code


def audit_small(environment: Environment, tell: Tell, *, is_told: bool = True) -> int:
    """Audit everything without Spark, print the table, return the exit code (0 clean, 1 findings, 2 could not tell).

    On a terminal the log lines are shown as they come. A clean result is printed only if `is_told`.

    Raises:
        ProcessDiedError: Kafka or S3 has ended meanwhile.
    """
    tell("auditing: every entry of the source against everything that references name")
    report = environment.audit_report
    figures = str(report.with_suffix(".json"))
    return _run(
        environment, report, "log_partitioner", "audit", "--require-caught-up", "--json", figures, is_told=is_told
    )


def verify_logs(environment: Environment, tell: Tell, *, is_told: bool = True) -> int:
    """Hold the workers' logs against the rules, print the account, return the exit code; a pass only if `is_told`.

    It is 0 for pass, 1 for a violation, 2 if it could not tell.

    Raises:
        ProcessDiedError: Kafka or S3 has ended meanwhile.
    """
    tell("verifying: who owned and committed what, by the logs of all workers")
    logs = sorted(map(str, environment.directory.glob("workers/*/worker.log")))
    report = environment.directory / "verify-logs.txt"
    return _run(environment, report, "log_partitioner", "verify-logs", *logs, is_told=is_told)


def _run(environment: Environment, report: Path, module: str, *arguments: str, is_told: bool) -> int:
    log = report.with_suffix(".log")
    with report.open("wb") as output, log.open("wb") as lines:
        process = subprocess.Popen(
            _leashed(module, *arguments),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=None if sys.stderr.isatty() else lines,
            start_new_session=True,
            env=environment.variables,
        )
        try:
            while (code := process.poll()) is None:
                environment.require_alive()
                time.sleep(_TURN_S)
        finally:
            _kill(process)
    if is_told or code != 0:
        _print_report(report, log, code)
    return code


def _leashed(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module of ours, and ends if we are killed meanwhile."""
    leashed = [sys.executable, "-I", "-S", str(leash.__file__), str(os.getpid())]
    return [*leashed, sys.executable, "-m", module, *arguments]


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # what it has started, too
    process.wait()


def _print_report(report: Path, log: Path, code: int) -> None:
    if report.exists():
        print(report.read_text(encoding="utf-8", errors="replace"), flush=True)
    if code != 0:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        print(*lines[-_LOG_LINES:], sep="\n", file=sys.stderr)
