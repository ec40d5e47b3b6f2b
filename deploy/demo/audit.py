"""Runs `python -m service audit` with the workers' settings and shows what it says."""

import os
import subprocess
import sys
from collections.abc import Callable

from deploy.demo.environment import Environment
from deploy.local import leash
from deploy.local.errors import StackError

_TIMEOUT_S = 600.0


def run_audit(environment: Environment, tell: Callable[[str], None]) -> int:
    """Audit everything, print the table, return the exit code (0 clean, 1 findings, 2 could not tell).

    Raises:
        StackError: the audit did not end in time.
    """
    report = environment.audit_report
    tell("auditing: every entry of the source against everything that references name")
    # Leashed, so that it ends if we are killed meanwhile.
    command = [sys.executable, "-I", "-S", str(leash.__file__), str(os.getpid())]
    command += [sys.executable, "-m", "service", "audit", "--require-caught-up"]
    with report.open("wb") as output:
        audit = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=environment.variables,
        )
        try:
            code = audit.wait(_TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            raise StackError(f"The audit did not end within {_TIMEOUT_S:.0f} s ({report}).") from error
        finally:
            audit.kill()
            audit.wait()
    print(report.read_text(encoding="utf-8", errors="replace"), flush=True)
    return code
