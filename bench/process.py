"""Reads CPU and memory of a process and its descendants from the kernel, and holds it to a share of a core.

Linux only: /proc, and cgroups of either version if this user may make them.
"""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_PERIOD_US = 100_000
_V1 = Path("/sys/fs/cgroup/cpu")
_V2 = Path("/sys/fs/cgroup")


def tree(pid: int) -> list[int]:
    """Return the process and all its descendants that live."""
    children: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            children += map(int, task.read_text(encoding="ascii").split())
    return [pid, *(one for child in children for one in tree(child))]


def cpu_s(pid: int) -> float:
    """Return the CPU seconds, user and system, of a process: all its threads, living descendants and ended children."""
    return sum(sum(map(int, _stat(one)[11:15])) for one in tree(pid)) * _TICK_S


def peak_bytes(pid: int) -> int:
    """Return the largest resident size so far, the sum over the process and its living descendants."""
    return sum(_peak_kib(one) for one in tree(pid)) * 1024


@contextlib.contextmanager
def held_to(share: float, pids: list[int]) -> Iterator[str]:
    """Hold each process to a share of one core until the block ends; yields the means: cgroup v1, v2, or stop and go.

    If no cgroup can be made, each process is stopped for the rest of each tenth of a second.
    """
    with contextlib.ExitStack() as held:
        ways = {_hold(held, share, pid) for pid in pids}
        yield ", ".join(sorted(ways))


def _hold(held: contextlib.ExitStack, share: float, pid: int) -> str:
    quota_us = round(share * _PERIOD_US)
    for way, root, make in (("cgroup v1", _V1, _limit_v1), ("cgroup v2", _V2, _limit_v2)):
        group = root / f"bench-{pid}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            make(group, quota_us)
            (group / "cgroup.procs").write_text(str(pid), encoding="ascii")
        except OSError:
            group.rmdir()
            continue
        held.callback(_leave, group, root)
        return way
    done = threading.Event()
    turns = threading.Thread(target=_stop_and_go, args=(pid, share, done.wait), daemon=True)
    turns.start()
    held.callback(turns.join)
    held.callback(done.set)
    return "stop and go"


def _limit_v1(group: Path, quota_us: int) -> None:
    (group / "cpu.cfs_period_us").write_text(str(_PERIOD_US), encoding="ascii")
    (group / "cpu.cfs_quota_us").write_text(str(quota_us), encoding="ascii")


def _limit_v2(group: Path, quota_us: int) -> None:
    (group.parent / "cgroup.subtree_control").write_text("+cpu", encoding="ascii")
    (group / "cpu.max").write_text(f"{quota_us} {_PERIOD_US}", encoding="ascii")


def _leave(group: Path, root: Path) -> None:
    """Move the remaining processes to the group above, and remove the group."""
    for pid in (group / "cgroup.procs").read_text(encoding="ascii").split():
        with contextlib.suppress(OSError):
            (root / "cgroup.procs").write_text(pid, encoding="ascii")
    deadline = time.monotonic() + 5
    while True:
        try:
            group.rmdir()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return


def _stop_and_go(pid: int, share: float, wait: Callable[[float], bool]) -> None:
    period_s = _PERIOD_US / 1e6
    with contextlib.suppress(ProcessLookupError):
        while not wait(period_s * share):
            os.kill(pid, signal.SIGSTOP)
            wait(period_s * (1 - share))
            os.kill(pid, signal.SIGCONT)


def _stat(pid: int) -> list[str]:
    """Return the fields behind the name; zeros for a process that has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return ["0"] * 20


def _peak_kib(pid: int) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1])
    return 0
