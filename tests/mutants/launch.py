"""`python -m tests.mutants.launch NAME run`: the product's own command, with a mutant planted in it."""

from __future__ import annotations

import sys
from typing import Any

from log_partitioner.__main__ import run
from log_partitioner.runtime import app
from log_partitioner.runtime.worker import Parts, Worker
from tests.mutants.mutant import Mutant
from tests.mutants.registry import MUTANTS


def plant(mutant: Mutant) -> None:
    """Plant it in this process, for good."""
    assert mutant.real is not None, f"{mutant.name} has no real run"
    for owner, name, wrong in mutant.patches if mutant.real.patches is None else mutant.real.patches():
        setattr(owner, name, wrong)
    parts = Parts(mutant.parts.recorder, mutant.parts.flusher, mutant.parts.controller, mutant.parts.runloop)

    def make(*arguments: Any, **how: Any) -> Worker:
        return Worker(*arguments, **how, parts=parts)

    app.Worker = make  # type: ignore[misc,assignment]


if __name__ == "__main__":
    plant(MUTANTS[sys.argv.pop(1)])
    run()
