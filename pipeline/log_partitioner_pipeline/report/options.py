"""The options of the command; imports nothing heavy, the command line reads it."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_report_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command that makes a page of results that are there."""
    parser.add_argument(
        "results",
        type=Path,
        nargs="+",
        metavar="RESULT.json",
        help="results of audits, as --json writes them; the newest is reported, the others stand beside it",
    )
    parser.add_argument("--history", type=Path, metavar="DIR", help="directory of earlier results, too")
    add_page_arguments(parser, is_required=True)


def add_page_arguments(parser: argparse.ArgumentParser, *, is_required: bool) -> None:
    """Declare the options that an audit has as well."""
    parser.add_argument(
        "--html", dest="html_file", type=Path, required=is_required, metavar="FILE", help="write a page for people"
    )
    parser.add_argument(
        "--logs",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="a worker's log (JSON lines), for the page: what happened beside findings; once for each log",
    )
