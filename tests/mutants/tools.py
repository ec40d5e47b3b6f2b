"""The verdict of each tool on a mutant in one seed: invariants, verification mode, verify-logs, the small audit.

A seed is run twice. The first run has all invariants and ends at the first that breaks. The second is blind: it goes on
after a break, so that each of the other three tools judges the output by itself.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import structlog

from log_partitioner.errors import StopError
from tests.fakes.check import audit_of
from tests.fakes.store import PutFault
from tests.fakes.worker import verifying
from tests.log_lines import judged
from tests.mutants.mutant import Mutant
from tests.simulation.seeds import STEPS
from tests.simulation.telling import TellingWorld, heard_by
from tests.simulation.world import Process, World

REPORTING = verifying(is_stopping=False)


def silence(*_: Any) -> str:
    """Hear nothing: a processor of structlog."""
    raise structlog.DropEvent


def said_by_simulation(mutant: Mutant, seed: int) -> str | None:
    """Run a seed with a planted mutant; return what breaks, or None."""
    with mutant.planted(), heard_by(silence):
        try:
            World(seed, style=mutant.style, swarm=mutant.swarm, parts=mutant.parts).run(STEPS)
        except Exception as error:  # noqa: BLE001 - a worker that ends in any error is noticed
            return f"{type(error).__name__}: {error}" if not isinstance(error, AssertionError) else str(error)
    return None


class BlindWorld(TellingWorld):
    """A world without checks: a worker that fails is gone, whatever the reason, and the others go on.

    No foreign object is put into its bucket, because the audit would rightly report it.
    """

    def turn(self, process: Process) -> None:
        """Let one process turn its loop once."""
        try:
            super().turn(process)
        except Exception as error:  # noqa: BLE001 - the end of that process
            self.note(f"{process.worker.name} ended: {error}")
            process.busy = True
            with suppress(BaseException):
                process.worker.close()
            process.dead = True
            self._forget(process)

    def _script_faults(self, process: Process) -> None:
        super()._script_faults(process)
        script = process.worker.store.script
        while PutFault.TAKEN in script:
            script[script.index(PutFault.TAKEN)] = PutFault.ANSWER_LOST

    def _end(self, process: Process, error: StopError) -> None:
        with suppress(AssertionError):
            super()._end(process, error)
        self._forget(process)

    def _raise_broken(self) -> None:
        """Look away."""


def said_by_others(mutant: Mutant | None, seed: int) -> dict[str, list[str]]:
    """Run a seed blind; return what verification mode, verify-logs and the audit say, in a few words each."""
    mutant = mutant or Mutant("none", "nothing", ())
    with mutant.planted():
        world = BlindWorld(seed, style=mutant.style, swarm=mutant.swarm, parts=mutant.parts, verify=REPORTING)
        with heard_by(world.hear), suppress(AssertionError):
            world.run(STEPS)
    differences: dict[str, int] = {}
    for line in world.lines:
        if b'"flush_differs"' in line:
            for kind, count in json.loads(line)["differences"].items():
                differences[kind] = differences.get(kind, 0) + count
    violations = judged(world.lines).violations
    return {
        "verification mode": sorted(differences),
        "verify-logs": sorted({str(one.rule) for one in violations}),
        "audit": audited(world),
    }


def audited(world: World) -> list[str]:
    """Return the kinds of what the audit finds of a world that has ended."""
    report = audit_of(world.broker, world.bucket.objects, world._rules.settings.kafka.start_at)
    return sorted(kind.value for kind, count in report.findings.counts.items() if count)
