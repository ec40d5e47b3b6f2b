"""Hours of steady load with a fault each minute, in pieces: each begins with the state at the end of the last.

Topics, objects, committed offsets and spools stay in the directory; an interruption of the machine is a fault more. On
the way everything is audited each ten minutes, and the workers' memory, threads and files are written down.
"""

import contextlib
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools.chaos.bed import Bed, Ground, make_ground
from tools.chaos.faults import plan_chaos
from tools.chaos.figures import Figures, judged
from tools.chaos.run import Flow, Run, Tell
from tools.demo.faults import name_of
from tools.demo.options import Protocol
from tools.local.processes import ServerProcess

NAME = "endurance"
SPARED = 0
"""The worker that is paused and cut off, never killed: its memory is that of the whole piece."""
_FAULT_EVERY_S = 60.0
_AUDIT_EVERY_S = 600.0
_SAMPLE_EVERY_S = 30.0
_ENTRIES_PER_S = 100.0
_USERS = 50  # an audit of everything looks at each reference, and there are some for each user in each flush
_FIRST_FAULT_S = 10.0
_CLEAN, _FINDINGS = 0, 1  # exit codes of an audit


class Watchman:
    """Between the turns of a run: samples of what the workers hold, and audits of everything committed so far."""

    def __init__(self, run: Run, ground: Ground, *, tell: Tell) -> None:
        self.samples: list[dict[str, Any]] = []
        self.verdicts: list[int | None] = []  # exit codes
        self._run = run
        self._ground = ground
        self._tell = tell
        self._began = time.monotonic()
        self._sample_at = self._began
        self._audit_at = self._began + _AUDIT_EVERY_S
        self._audit: ServerProcess | None = None

    def turn(self) -> None:
        """Do what is due; an audit goes on beside the run."""
        now = time.monotonic()
        if now >= self._sample_at:
            self._sample_at = now + _SAMPLE_EVERY_S
            self.samples += self._sample(round(now - self._began))
        if self._audit is None and now >= self._audit_at:
            self._audit = self._start_audit()
        elif self._audit is not None and not self._audit.is_alive():
            self._take_verdict(self._audit)
            self._audit, self._audit_at = None, now + _AUDIT_EVERY_S

    def end(self) -> None:
        """End an audit that is under way."""
        if self._audit is not None:
            self._audit.kill()

    def _sample(self, at_s: int) -> Iterator[dict[str, Any]]:
        for name, pid in self._run.running:
            spool = self._ground.environment.directory / "workers" / name / "spool"
            files = sum(1 for _ in spool.rglob("*"))
            yield {"at_s": at_s, "worker": name, **_probe(pid), "spool_files": files}

    @property
    def _figures(self) -> Path:
        return self._ground.environment.directory / f"audit-{len(self.verdicts)}.json"

    def _start_audit(self) -> ServerProcess:
        command = [sys.executable, "-m", "log_partitioner", "audit", "--json", str(self._figures)]
        log = self._figures.with_suffix(".txt")
        return ServerProcess("audit", command, log=log, env=self._ground.environment.variables)

    def _take_verdict(self, audit: ServerProcess) -> None:
        figures = self._figures
        told = json.loads(figures.read_text(encoding="utf-8"))["counts"] if figures.exists() else "no report"
        self.verdicts.append(audit.exit_code)
        self._tell(f"        audit on the way: {audit.exit_code}, {told}")


def play_piece(
    bed: Bed, *, seconds: float, protocol: Protocol, seed: int, entries_per_s: float | None, tell: Tell
) -> Figures:
    """Play one piece."""
    ground = make_ground(bed, NAME, protocol=protocol, settings={})
    flow = Flow(entries_per_s=entries_per_s or _ENTRIES_PER_S, users=_USERS, seconds=seconds, seed=seed)
    run = Run(bed, ground, flow, tell=tell)
    watchman = Watchman(run, ground, tell=tell)
    faults = plan_chaos(seed=seed, begin_s=_FIRST_FAULT_S, until_s=seconds, every_s=_FAULT_EVERY_S, spared=SPARED)
    try:
        happened = run.play(faults, on_turn=watchman.turn)
    finally:
        watchman.end()
    if wrong := sum(code == _FINDINGS for code in watchman.verdicts):
        happened.notes.append(f"audits on the way: {wrong} of {len(watchman.verdicts)} have findings")
    return judged(
        ground,
        happened,
        tell=tell,
        kind="endurance",
        protocol=protocol,
        seed=seed,
        audits_on_the_way=len(watchman.verdicts),
        # Brokers were killed under them, as under the workers.
        audits_that_could_not_tell=sum(code not in (_CLEAN, _FINDINGS) for code in watchman.verdicts),
        spared_worker=_course([one for one in watchman.samples if one["worker"] == name_of(SPARED)]),
    )


def _course(samples: list[dict[str, Any]]) -> dict[str, list[int]]:
    """Return each figure at the begin, at each quarter, and at the end."""
    if not samples:
        return {}
    picked = [samples[round(part * (len(samples) - 1) / 4)] for part in range(5)]
    return {name: [one[name] for one in picked] for name in samples[0] if name != "worker"}


def _probe(pid: int) -> dict[str, int]:
    """Return the memory, threads and files of a process now; zeros if it has ended meanwhile."""
    status: dict[str, str] = {}
    files = 0
    with contextlib.suppress(OSError):
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace").splitlines()
        status = {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
        files = sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
    return {
        "rss_kib": int(status.get("VmRSS", "0 kB").split()[0]),
        "threads": int(status.get("Threads", "0")),
        "files": files,
    }
