"""Two results of audits against different witnesses, compared as a command; needs neither Spark nor settings."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from log_partitioner_pipeline.archive.compare import compare, encode, to_text
from log_partitioner_pipeline.audit.history import read_result


def add_compare_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument("first", type=Path, metavar="A.json", help="result of an audit, as --json writes it")
    parser.add_argument("second", type=Path, metavar="B.json", help="that of another audit of the same source")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print the entries that both name, and those of only one; returns 0 if clean, 1 if any is named, 2 for doubts.

    Raises:
        PipelineError: a file is no result of an audit, or they cannot be compared: the message says what differs.
    """
    comparison = compare(read_result(arguments.first), read_result(arguments.second))
    sys.stdout.write(encode(comparison).decode() if arguments.json else to_text(comparison))
    sys.stdout.flush()
    return int(comparison.exit_code)
