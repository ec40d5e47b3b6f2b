"""Verification mode over whole workers: silent if nothing is wrong, and loud about the faults that it is made for.

It is on in some seeds of every other test here; in these it ends the worker that it finds wrong.
"""

from __future__ import annotations

import pytest

from tests.fakes.check import InvariantError
from tests.fakes.worker import verifying
from tests.mutants.registry import MUTANTS
from tests.simulation.conftest import Run
from tests.simulation.swarm import Style, Swarm

ALL = verifying()
SEEDS_MAX = 100
FOUND = "VerificationError: verification: committed flushes differ from the source: "


def differences_found(run_seed: Run, name: str) -> str:
    """Give what the first seed says in which verification mode finds a difference."""
    mutant = MUTANTS[name]
    with mutant.planted():
        for seed in range(SEEDS_MAX):
            try:
                run_seed(seed, style=mutant.style, swarm=mutant.swarm, parts=mutant.parts, verify=ALL)
            except (InvariantError, AssertionError) as error:
                _, found, differences = str(error).partition(FOUND)
                if found:
                    return differences
    pytest.fail(f"{SEEDS_MAX} seeds find nothing")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("drops-before-the-tap", "missing"),  # never handed over: the source has it
        ("drops-polled-records", "missing"),
        ("never-rewinds", "missing"),
        ("rewinds-nothing-kept", "missing"),
        ("accepts-stale-records", "missing"),  # its flush answers for what others have flushed
        ("commits-one-too-far", "flush_gap"),
        ("leaves-an-entry-out", "missing"),
        ("writes-an-entry-twice", "duplicated"),
        ("overwrites-objects", "object_altered"),
        ("sends-no-dead-letters", "dead_letter_missing"),
    ],
)
def test_wrong_worker_is_found(name: str, kind: str, run_seed: Run) -> None:
    """This mode is for faults between the source and the objects in the store."""
    assert kind in differences_found(run_seed, name)


def test_unverified_entries_and_differences_stay_none_where_nothing_goes_wrong(run_seed: Run) -> None:
    """Without faults every entry that is committed is verified."""
    for style in Style:
        world = run_seed(1, style=style, swarm=Swarm().healed(), verify=ALL)
        told = "\n".join(world.trace)
        assert "flush_verified" in told
        assert "entries_not_verified" not in told
