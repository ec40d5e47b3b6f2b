"""`python -m bench.pipeline`: the cost of the table, of audits beside one without Spark, of user activity.

Prints a table for a person, or JSON. Delivers first, so a run takes minutes.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import msgspec

from bench.deliver import delivered
from bench.jobs import Cost, run_job
from log_partitioner_pipeline.audit.result import decode
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
    return {
        "cores": cores,
        **table,
        **_told("audit without Spark", run_job(environment, ["audit"], cores=cores, module="log_partitioner")),
        **_audit(environment, "audit", [], cores=cores),
        **_audit(environment, "audit --table", ["--table"], cores=cores),
        **_audit(environment, "audit of seconds", ["--last", "5s", "--no-verdicts"], cores=cores),
        **_told("user-activity", run_job(environment, ["user-activity"], cores=cores)),
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
        **_told("materialize", cost),
        "materialize: CPU us an entry": round(cost.cpu_s / entries * 1e6, 1),
        "materialize: entries/s": round(entries / seconds),
        "materialize: references/s": round(references / seconds),
        "materialize: entries/s, first batch left out": round(sum(one["entries"] for one in warm) / warm_seconds),
        "materialize: references/s, first batch left out": round(sum(one["references"] for one in warm) / warm_seconds),
    }


def _audit(environment: Environment, name: str, options: list[str], *, cores: int) -> dict[str, float]:
    file = environment.directory / "audit.json"
    cost = run_job(environment, ["audit", "--json", str(file), *options], cores=cores)
    result = decode(file.read_bytes())
    steps = {f"{name}: seconds of {step}": seconds for step, seconds in result.durations_s.items() if seconds > 1}
    return {f"{name}: entries": result.counts.entries, **_told(name, cost), **steps}


def _told(name: str, cost: Cost) -> dict[str, float]:
    return {f"{name}: wall s, with the start": round(cost.wall_s, 1), f"{name}: CPU s": round(cost.cpu_s, 1)}


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
