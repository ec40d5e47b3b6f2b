"""A mutant: one wrong worker, how it is made out of the right one, and the runs that notice it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest

from tests.fakes.worker import Parts
from tests.simulation.swarm import Style, Swarm

WILD = Swarm(
    at_zombie=0.006, members=0.08, outcome=0.2, old_library=1.0, store_refused=0.0, throttle=0.0, coordinator=0.0
)
"""Many rebalances, outcomes of every kind, and a client library as bad as it has ever been."""

QUIET = Swarm().healed()
"""No faults but those that a mutant needs: many more seeds in the same time."""

ZOMBIES = replace(QUIET, at_zombie=0.02, members=0.08, at_interleave=0.1)
"""Processes that are stopped until others have their places, and go on."""

PRODUCT = Parts()

Arguments = Callable[[pytest.MonkeyPatch], tuple[Any, ...]]


class Patch(NamedTuple):
    """An attribute of the product, or of a fake, and what stands in its place."""

    owner: Any
    name: str
    wrong: Any


def no_arguments(_patches: pytest.MonkeyPatch) -> tuple[Any, ...]:
    """Return nothing."""
    return ()


class FastTest(NamedTuple):
    """A test without simulation or servers that passes, and fails if the mutant is planted."""

    node: str
    arguments: Arguments = no_arguments

    def run(self) -> None:
        """Call the test function as pytest would."""
        path, _, function = self.node.partition("::")
        test = getattr(import_module(path.removesuffix(".py").replace("/", ".")), function)
        with pytest.MonkeyPatch.context() as patches:
            test(*self.arguments(patches))

    def notices(self) -> bool:
        """Return whether the test fails."""
        try:
            self.run()
        except (Exception, pytest.fail.Exception):  # noqa: BLE001 - in whatever way
            return True
        return False


def fast(test: str, *arguments: Any) -> FastTest:
    """Give a test of tests/unit, as file without `.py` and name, and the values that it is called with."""
    file, _, function = test.partition("::")
    return FastTest(f"tests/unit/{file}.py::{function}", lambda _: arguments)


class RealRun(NamedTuple):
    """A scenario that runs the mutant as a real worker.

    Without `patches` of its own, it plants those of the simulation and the product's classes of `parts`.
    """

    scenario: str
    patches: Callable[[], tuple[Patch, ...]] | None = None


@dataclass(frozen=True)
class Mutant:
    """One wrong worker.

    `parts` are its classes in the simulation, `patches` what else is exchanged. `blind` is the reason if the simulation
    cannot see it; then a fast test or a real run has to. `is_rare`: the simulation sees it in one seed of dozens.
    `python -m tests.mutants` looks for that seed; the tests ask its fast test alone.
    """

    name: str
    wrong: str
    stories: tuple[str, ...]
    parts: Parts = PRODUCT
    patches: tuple[Patch, ...] = ()
    style: Style | None = None
    swarm: Swarm = WILD
    fast: FastTest | None = None
    real: RealRun | None = None
    blind: str = ""
    is_rare: bool = False

    def __str__(self) -> str:
        return self.name

    @contextmanager
    def planted(self) -> Iterator[None]:
        """Let every worker over fakes be this one, until the context is left."""
        with pytest.MonkeyPatch.context() as patches:
            for owner, name, wrong in self.patches:
                patches.setattr(owner, name, wrong)
            with (
                patch("tests.fakes.worker.Parts", lambda: self.parts),
                patch("tests.fakes.rig.Parts", lambda: self.parts),
            ):
                yield
