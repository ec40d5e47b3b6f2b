"""A checker that lets a wrong worker pass proves nothing: each mutant is noticed by what its entry names.

`python -m tests.mutants` asks all tools in many seeds; here each has to be noticed once, first of all in the seeds that
are known to do so.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fakes.worker import Parts
from tests.mutants import evidence, page
from tests.mutants.mutant import WILD, Mutant
from tests.mutants.published import over_fakes
from tests.mutants.read_ahead import ReadAhead
from tests.mutants.registry import FAMILIES, MUTANTS
from tests.mutants.tools import said_by_others, said_by_simulation
from tests.simulation.swarm import Style

SEEDS_MAX = 60
SEEN = [one for one in MUTANTS.values() if not one.blind and not one.is_rare]
UNSEEN = [one for one in MUTANTS.values() if one.blind or one.is_rare]


def seeds_of(mutant: Mutant) -> Iterator[int]:
    """Yield the seeds that have noticed it before, then all others."""
    noticed = evidence.load().get(mutant.name, {}).get("simulation", {}).get("noticed", {})
    known = sorted(map(int, noticed))[:2]
    yield from known
    yield from (seed for seed in range(SEEDS_MAX) if seed not in known)


@pytest.mark.slow
@pytest.mark.parametrize("mutant", SEEN, ids=str)
def test_mutant_is_noticed_by_the_simulation(mutant: Mutant) -> None:
    """In some seed an invariant breaks, or the worker ends itself by one of its own."""
    assert any(said_by_simulation(mutant, seed) for seed in seeds_of(mutant)), f"{SEEDS_MAX} seeds notice nothing"


@pytest.mark.parametrize("mutant", [one for one in MUTANTS.values() if one.fast is not None], ids=str)
def test_mutant_is_noticed_by_the_test_named_for_its_rule(mutant: Mutant) -> None:
    """The test fails if the rule is broken, and passes if it is not."""
    assert mutant.fast is not None
    mutant.fast.run()
    with mutant.planted():
        assert mutant.fast.notices()


@pytest.mark.parametrize("mutant", UNSEEN, ids=str)
def test_mutant_that_the_simulation_hardly_sees_has_a_test_of_its_own(mutant: Mutant) -> None:
    """Otherwise a mutant would be listed that no tool looks for."""
    assert mutant.fast is not None


@pytest.mark.slow
@pytest.mark.parametrize("style", [Style.COOPERATIVE, Style.KIP848])
def test_layer_that_keeps_what_nobody_asked_for_loses_nothing(style: Style) -> None:
    """It is what its mutants do at a rebalance that is noticed, not the layer."""
    layer = Mutant("layer", "nothing", (), Parts(consumer=over_fakes(ReadAhead)), style=style)
    assert [said_by_simulation(layer, seed) for seed in range(2)] == [None] * 2


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_tools_are_silent_where_nothing_is_planted(seed: int) -> None:
    """No false alarm: verification mode, verify-logs and the audit over what the product leaves, in the same worlds."""
    assert said_by_others(None, seed) == {tool: [] for tool in evidence.TOOLS}


@pytest.mark.slow
def test_records_that_the_client_library_never_handed_over_are_missed_by_all_that_read_the_source_anew() -> None:
    """Verification mode and the audit; the worker's own log knows nothing of them."""
    found = said_by_others(MUTANTS["drops-before-the-tap"], 0)
    assert found["verify-logs"] == []
    assert "missing" in found["verification mode"]
    assert "missing" in found["audit"]


def test_names_are_unique_and_faults_of_the_store_heal_unless_asked_for() -> None:
    """Each has one entry, and a swarm of its own if it needs one."""
    assert len(MUTANTS) == sum(map(len, FAMILIES.values()))
    assert WILD.throttle == 0.0


def test_page_says_what_was_found() -> None:
    """docs/MUTANTS.md is written from the registry and docs/evidence, and every mutant was run."""
    known = evidence.load()
    assert page.PAGE.read_text() == page.render(known, evidence.load(evidence.REAL))
    assert set(MUTANTS) <= known.keys()
