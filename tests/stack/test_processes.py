"""Server processes: readiness, death, leash, and records that never hit a stranger."""

import dataclasses
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tools.local.errors import ProcessDiedError
from tools.local.ports import find_free_ports
from tools.local.processes import ProcessRecord, ServerProcess

SLEEPER = [sys.executable, "-S", "-c", "import time; print('ready', flush=True); time.sleep(60)"]


def _wait_until_gone(record: ProcessRecord) -> None:
    deadline = time.monotonic() + 10
    while record.is_running():
        assert time.monotonic() < deadline, f"{record} still runs"
        time.sleep(0.02)


def test_process_that_ends_early_shows_its_first_error_and_its_last_lines(tmp_path: Path) -> None:
    program = "print('ERROR it is broken')\nfor i in range(30): print('line', i)\nraise SystemExit(3)"
    server = ServerProcess("the server", [sys.executable, "-c", program], log=tmp_path / "log")

    with pytest.raises(ProcessDiedError, match=r"the server ended with code 3(?s:.*)line 29") as caught:
        server.wait_for_line("ready", timeout_s=20)
    assert "line 14" not in caught.value.last_lines
    assert "it is broken" in caught.value.last_lines


def test_ports_are_different_ones_in_processes_of_one_seed() -> None:
    found = []
    for _ in range(2):
        random.seed(1)
        found.append(find_free_ports(8))
    assert found[0] != found[1]


def test_process_not_ready_in_time_is_killed(tmp_path: Path) -> None:
    server = ServerProcess("the server", SLEEPER, log=tmp_path / "log")

    with pytest.raises(ProcessDiedError, match="was not ready after 0 s"):
        server.wait_for_line("never said", timeout_s=0.2)
    assert not server.is_alive()


def test_ready_line_of_an_earlier_run_does_not_count(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("ready\n", encoding="utf-8")
    server = ServerProcess("the server", [sys.executable, "-c", ""], log=log)

    with pytest.raises(ProcessDiedError):
        server.wait_for_line("ready", timeout_s=20)


def test_paused_process_is_terminated(tmp_path: Path) -> None:
    server = ServerProcess("the server", SLEEPER, log=tmp_path / "log")
    server.wait_for_line("ready", timeout_s=20)
    server.pause()

    server.terminate()
    server.wait(grace_s=10)

    assert not server.is_alive()


def test_leashed_process_dies_with_a_killed_parent(tmp_path: Path) -> None:
    """Not even SIGKILL of the test run leaves a broker behind."""
    program = (
        "import sys, time; from pathlib import Path; from tools.local.processes import ServerProcess\n"
        f"server = ServerProcess('s', {SLEEPER!r}, log=Path({str(tmp_path / 'log')!r}))\n"
        "server.wait_for_line('ready', timeout_s=20); print(server.pid, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        record = ProcessRecord.of("s", int(parent.stdout.readline()))
        parent.kill()

    _wait_until_gone(record)


def test_unleashed_process_outlives_its_parent_and_is_stopped_by_record(tmp_path: Path) -> None:
    program = (
        "from pathlib import Path; from tools.local.processes import ServerProcess\n"
        f"server = ServerProcess('s', {SLEEPER!r}, log=Path({str(tmp_path / 'log')!r}), leashed=False)\n"
        "server.wait_for_line('ready', timeout_s=20); print(server.release().pid)"
    )
    pid = int(subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout)
    record = ProcessRecord.of("s", pid)

    assert record.stop(grace_s=10) is True
    assert not record.is_running()
    assert record.stop(grace_s=10) is False


def test_record_does_not_stop_another_process_with_its_pid(tmp_path: Path) -> None:
    server = ServerProcess("the server", SLEEPER, log=tmp_path / "log")
    stale = dataclasses.replace(ProcessRecord.of("the server", server.pid), started="1")

    assert stale.stop(grace_s=1) is False
    assert server.is_alive()
    server.kill()


def test_record_of_a_zombie_is_not_running() -> None:
    child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"])
    record = ProcessRecord.of("child", child.pid)
    os.kill(child.pid, signal.SIGKILL)

    _wait_until_gone(record)  # although nobody has waited for it yet
    child.wait()
