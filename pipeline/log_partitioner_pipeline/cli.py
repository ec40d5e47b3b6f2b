"""The command line of the jobs: options, exit codes, the place of log lines; users and secrets stand in none (I11).

The output that a job was asked for may name users: results of audits and their findings, rows that `--show` prints.
"""

from __future__ import annotations

import argparse
import logging
import re
import sys

import structlog
from structlog.typing import EventDict, Processor

from log_partitioner import privacy
from log_partitioner.errors import SettingsError
from log_partitioner.usage import Usage, add_usage
from log_partitioner.version import product_version
from log_partitioner_pipeline.config import load_all
from log_partitioner_pipeline.errors import UnforeseenError, cause_of
from log_partitioner_pipeline.jobs import compare
from log_partitioner_pipeline.jobs.audit_options import add_audit_arguments
from log_partitioner_pipeline.progress import CLEAR_LINE
from log_partitioner_pipeline.report.options import add_report_arguments

_CODES = {"0": "done", "2": "it could not be done; the line on standard error says why"}
_JUDGES = {"0": "clean", "1": "findings", "2": "could not tell, or settings or arguments are wrong"}
_SETTINGS = "Settings are a worker's (LOGP_...), and its own (PIPELINE_..., docs/CONFIGURATION_PIPELINE.md)."
JOBS = {
    "materialize": Usage(
        f"Bring the Iceberg table up to date with the references topic. {_SETTINGS}",
        "python -m log_partitioner_pipeline materialize --show",
        _CODES,
        "DESIGN.md, section 8",
    ),
    "audit": Usage(
        f"Compare a window of the source with files, dead letters and table. {_SETTINGS}",
        "python -m log_partitioner_pipeline audit --table --last 4h --html audit.html",
        _JUDGES,
        "AUDIT.md",
    ),
    "compare": Usage(
        "Compare two audits of one window: who of both witnesses lacks what. Needs no Spark.",
        "python -m log_partitioner_pipeline compare outputs.json csv.json",
        {"0": "both agree and are clean", "1": "one of them names something", "2": "one could not tell"},
        "AUDIT.md",
    ),
    "report": Usage(
        "Write results of audits as one HTML page. Needs no Spark.",
        "python -m log_partitioner_pipeline report --html audit.html result.json",
        _CODES,
        "AUDIT.md",
    ),
    "backfill": Usage(
        f"Publish what no committed reference or dead letter holds of a range of the source. {_SETTINGS}",
        "python -m log_partitioner_pipeline backfill --from 2026-03-04T05:00Z --until 2026-03-04T06:00Z --dry-run",
        _CODES,
        "DESIGN.md, section 8",
    ),
    "compact": Usage(
        f"Rewrite small files of hours that the audit has passed, and expire snapshots. {_SETTINGS}",
        "python -m log_partitioner_pipeline compact",
        _CODES,
        "DESIGN.md, section 8",
    ),
    "user-activity": Usage(
        f"Count entries and bytes per user and hour, per user and day. {_SETTINGS}",
        "python -m log_partitioner_pipeline user-activity",
        _CODES,
        "DESIGN.md, section 8",
    ),
}
_CONSOLE = structlog.dev.ConsoleRenderer()
_JAVA_CLASS = re.compile(r"\b(?:[a-z]\w*\.)+[A-Z]\w*(?:Exception|Error)\b")


def main(arguments: list[str] | None = None) -> int:
    """Run one job; returns the exit code: 0 done, 1 findings (audit), 2 it could not be done or told."""
    options = _parser().parse_args(arguments)
    _configure_logs()
    try:
        if options.job == "compare":
            return compare.run(options)
        if options.job == "report":
            from log_partitioner_pipeline.jobs import report  # noqa: PLC0415 - matplotlib takes a second to import

            return report.run(options)
        settings = load_all()
        privacy.hide(settings.secrets)
        from log_partitioner_pipeline.jobs import backfill, compact, materialize, user_activity  # noqa: PLC0415 - PySpark takes a second to import

        if options.job == "backfill":
            backfill.run(settings, backfill.read_options(options))
            return 0
        if options.job == "audit":
            from log_partitioner_pipeline.jobs import audit  # noqa: PLC0415 - as above

            return audit.run(settings, options)
        if options.job == "compact":
            compact.run(settings)
        elif options.job == "materialize":
            materialize.run(settings, continuous=options.continuous, show=options.show)
        else:
            user_activity.run(settings, continuous=options.continuous)
    except SettingsError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except Exception as error:  # noqa: BLE001 - Python would write its text, in which input may stand
        sys.stderr.write(f"{options.job}: {_said_of(error)}\n")
        return 2
    return 0


def _said_of(error: Exception) -> str:
    """Return the printable part of an error: its text if it is ours, else its classes and frames."""
    cause = None if isinstance(error, UnforeseenError) else cause_of(error)
    if cause is not None:
        return privacy.veiled(cause)
    java = ", ".join(dict.fromkeys(_JAVA_CLASS.findall(str(error))))
    return f"{privacy.describe(error)}{java and f'; in it: {java}'}\n{privacy.trace(error).rstrip()}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m log_partitioner_pipeline", description="What comes after the worker, on Spark."
    )
    parser.add_argument("--version", action="version", version=f"log-partitioner pipeline {product_version()}")
    jobs = parser.add_subparsers(dest="job", required=True, metavar="JOB")
    materialize = jobs.add_parser("materialize", help="bring the table up to date with the references topic")
    materialize.add_argument("--continuous", action="store_true", help="go on until stopped")
    materialize.add_argument(
        "--show", action="store_true", help="print entries and users of the newest hours at the end"
    )
    activity = jobs.add_parser("user-activity", help="count entries and bytes per user and hour, per user and day")
    activity.add_argument("--continuous", action="store_true", help="go on until stopped")
    jobs.add_parser("compact", help="rewrite small files of hours that the audit has passed, expire snapshots")
    _add_backfill(jobs.add_parser("backfill", help="publish what no committed reference or dead letter holds"))
    compare.add_compare_arguments(jobs.add_parser("compare", help="two audits of one window: who lacks what?"))
    add_audit_arguments(jobs.add_parser("audit", help="source against files, dead letters and table: is all there?"))
    add_report_arguments(jobs.add_parser("report", help="results of audits as one HTML page"))
    add_usage(jobs.choices, JOBS)
    return parser


def _add_backfill(backfill: argparse.ArgumentParser) -> None:
    backfill.add_argument("--from", dest="from_time", metavar="TIME", help="records from this Kafka timestamp on")
    backfill.add_argument("--until", dest="until_time", metavar="TIME", help="records before this Kafka timestamp")
    backfill.add_argument("--offsets", metavar="JSON", help='instead: {"topic": {"0": [first, next], ...}, ...}')
    backfill.add_argument("--run-id", metavar="ID", help="name of the run; a run of this name goes on where it was")
    backfill.add_argument("--dry-run", action="store_true", help="say what would be published")


def _configure_logs() -> None:
    json_lines: Processor = structlog.processors.JSONRenderer(sort_keys=True)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            privacy.say_trace,
            _veil(_render_on_terminal if sys.stderr.isatty() else json_lines),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def _render_on_terminal(logger: object, name: str, event: EventDict) -> str:
    """Write a line in place of that of the progress, which appears again below."""
    return f"{CLEAR_LINE}{_CONSOLE(logger, name, event)}"


def _veil(render: Processor) -> Processor:
    """Return a renderer whose lines show neither users nor secrets."""
    return lambda logger, name, event: privacy.veiled(str(render(logger, name, event)))
