"""The options of audit and report, and the window of an audit; imports nothing heavy, for a quick command line."""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path

from log_partitioner.config.section import moment_of, seconds_of
from log_partitioner.proof.audit import window
from log_partitioner.usage import argument_of
from log_partitioner_pipeline.audit.result import Window, Witness
from log_partitioner_pipeline.errors import PipelineError


def add_audit_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    moment = argument_of(moment_of)
    parser.add_argument(
        "--from", dest="begin", type=moment, metavar="TIME", help="flushes that ended from here on (ISO-8601)"
    )
    parser.add_argument(
        "--until", dest="end", type=moment, metavar="TIME", help="flushes that ended before this (ISO-8601)"
    )
    parser.add_argument(
        "--last",
        type=_seconds,
        metavar="DURATION",
        help="a window so long, up to now; of an archive, to --padding before",
    )
    parser.add_argument(
        "--padding",
        type=_seconds,
        default=600.0,
        metavar="DURATION",
        help="of an archive, whose windows are of record times: how far these may stray; by default 10m",
    )
    parser.add_argument(
        "--against",
        choices=[one.value for one in Witness],
        default=Witness.OUTPUTS.value,
        help="what to compare the source with: what this product has made of it (%(default)s), or the archived CSV "
        "of an older system, by unique id",
    )
    parser.add_argument(
        "--csv",
        metavar="LOCATION",
        help="where that is: s3://bucket/prefix (by the worker's S3 settings) or a directory that executors see, too",
    )
    parser.add_argument("--table", action="store_true", help="compare with the table, too")
    parser.add_argument(
        "--list-objects",
        action=argparse.BooleanOptionalAction,
        help="look for objects nobody names; by default without a window",
    )
    parser.add_argument(
        "--verdicts",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="write the verdict of each hour to its table",
    )
    parser.add_argument(
        "--require-caught-up", action="store_true", help="could not tell unless everything in the source is committed"
    )
    parser.add_argument("--examples", type=int, default=10, metavar="N", help="examples of each kind (%(default)s)")
    parser.add_argument("--json", dest="json_file", type=Path, metavar="FILE", help="write the result as JSON")
    parser.add_argument("--html", dest="html_file", type=Path, metavar="FILE", help="write a page for people")
    _add_logs(parser)
    parser.add_argument(
        "--every", type=_seconds, metavar="DURATION", help="go on: an audit so often, such as 1h; by default one alone"
    )


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
    parser.add_argument(
        "--html", dest="html_file", type=Path, required=True, metavar="FILE", help="write a page for people"
    )
    _add_logs(parser)


def archive_of(given: argparse.Namespace) -> str | None:
    """Return the archive to compare with, None if the witness is this product itself.

    Raises:
        PipelineError: the options contradict each other, or do not name the archive.
    """
    if given.against != Witness.CSV:
        if given.csv is not None:
            raise PipelineError("--csv names an archive to compare with: say --against csv, too")
        return None
    others = {
        "--table": given.table,
        "--list-objects": given.list_objects,
        "--require-caught-up": given.require_caught_up,
    }
    wrong = [name for name, value in others.items() if value]
    if wrong:
        raise PipelineError(f"{wrong[0]} is about this product's own work, not about an archive")
    if not given.csv:
        raise PipelineError("where is the archive? say --csv LOCATION")
    return str(given.csv)


def window_of(given: argparse.Namespace) -> Window:
    """Return the window that is asked for, as of now; that of records ends before now by the padding.

    Raises:
        CouldNotTellError: the options contradict each other.
    """
    is_of_records = given.against == Witness.CSV
    padding_s = given.padding if is_of_records else 0.0
    now_ms = time.time_ns() // 1_000_000 - round(padding_s * 1000)
    from_ms, until_ms = window.window_of(given.begin, given.end, given.last, now_ms=now_ms)
    if given.last is not None and is_of_records:
        until_ms = now_ms
    return Window(from_ms=from_ms, until_ms=until_ms, padding_s=padding_s)


def _add_logs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--logs",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="a worker's log (JSON lines), for the page: what happened around findings; once for each log",
    )


def _seconds(text: str) -> float:
    try:
        seconds = seconds_of(text)
    except ValueError:
        seconds = None
    if not isinstance(seconds, float) or not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration such as 90s, 15m, 1h or 1d")
    return seconds
