"""docs/MUTANTS.md: which tool notices which mutant, from the registry and the evidence."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.mutants import evidence
from tests.mutants.evidence import NONE, TOOLS, summary
from tests.mutants.mutant import Mutant
from tests.mutants.published import BLOG
from tests.mutants.registry import FAMILIES

PAGE = Path(__file__).parents[2] / "docs" / "MUTANTS.md"
HEAD = """# Mutants

Workers that are wrong on purpose, and which tool notices each. `python -m tests.mutants` writes this page from
[the registry](../tests/mutants/registry.py), [seeds](evidence/mutants.json), which has the first seed and the kinds of
findings too, and [real runs](evidence/mutants_real.json); `python -m tests.mutants never-rewinds --seeds 100` runs one.

"""
WHAT = """
- **simulation**: seeds of whole workers under faults in which an invariant breaks ([INVARIANTS](INVARIANTS.md)).
- **fast test**: the test named for the rule passes without the mutant and fails with it.
- **verification mode, verify-logs, audit**: seeds in which the tool finds something (of verify-logs the numbers of its
  rules) and nothing stops a worker but itself. The audit is the small one; it judges what is committed, so that work
  that stands still is none of its findings.

Seeds are of a swarm that the registry gives, mostly one of many rebalances and of a client library as bad as it has
ever been. Numbers do not say how bad a bug is, and 0 of a few seeds is no proof that a tool cannot see it. CI fails if
a fast test does not notice its mutant, or if no seed does, but for mutants that the simulation is blind to.

The *zio-kafka story* is D. Vigovszky's, of six attempts to mend a service that this one is built after:
[ZIO Kafka with transactions](https://blog.vigoo.dev/posts/zio-kafka-debugging-story/), with zio-kafka
[#427](https://github.com/zio/zio-kafka/pull/427), [#469](https://github.com/zio/zio-kafka/issues/469),
[#473](https://github.com/zio/zio-kafka/pull/473), [#500](https://github.com/zio/zio-kafka/pull/500). *V01* is a list
of thirteen wrong builds that any checker of such a worker should notice.
"""
SOURCE = re.compile("^V01: .*")
REAL = "One run each of real processes on real Kafka and S3.\n\n"
EVERY = ("simulation", "fast test", *TOOLS)
FALSE_ALARMS = "\nThe product itself, in the same worlds: {}.\n"


def write() -> None:
    """Write the page anew."""
    PAGE.write_text(render(evidence.load(), evidence.load(evidence.REAL)))


def render(known: dict[str, Any], runs: dict[str, Any]) -> str:
    """Return the page, from what was found by seeds and in real runs."""
    parts = [HEAD, *_sums(known)]
    if NONE in known:
        said = [f"{tool} {_cell(known[NONE], tool)}" for tool in ("simulation", *TOOLS)]
        parts.append(FALSE_ALARMS.format("; ".join(said)))
    parts.append(WHAT)
    for title, family in FAMILIES.items():
        parts.append(
            f"\n## {title}\n\n| mutant | simulation | fast test | {' | '.join(TOOLS)} |\n|---|---|---|---|---|---|\n"
        )
        parts += [_row(one, known.get(one.name, {})) for one in family]
    parts += ["\n## Real runs\n\n", REAL, *_real(runs)]
    return "".join(parts)


def _row(mutant: Mutant, entry: dict[str, Any]) -> str:
    simulation = _cell(entry, "simulation")
    if mutant.blind:
        simulation += f"; {mutant.blind}"
    test = (
        "none" if mutant.fast is None else f"`{mutant.fast.node}`" + ("" if entry.get("fast test") else ": **passes**")
    )
    cells = [simulation, test, *(_cell(entry, tool) for tool in TOOLS)]
    sources = [SOURCE.sub("V01", story) for story in mutant.stories if story.startswith((BLOG, "V01"))]
    about = f"**{mutant.name}**: {mutant.wrong}" + (f" ({'; '.join(sources)})" if sources else "")
    return f"| {about} | {' | '.join(cells)} |\n"


def _cell(entry: dict[str, Any], tool: str) -> str:
    if tool == "simulation":
        found = entry.get("simulation")
        return "not run" if found is None else summary(found["noticed"], found["seeds"], kinds=True)
    found = entry.get("blind")
    return "not run" if found is None else summary(found[tool], found["seeds"], kinds=tool == "verify-logs")


def _real(runs: dict[str, Any]) -> Iterator[str]:
    yield "| mutant | run | audit | verification mode | verify-logs | workers that ended themselves |\n"
    yield "|---|---|---|---|---|---|\n"
    for name, entry in sorted(runs.items()):
        for one in entry.values():
            audit = one["audit"] if isinstance(one["audit"], str) else f"**{', '.join(one['audit'])}**"
            mode = f"**{', '.join(one['verification mode'])}**" if one["verification mode"] else "nothing"
            logs = "**violation**" if one["verify-logs"] == "findings" else one["verify-logs"].replace("_", " ")
            about = f"{one['scenario']}, {one['records']:,} records"
            audit = audit.replace("could_not_tell", "could not tell")
            yield f"| {name} | {about} | {audit} | {mode} | {logs} | {len(one['ended'])} |\n"


def _sums(known: dict[str, Any]) -> Iterator[str]:
    mutants = [one for family in FAMILIES.values() for one in family if one.name in known]
    yield f"Of {len(mutants)} mutants:\n\n"
    for tool in ("simulation", "fast test"):
        missed = [one.name for one in mutants if not _notices(known[one.name], tool)]
        yield f"- {tool}: {len(mutants) - len(missed)}; not {', '.join(missed) or 'none'}\n"
    for tool in TOOLS:
        yield f"- {tool}: {sum(_notices(known[one.name], tool) for one in mutants)}\n"
    alone = [one.name for one in mutants if sum(_notices(known[one.name], tool) for tool in EVERY) == 1]
    yield f"\nBy one of these alone: {', '.join(alone) or 'none'}.\n"


def _notices(entry: dict[str, Any], tool: str) -> bool:
    if tool == "fast test":
        return bool(entry.get(tool))
    return bool(entry["simulation"]["noticed"] if tool == "simulation" else entry["blind"][tool])
