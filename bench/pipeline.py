"""`python -m bench.pipeline`: entries and references per second into the table, the cost of activity and audits.

Prints a table for a person, or JSON. Delivers first, so a run takes minutes.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import msgspec

from bench.deliver import delivered
from bench.jobs import Cost, run_job
from log_partitioner_pipeline.audit.result import Result, decode
from tools.demo.environment import Environment
from tools.local.errors import StackError


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    options = _parse(arguments)
    try:
        with delivered(entries=options.entries, users=options.users, home=options.home) as environment:
            measured = _measure(environment, cores=options.cores)
    except StackError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    if options.json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(measured)).decode() + "\n")
    else:
        sys.stdout.writelines(f"{name:<44} {value:>14,}\n" for name, value in measured.items())
    return 0


def _measure(environment: Environment, *, cores: int) -> dict[str, float]:
    table = _materialize(run_job(environment, ["materialize"], cores=cores))
    files = _audit(environment, [], cores=cores)
    both = _audit(environment, ["--table"], cores=cores)
    activity = run_job(environment, ["user-activity"], cores=cores)
    return {
        "cores": cores,
        **table,
        **_named("audit of files", files),
        **_named("audit of files and table", both),
        "user-activity: CPU seconds, with the start": round(activity.cpu_s, 1),
    }


def _materialize(cost: Cost) -> dict[str, float]:
    batches: list[dict[str, Any]] = [line for line in cost.log if line.get("event") == "references_materialized"]
    entries = sum(batch["entries"] for batch in batches)
    references = sum(batch["references"] for batch in batches)
    seconds = sum(batch["seconds"] for batch in batches)
    # The first batch pays for classes and code that Java compiles as it goes.
    warm = batches[1:] or batches
    warm_seconds = sum(batch["seconds"] for batch in warm)
    return {
        "entries": entries,
        "references": references,
        "materialize: commits": len(batches),
        "materialize: seconds, with the start": round(cost.wall_s, 1),
        "materialize: entries/s": round(entries / seconds),
        "materialize: references/s": round(references / seconds),
        "materialize: entries/s, first batch left out": round(sum(one["entries"] for one in warm) / warm_seconds),
        "materialize: references/s, first batch left out": round(sum(one["references"] for one in warm) / warm_seconds),
    }


def _audit(environment: Environment, options: list[str], *, cores: int) -> tuple[Cost, Result]:
    file = environment.directory / "audit.json"
    cost = run_job(environment, ["audit", "--json", str(file), "--require-caught-up", *options], cores=cores)
    return cost, decode(file.read_bytes())


def _named(name: str, measured: tuple[Cost, Result]) -> dict[str, float]:
    cost, result = measured
    millions = (result.counts.entries or 0) / 1e6
    return {
        f"{name}: seconds, with the start": round(cost.wall_s, 1),
        f"{name}: seconds per million entries": round(result.seconds / millions, 1),
    }


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.pipeline", description=__doc__)
    add = parser.add_argument
    add("--entries", type=int, default=1_000_000, help="default: %(default)s")
    add("--users", type=int, default=500, help="more users, smaller files; default: %(default)s")
    add("--cores", type=int, default=2, help="of Spark; default: %(default)s")
    add("--home", type=Path, default=Path(".local"), help="directory for jars and data; default: %(default)s")
    add("--json", action="store_true", help="JSON instead of a table")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
