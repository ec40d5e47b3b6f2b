"""The logs of the simulation's workers, judged by the rules of verify-logs."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from log_partitioner.proof.verify.values import LogRule
from tests.log_lines import judged
from tests.mutants.mutant import WILD
from tests.mutants.registry import MUTANTS
from tests.simulation.swarm import Style
from tests.simulation.telling import TellingWorld, heard_by

STEPS = 150
SEEDS = 4
SEEDS_MAX = 40
ALTERED = 3


def tell(world: TellingWorld) -> list[bytes]:
    """Run a world; returns the lines of its workers."""
    with heard_by(world.hear):
        world.run(STEPS)
    return world.lines


@pytest.mark.parametrize("style", list(Style))
def test_workers_under_faults_tell_what_passes(style: Style) -> None:
    """Kills, zombies, lost answers, old ones, clocks minutes apart, lines in any order: no false alarm."""
    for seed in range(SEEDS):
        lines = tell(TellingWorld(seed, style=style, swarm=replace(WILD, coordinator=0.02)))
        Random(seed).shuffle(lines)

        found = judged(lines)

        assert (found.violations, found.doubts) == ([], []), f"seed {seed}"


def one_record_less(fields: dict[str, Any]) -> bool:
    """Let a commit say one record less than it has."""
    fields["records"] = fields.get("records", 0) - 1
    return fields["event"] == "flush_committed"


def first_record_later(fields: dict[str, Any]) -> bool:
    """Let a commit say that its first record is one later."""
    read = [covered for covered in fields.get("offsets", {}).values() if isinstance(covered, dict)]
    some = next((covered for covered in read if covered["min_offset"] is not None), None)
    if fields["event"] != "flush_committed" or some is None:
        return False
    some["min_offset"] += 1
    return True


@pytest.mark.parametrize("alter", [one_record_less, first_record_later])
def test_line_of_a_commit_that_was_altered_is_noticed(alter: Callable[[dict[str, Any]], bool]) -> None:
    """Each of the first ones: what a commit counts is joined to its offsets and to the holes that were told."""
    lines = tell(TellingWorld(1, style=Style.COOPERATIVE, swarm=WILD))
    altered = 0
    for number, line in enumerate(lines):
        fields = json.loads(line)
        if altered < ALTERED and alter(fields):
            altered += 1
            others = [*lines[:number], json.dumps(fields).encode() + b"\n", *lines[number + 1 :]]
            assert [one.rule for one in judged(others).violations] == [LogRule.CONTIGUOUS]
    assert altered == ALTERED


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "commits-the-position",
        "flushes-what-is-lost",
        "never-rewinds",
        "records-what-is-not-owned",
        "forgets-unknown-outcomes",
    ],
)
def test_wrong_worker_tells_on_itself(name: str) -> None:
    """Some seed's logs break a rule."""
    mutant = MUTANTS[name]
    for seed in range(SEEDS_MAX):
        world = TellingWorld(seed, style=mutant.style, swarm=mutant.swarm, parts=mutant.parts)
        with suppress(Exception):  # what it breaks is for the simulation's own tests
            tell(world)
        if judged(world.lines).violations:
            return
    pytest.fail(f"{SEEDS_MAX} seeds notice nothing")
