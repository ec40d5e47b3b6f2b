"""`python -m tests.property.fuzz_lanes 60`: both lanes compared, with new random records until so much CPU is spent.

The first difference ends it, with the smallest records that show it.
"""

from __future__ import annotations

import argparse
import sys
import time

from hypothesis import HealthCheck, given, seed, settings

from log_partitioner import native
from tests.property.test_lanes import CASES
from tests.property.test_lanes import test_lanes_deliver_the_same_bytes as compare

_EXAMPLES = 500  # of one seed


def main() -> int:
    """Run; gives the exit code: 2 if there is no fast lane."""
    parser = argparse.ArgumentParser(prog="python -m tests.property.fuzz_lanes", description=__doc__)
    parser.add_argument("minutes", type=float, help="of CPU")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 2**32, help="the first one; default: the time's")
    options = parser.parse_args()
    if not native.IS_INSTALLED:
        sys.stderr.write("fuzz: no fast lane is installed: make native\n")
        return 2
    rules = settings(max_examples=_EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    number = 0
    while time.process_time() < 60 * options.minutes:
        seed(options.seed + number)(rules(given(*CASES)(compare.hypothesis.inner_test)))()
        number += 1
        told = f"\rfuzz: {number * _EXAMPLES:,} logs, {time.process_time() / 60:.1f} minutes of CPU, no difference"
        sys.stderr.write(told)
    sys.stderr.write(f"; seeds {options.seed} to {options.seed + number - 1}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
