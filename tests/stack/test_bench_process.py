"""The kernel's figures of a process, and the means to hold it back."""

import os
import signal
import subprocess
import sys
import time

from bench.process import cpu_s, held_to, peak_bytes, tree

_BUSY = "import sys\nprint(flush=True)\nwhile True: pass"


def test_cpu_and_memory_of_a_process_count_its_children() -> None:
    """A worker that starts processes cannot hide what they take."""
    script = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {_BUSY!r}])"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()
        both = tree(parent.pid)
        alone = peak_bytes(both[1])
        deadline = time.monotonic() + 20
        while cpu_s(parent.pid) < 0.3 and time.monotonic() < deadline:
            time.sleep(0.05)
        used_s = cpu_s(parent.pid)
        parent.kill()
        os.kill(both[1], signal.SIGKILL)

    assert len(both) == 2
    assert used_s >= 0.3
    assert 0 < alone < 2**30


def test_cpu_of_a_child_that_has_ended_is_told_until_it_is_waited_for() -> None:
    """The last flush of a worker counts, too."""
    script = "import time\nwhile time.process_time() < 0.3: pass"
    with subprocess.Popen([sys.executable, "-c", script]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert 0.2 < cpu_s(child.pid) < 3  # the kernel counts ticks of 10 ms


def test_a_held_process_gets_its_share_of_a_core_and_no_more() -> None:
    """By cgroup or by stop and go."""
    with subprocess.Popen([sys.executable, "-c", _BUSY], stdout=subprocess.PIPE) as busy:
        assert busy.stdout is not None
        busy.stdout.readline()
        with held_to(0.2, [busy.pid]) as how:
            before_s, begun = cpu_s(busy.pid), time.monotonic()
            time.sleep(1.5)
            share = (cpu_s(busy.pid) - before_s) / (time.monotonic() - begun)
        busy.kill()

    assert how in ("cgroup v1", "cgroup v2", "stop and go")
    assert share < 0.35
