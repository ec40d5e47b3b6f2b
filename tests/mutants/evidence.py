"""The results for each mutant, kept as JSON: docs/evidence/mutants.json by seed, mutants_real.json by real run."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.mutants.mutant import Mutant
from tests.mutants.tools import heard_by, said_by_others, said_by_simulation, silence

EVIDENCE = Path(__file__).parents[2] / "docs" / "evidence" / "mutants.json"
REAL = EVIDENCE.with_name("mutants_real.json")
TOOLS = ("verification mode", "verify-logs", "audit")
NONE = "none"
"""The name of the product itself, of which every tool has to be silent."""
_BY = re.compile(r"\b([IW]\d+)\b")


def load(path: Path = EVIDENCE) -> dict[str, Any]:
    """Return what is known by now."""
    known: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return known


def save(known: dict[str, Any], path: Path = EVIDENCE) -> None:
    """Write it, sorted."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")


def broken_by(text: str) -> str:
    """Return the invariant that a text names first, a worker's own if that has ended the worker, or the error."""
    found = _BY.findall(text)
    inner = [one for one in found if one.startswith("W")]
    return (inner or found or [text.partition(":")[0]])[0]


def look(mutant: Mutant, known: dict[str, Any], *, seeds: int, blind_seeds: int, told: Callable[[], None]) -> None:
    """Add what is not known yet of a mutant: fast test, so many seeds of the simulation, so many blind."""
    entry = known.setdefault(mutant.name, {})
    if mutant.fast is not None:
        with heard_by(silence):
            mutant.fast.run()
            with mutant.planted():
                entry["fast test"] = mutant.fast.notices()
    simulation = entry.setdefault("simulation", {"seeds": 0, "noticed": {}})
    for seed in range(simulation["seeds"], seeds):
        if (said := said_by_simulation(mutant, seed)) is not None:
            simulation["noticed"][str(seed)] = broken_by(said)
        simulation["seeds"] = seed + 1
        told()
    look_blind(mutant, entry, blind_seeds, told)


def look_blind(mutant: Mutant, entry: dict[str, Any], seeds: int, told: Callable[[], None]) -> None:
    """Add what the three tools say in seeds in which nothing else stops a worker."""
    blind = entry.setdefault("blind", {"seeds": 0, **{tool: {} for tool in TOOLS}})
    for seed in range(blind["seeds"], seeds):
        for tool, said in said_by_others(mutant, seed).items():
            if said:
                blind[tool][str(seed)] = said
        blind["seeds"] = seed + 1
        told()


def summary(noticed: dict[str, Any], seeds: int, *, kinds: bool) -> str:
    """Return in how many seeds of how many (2/10), and as what."""
    if not noticed:
        return f"0/{seeds}"
    if not kinds:
        return f"**{len(noticed)}/{seeds}**"
    found: Counter[str] = Counter()
    for said in noticed.values():
        found.update([said] if isinstance(said, str) else said)
    return f"**{len(noticed)}/{seeds}**: {', '.join(kind for kind, _ in found.most_common(3))}"
