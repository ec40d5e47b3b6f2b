"""`make sim SEEDS=1000`: seeds of the simulation in parallel processes: what happened in them, and whether all held.

The first seed that fails is shrunk and told; `make sim SEED=n` shows it again.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from tests.simulation.seeds import SeedTold, collect_rarely, shrink, tell_seed, telling
from tests.simulation.test_simulation import FAULTS, PLACES

_CHUNK = 10


def main() -> int:
    """Run seeds; gives the exit code: 1 if one fails, or a place or fault never occurred in a thousand."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many; default: %(default)s")
    parser.add_argument("--first", type=int, default=0, help="the first one; default: %(default)s")
    parser.add_argument("--seed", type=int, help="only this one, shrunk where it fails")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="default: as there are cores")
    parser.add_argument("--record", type=Path, metavar="FILE", help="append a line of figures there")
    parser.add_argument("--stories", type=Path, metavar="FILE", help="write the digest of each seed's story there")
    options = parser.parse_args()
    if options.stories and "PYTHONHASHSEED" not in os.environ:
        parser.error("stories can be compared only under one PYTHONHASHSEED: sets are in its order")
    if options.seed is not None:
        return _show(options.seed)
    begun = time.monotonic()
    told: list[SeedTold] = []
    seeds = range(options.first, options.first + options.seeds)
    with ProcessPoolExecutor(options.processes, mp_context=get_context("spawn"), initializer=collect_rarely) as pool:
        for one in pool.map(tell_seed, seeds, chunksize=_CHUNK):
            told.append(one)
            if one.failed:
                sys.stderr.write(f"sim: seed {one.seed}, {one.style}: {one.failed}\n")
            if len(told) % 100 == 0:
                sys.stderr.write(f"sim: {len(told):,} of {options.seeds:,} seeds\n")
    figures = _figures(told, time.monotonic() - begun) | {"first": options.first}
    print(json.dumps(figures, indent=1))
    if options.record:
        with options.record.open("a", encoding="utf-8") as file:
            file.write(json.dumps(figures) + "\n")
    if options.stories:
        options.stories.write_text("".join(f"{one.seed} {one.story}\n" for one in told), encoding="utf-8")
    if failed := [one.seed for one in told if one.failed]:
        _show(failed[0])
        return 1
    never = sorted((PLACES | FAULTS) - figures["happened"].keys()) if options.seeds >= 1000 else []
    if never:
        sys.stderr.write(f"sim: never happened: {', '.join(never)}\n")
    return 1 if never else 0


def _show(seed: int) -> int:
    with telling() as current:
        least = shrink(current, seed)
    if least is None:
        sys.stderr.write(f"sim: seed {seed} holds\n")
        return 0
    sys.stderr.write("".join(traceback.format_exception(least)))
    return 1


def _figures(told: list[SeedTold], wall_s: float) -> dict[str, object]:
    happened: Counter[str] = sum((one.happened for one in told), Counter())
    return {
        "seeds": len(told),
        "failed": [one.seed for one in told if one.failed],
        "wall_s": round(wall_s),
        "cpu_s_per_seed": round(statistics.fmean(one.cpu_s for one in told), 3),
        "median_events": statistics.median(one.happened.total() for one in told),
        "median_rebalances": statistics.median(one.rebalances for one in told),
        "median_faults": statistics.median(sum(one.happened[name] for name in FAULTS) for one in told),
        "happened": dict(sorted(happened.items())),
    }


if __name__ == "__main__":
    sys.exit(main())
