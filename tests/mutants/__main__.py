"""`python -m tests.mutants`: each mutant against every tool; writes docs/evidence/mutants.json and docs/MUTANTS.md.

Exit code 1 if no tool notices a mutant, or any tool complains of the product itself.
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.mutants import evidence, page, real
from tests.mutants.evidence import NONE, TOOLS
from tests.mutants.mutant import Mutant
from tests.mutants.registry import MUTANTS

PRODUCT = Mutant(NONE, "nothing", ())
SCENARIOS = ("rebalances", "kills", "damage")


def main() -> int:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these; `none` is the product itself")
    parser.add_argument("--seeds", type=int, default=40, help="of the simulation; default: %(default)s")
    parser.add_argument("--blind-seeds", type=int, default=20, help="of the other tools; default: %(default)s")
    parser.add_argument("--real", action="store_true", help="real runs alone, of those that have one")
    parser.add_argument("--resume", action="store_true", help="keep what is known, and add what is missing")
    options = parser.parse_args()
    wanted = {NONE: PRODUCT, **MUTANTS}
    chosen = [wanted[name] for name in options.names or wanted]
    if options.real:
        _run_real(chosen)
    else:
        _run_seeds(chosen, options)
    known = evidence.load()
    page.write()
    return _verdict(known)


def _run_seeds(chosen: list[Mutant], options: argparse.Namespace) -> None:
    known = {name: found for name, found in evidence.load().items() if name in MUTANTS or name == NONE}
    for number, mutant in enumerate(chosen, 1):
        begun_s = time.process_time()
        if not options.resume:
            known[mutant.name] = {}
        evidence.look(
            mutant, known, seeds=options.seeds, blind_seeds=options.blind_seeds, told=lambda: evidence.save(known)
        )
        evidence.save(known)
        page.write()
        seconds = time.process_time() - begun_s
        sys.stderr.write(f"mutants: {number} of {len(chosen)}: {mutant.name}, {seconds:.0f} s of CPU\n")


def _run_real(chosen: list[Mutant]) -> None:
    known = evidence.load(evidence.REAL)
    with real.servers() as servers:
        for mutant in chosen:
            scenarios = SCENARIOS if mutant is PRODUCT else () if mutant.real is None else (mutant.real.scenario,)
            for scenario in scenarios:
                found = real.run(None if mutant is PRODUCT else mutant, scenario, servers)
                known.setdefault(mutant.name, {})[scenario] = found
                evidence.save(known, evidence.REAL)
                sys.stderr.write(f"mutants: {mutant.name}: {found}\n")


def _verdict(known: dict[str, dict[str, object]]) -> int:
    """Say which is noticed by nothing."""
    code = 0
    for name, entry in known.items():
        found: list[object] = [entry.get("fast test")]
        found += [entry.get("simulation", {}).get("noticed")]  # type: ignore[attr-defined]
        found += [entry.get("blind", {}).get(tool) for tool in TOOLS]  # type: ignore[attr-defined]
        if (name == NONE) == any(found):
            sys.stderr.write(f"mutants: {name} is noticed by {'something' if name == NONE else 'nothing'}\n")
            code = 1
    return code


if __name__ == "__main__":
    sys.exit(main())
