"""All mutants, by name."""

from __future__ import annotations

from tests.mutants.catalogue import CATALOGUE
from tests.mutants.mutant import Mutant
from tests.mutants.published import PUBLISHED
from tests.mutants.rules import BEFORE_THE_TAP, CONSERVATION, LIVE, STARTS, SURVIVORS

FAMILIES: dict[str, tuple[Mutant, ...]] = {
    "Published bugs": PUBLISHED,
    "Wrong builds": CATALOGUE,
    "Bugs that survived the tests": SURVIVORS,
    "Before the worker": BEFORE_THE_TAP,
    "Slower, never stuck; damaged batches": LIVE,
    "What is written and announced": CONSERVATION,
    "Start positions": STARTS,
}
MUTANTS = {one.name: one for family in FAMILIES.values() for one in family}
