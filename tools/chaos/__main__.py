"""`python -m tools.chaos run|matrix|endurance`: faults on three brokers, a store and workers; then the judgement.

Exit code 0: 0 lost, 0 duplicated, 0 torn; 1: something is wrong, and data and logs are kept; 5: could not run.
"""

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from types import FrameType
from typing import get_args

from tools.chaos.bed import make_bed, make_ground
from tools.chaos.endurance import play_piece
from tools.chaos.faults import plan_chaos
from tools.chaos.figures import Figures, as_text, judged
from tools.chaos.matrix import RECORDS, chosen, done_cells, play_cell
from tools.chaos.run import Flow, Run
from tools.demo.options import Protocol
from tools.demo.writer import ProduceError
from tools.local.errors import StackError

_HOME = Path(__file__).parents[2] / ".local"
_RECORDS = Path(__file__).parents[2] / "docs" / "evidence"
_FIRST_FAULT_S = 5.0
_FOUND, _NOT_RUN = 1, 5


def main(arguments: list[str] | None = None) -> int:
    """Run the command line."""
    options = _parse(arguments)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        return {"run": _chaos, "matrix": _matrix, "endurance": _endurance}[options.what](options)
    except (StackError, ProduceError, ValueError) as error:
        print("\n".join([f"chaos: {error}", *getattr(error, "__notes__", ())]), file=sys.stderr)
        return _NOT_RUN
    except KeyboardInterrupt:
        print("chaos: interrupted, everything is stopped", file=sys.stderr)
        return 128 + signal.SIGINT


def _chaos(options: argparse.Namespace) -> int:
    seconds = 60.0 * options.minutes
    directory = _directory(options.home)
    with make_bed(directory, home=options.home) as bed:
        ground = make_ground(bed, "chaos", protocol=options.protocol, settings=_settings(options))
        flow = Flow(entries_per_s=options.rate, seconds=seconds, seed=options.seed)
        run = Run(bed, ground, flow, tell=_tell)
        faults = plan_chaos(seed=options.seed, begin_s=_FIRST_FAULT_S, until_s=seconds, every_s=options.every)
        figures = judged(
            ground, run.play(faults), tell=_tell, kind="chaos", protocol=options.protocol, seed=options.seed
        )
    return _conclude(figures, options, directory)


def _matrix(options: argparse.Namespace) -> int:
    settings = {"LOGP_FAST_LANE": "off"} if options.python_lane else {}
    record = options.record or _RECORDS / ("matrix-python.jsonl" if options.python_lane else "matrix.jsonl")
    done = {} if options.again else done_cells(record)
    cells = [cell for cell in chosen(options.cell) if cell.name not in done]
    _tell(f"{len(cells)} cells to play; what was played is in {record}")
    wrong = 0
    directory = _directory(options.home)
    with make_bed(directory, home=options.home) as bed:
        for number, cell in enumerate(cells, 1):
            _tell(f"cell {number} of {len(cells)}: {cell.name}")
            figures = play_cell(bed, cell, number=number, records=options.records, tell=_tell, settings=settings)
            _write(figures, record)
            print(as_text(figures), flush=True)
            wrong += bool(figures["violations"])
    if not wrong:
        shutil.rmtree(directory, ignore_errors=True)
    _tell(f"{len(cells) - wrong} of {len(cells)} cells are clean")
    return _FOUND if wrong else 0


def _endurance(options: argparse.Namespace) -> int:
    directory = options.home / "endurance"
    with make_bed(directory, home=options.home) as bed:
        figures = play_piece(
            bed,
            seconds=3600.0 * options.hours,
            protocol=options.protocol,
            seed=options.seed or int.from_bytes(os.urandom(3)),
            entries_per_s=options.rate,
            tell=_tell,
        )
    return _conclude(figures, options, None)


def _conclude(figures: Figures, options: argparse.Namespace, directory: Path | None) -> int:
    if options.record:
        _write(figures, options.record)
    print(as_text(figures), flush=True)
    if figures["violations"]:
        print(f"Data and logs are kept in {directory or options.home / 'endurance'}.", file=sys.stderr)
        return _FOUND
    if directory is not None:
        shutil.rmtree(directory, ignore_errors=True)
    return 0


def _directory(home: Path) -> Path:
    place = home / "chaos"
    place.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix="run-", dir=place))


def _settings(options: argparse.Namespace) -> dict[str, str]:
    return dict(pair.split("=", 1) for pair in options.settings)


def _write(figures: Figures, record: Path) -> None:
    record.parent.mkdir(parents=True, exist_ok=True)
    with record.open("a", encoding="utf-8") as file:
        file.write(json.dumps(figures) + "\n")


def _tell(line: str) -> None:
    print(line, flush=True)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tools.chaos", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--home", type=Path, default=_HOME, help="jars and data; default: .local of this repository")
    parser.add_argument("--record", type=Path, metavar="FILE", help="append the figures as a line of JSON there")
    what = parser.add_subparsers(dest="what", required=True)
    run = what.add_parser("run", help="random faults of every kind")
    run.add_argument("--minutes", type=float, default=60.0, help="default: %(default)s")
    run.add_argument("--every", type=float, default=15.0, help="seconds from fault to fault; default: %(default)s")
    run.add_argument("--rate", type=float, default=400.0, help="entries a second; default: %(default)s")
    matrix = what.add_parser("matrix", help="bounces of workers or brokers; cells that are recorded are left out")
    matrix.add_argument("cell", nargs="*", help="names of cells or parts of them; default: all")
    matrix.add_argument("--records", type=int, default=RECORDS, help="of a cell, at least; default: %(default)s")
    matrix.add_argument("--python-lane", action="store_true", help="workers without the fast lane; a record of its own")
    matrix.add_argument("--again", action="store_true", help="also what is recorded")
    endurance = what.add_parser("endurance", help="hours with a fault each minute; goes on where it was interrupted")
    endurance.add_argument("--hours", type=float, default=6.0, help="of this piece; default: %(default)s")
    endurance.add_argument("--rate", type=float, help="entries a second")
    for one in (run, endurance):
        one.add_argument("--protocol", choices=get_args(Protocol), default="cooperative-sticky", help="%(default)s")
    run.add_argument("--seed", type=int, default=1, help="of records and faults; default: %(default)s")
    endurance.add_argument("--seed", type=int, help="default: another one each time")
    run.add_argument("--settings", nargs="*", default=[], metavar="NAME=VALUE", help="of the workers, beside ours")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
