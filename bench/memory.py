"""`python -m bench.memory`: what a PartitionKey costs in memory: peak RSS of one worker, for equal numbers of entries.

Each workload has the same entries, of ten thousand, a hundred thousand and a million PartitionKeys (users in turn, two
hours). The growth per PartitionKey is given for all of them, and for those of the largest flush, which are in memory at
once. With default settings; `--settings LOGP_FLUSH__INTERVAL_S=600` brings more of them into one flush.
"""

import argparse
import json
import statistics
import sys

from bench.lab import add_options, open_lab, variables_of
from bench.worker import RSS, Figures, fill, measure, print_table
from bench.workloads import Workload
from tools.local.errors import StackError

_HOURS = 2
_MIB = 2**20


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return the exit code."""
    options = _parse(arguments)
    rounds: dict[str, list[Figures]] = {}
    try:
        variables = variables_of(options.settings, options.layout)
        workloads = [
            Workload(name=f"keys-{count}", records=options.records, users=count // _HOURS, spread="even")
            for count in map(int, options.keys.split(","))
        ]
        with open_lab(options.home) as lab:
            for workload in workloads:
                fill(lab, workload)
            for number in range(1, options.rounds + 1):
                for workload in workloads:
                    figures = measure(lab, workload, variables, name=f"{workload.name}-{number}")
                    rounds.setdefault(workload.name, []).append(figures)
    except StackError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    finally:
        if options.json:
            options.json.write_text(json.dumps(rounds, indent=1) + "\n", encoding="utf-8")
    print_table(rounds)
    least, *others = rounds.values()
    for name, other in zip(list(rounds)[1:], others, strict=True):
        print(
            f"{name}: {_growth(least, other, 'PartitionKeys'):,.0f} bytes per PartitionKey more, "
            f"{_growth(least, other, 'references of the largest flush'):,.0f} per one more in the largest flush"
        )
    return 0


def _growth(least: list[Figures], other: list[Figures], count: str) -> float:
    """Return the bytes by which the peak grows for each one more of the counted things."""
    more = _median(other, count) - _median(least, count)
    return (_median(other, RSS) - _median(least, RSS)) * _MIB / more if more else 0.0


def _median(rounds: list[Figures], name: str) -> float:
    return statistics.median(figures[name] for figures in rounds)


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.memory", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--keys", default="10000,100000,1000000", help="numbers of PartitionKeys; default: %(default)s")
    add("--records", type=int, default=1_000_000, help="of each; default: %(default)s")
    add("--rounds", type=int, default=1, help="default: %(default)s")
    add("--layout", choices=("auto", "pack", "file"), help="default: the product's")
    add_options(parser)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
