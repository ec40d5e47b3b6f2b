"""`log-partitioner verify-logs`: the command's options, its exit code, and the order of its work."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from datetime import UTC, datetime
from math import inf
from typing import TYPE_CHECKING

from log_partitioner.privacy import describe, veiled
from log_partitioner.proof.accounting import ExitCode
from log_partitioner.proof.verify.account import as_json, as_text, exit_code, gather
from log_partitioner.proof.verify.history import History, Judgement
from log_partitioner.proof.verify.lines import STANDARD_INPUT, UNREADABLE, LogFiles
from log_partitioner.proof.verify.rules import TimeWindow

if TYPE_CHECKING:
    import argparse

CLOCKS_S = 600.0  # how far clocks of pods are apart, at most


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument(
        "files", nargs="*", metavar="FILE", help="logs of all workers, in any order; - is standard input, as is none"
    )
    parser.add_argument("--since", type=_time, default=-inf, metavar="TIME", help="ISO; what was before is not known")
    parser.add_argument("--until", type=_time, default=inf, metavar="TIME", help="ISO; what comes later is not known")
    parser.add_argument(
        "--clocks",
        type=float,
        default=CLOCKS_S,
        metavar="SECONDS",
        help="how far clocks are apart: so near to --since and --until is not judged what needs others (%(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="write JSON instead of text")


def main(args: argparse.Namespace) -> int:
    """Run the command, print the account, return the exit code: 0 pass, 1 violation, 2 could not tell."""
    window = TimeWindow(args.since, args.until, args.clocks * 1000)
    try:
        with ExitStack() as cleanup:
            files = LogFiles(args.files or [STANDARD_INPUT], sys.stdin.buffer, cleanup)
            judgement = judge(files, window)
            counts = {f"lines {name}": number for name, number in sorted(files.counts.items()) if number}
            evidence = gather(judgement.violations[0], files.read(window)) if judgement.violations else []
    except OSError as error:
        sys.stderr.write(f"could not tell: {error.filename or 'standard input'}: {describe(error)}\n")
        return int(ExitCode.COULD_NOT_TELL)
    sys.stdout.write(veiled((as_json if args.json else as_text)(judgement, evidence, counts)))
    return int(exit_code(judgement))


def judge(files: LogFiles, window: TimeWindow) -> Judgement:
    """Read all lines once, and check them against the rules."""
    history = History(window)
    for line in files.read(window):
        history.add(line)
    return history.judge(unreadable=files.counts[UNREADABLE])


def _time(text: str) -> float:
    """Return milliseconds; a time without zone is UTC."""
    at = datetime.fromisoformat(text)
    return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp() * 1000
