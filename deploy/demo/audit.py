"""What comes after the logs, with the workers' settings: the table, a query over it, and the audit.

On Spark (`python -m pipeline`), or small (`python -m service audit`): no table, seconds instead of a minute.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from deploy.demo.environment import Environment
from deploy.local import leash
from deploy.local.errors import StackError

_TIMEOUT_S = 1800.0

Tell = Callable[[str], None]


def audit_on_spark(environment: Environment, tell: Tell) -> int:
    """Materialise the table, query it, audit files and table; print query, rows and the audit's table.

    Blocks for a minute or so. Returns the exit code (0 clean, 1 findings, 2 could not tell or no table).

    Raises:
        StackError: a job did not end in time.
    """
    tell("materialising: references into an Iceberg table, and a query over it")
    materialized = _run(environment, ["pipeline", "materialize", "--show"], environment.directory / "materialize.txt")
    if materialized != 0:
        return materialized
    tell("auditing on Spark: every entry of the source against everything that references name, and against the table")
    page = environment.directory / "audit.html"
    logs = sorted(map(str, environment.directory.glob("workers/*/worker.log")))
    command = ["pipeline", "audit", "--table", "--require-caught-up", "--html", str(page), "--logs", *logs]
    code = _run(environment, command, environment.audit_report)
    if page.exists():
        tell(f"the audit as a page: {page}")
    return code


def audit_small(environment: Environment, tell: Tell) -> int:
    """Audit everything without Spark, print the table, return the exit code (0 clean, 1 findings, 2 could not tell).

    Raises:
        StackError: the audit did not end in time.
    """
    tell("auditing: every entry of the source against everything that references name")
    return _run(environment, ["service", "audit", "--require-caught-up"], environment.audit_report)


def _run(environment: Environment, module: Sequence[str], report: Path) -> int:
    """Run a module of ours; its output goes to the report and is printed at the end, its log lines stand beside it.

    On a terminal the log lines are shown as they come, and with them the job's progress.
    """
    # Leashed, so that it ends if we are killed meanwhile.
    command = [sys.executable, "-I", "-S", str(leash.__file__), str(os.getpid()), sys.executable, "-m", *module]
    log = report.with_suffix(".log")
    with report.open("wb") as output, log.open("wb") as lines:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=None if sys.stderr.isatty() else lines,
            start_new_session=True,
            env=environment.variables,
        )
        try:
            code = process.wait(_TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            raise StackError(
                f"`python -m {' '.join(module)}` did not end within {_TIMEOUT_S:.0f} s ({log})."
            ) from error
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # Spark's Java too
            process.wait()
    print(report.read_text(encoding="utf-8", errors="replace"), flush=True)
    if code != 0:
        print(*log.read_text(encoding="utf-8", errors="replace").splitlines()[-20:], sep="\n", file=sys.stderr)
    return code
