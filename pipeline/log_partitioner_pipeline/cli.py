"""The command line of the jobs: options, exit codes, the place of log lines; users and secrets stand in none (I11).

The output that a job was asked for may name users: results of audits and their findings, rows that `--show` prints,
objects that hold an erased user.
"""

from __future__ import annotations

import argparse
import logging
import sys

import structlog
from structlog.typing import EventDict, Processor

from log_partitioner import privacy
from log_partitioner.config.section import moment_of
from log_partitioner.errors import SettingsError
from log_partitioner.usage import argument_of, describe
from log_partitioner.version import product_version
from log_partitioner_pipeline.config import JobSettings, load_all
from log_partitioner_pipeline.errors import cause_of, said_of
from log_partitioner_pipeline.jobs import compare
from log_partitioner_pipeline.jobs.audit_options import add_audit_arguments, add_report_arguments
from log_partitioner_pipeline.progress import CLEAR_LINE
from log_partitioner_pipeline.signals import ended_by_signals

_CONSOLE = structlog.dev.ConsoleRenderer()


def main(arguments: list[str] | None = None) -> int:
    """Run one job; returns the exit code: 0 done, 1 findings (audit), 2 it could not be done or told.

    Raises:
        SystemExit: with 128 + signal, if SIGTERM or SIGINT has ended it.
    """
    options = _parser().parse_args(arguments)
    _configure_logs()
    try:
        with ended_by_signals(options.job):
            code: int = options.command(options)
    except SettingsError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except Exception as error:  # noqa: BLE001 - Python would write its text, in which input may stand
        trace = "" if cause_of(error) is not None else privacy.trace(error)
        sys.stderr.write(f"{options.job}: {said_of(error)}\n{trace}")
        return 2
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m log_partitioner_pipeline", description="What comes after the worker, on Spark."
    )
    parser.add_argument("--version", action="version", version=f"log-partitioner pipeline {product_version()}")
    jobs = parser.add_subparsers(dest="job", required=True, metavar="JOB")
    job = jobs.add_parser("materialize", help="bring the table up to date with the references topic")
    job.add_argument("--continuous", action="store_true", help="go on until stopped")
    job.add_argument("--rebuild", action="store_true", help="first make the table anew from all known references")
    job.add_argument("--show", action="store_true", help="print entries and users of the newest hours at the end")
    describe(job, _materialize)
    job = jobs.add_parser("user-activity", help="count entries and bytes per user and hour, per user and day")
    job.add_argument("--continuous", action="store_true", help="go on until stopped")
    describe(job, _user_activity)
    job = jobs.add_parser("compact", help="rewrite small files of hours that the audit has passed, expire snapshots")
    job.add_argument("--dry-run", action="store_true", help="say what would be done, and why the rest is left")
    describe(job, _compact)
    job = jobs.add_parser("erase", help="take a user out of tables and snapshots, list the objects that hold the user")
    job.add_argument("user", metavar="USER", help="the user, as the column `user` of the table has it")
    job.add_argument("--dry-run", action="store_true", help="say what would go, and which objects hold the user")
    describe(job, _erase)
    job = jobs.add_parser("acknowledge", help="record that objects or messages are lost for good: jobs pass over them")
    job.add_argument("reason", metavar="REASON", help="how they were lost, for those who read it later")
    job.add_argument(
        "--object", dest="objects", action="append", default=[], metavar="URL", help="a raw object, or key"
    )
    job.add_argument("--offsets", metavar="JSON", help='messages: {"topic": {"0": [first, next], ...}, ...}')
    describe(job, _acknowledge)
    job = jobs.add_parser("backfill", help="publish what no committed reference or dead letter holds")
    _add_backfill(job)
    describe(job, _backfill)
    job = jobs.add_parser("compare", help="two audits of one window: who lacks what?")
    compare.add_compare_arguments(job)
    describe(job, _compare)
    job = jobs.add_parser("audit", help="source against files, dead letters and table: is all there?")
    add_audit_arguments(job)
    describe(job, _audit)
    job = jobs.add_parser("report", help="results of audits as one HTML page")
    add_report_arguments(job)
    describe(job, _report)
    return parser


# The jobs; what takes a second to import, PySpark or matplotlib, is imported by those that need it.


def _materialize(options: argparse.Namespace) -> int:
    """Bring the Iceberg table up to date with the references topic.

    Settings are a worker's (LOGP_...), and its own (PIPELINE_..., docs/CONFIGURATION_PIPELINE.md).

    Example:
      python -m log_partitioner_pipeline materialize --show

    Exit codes:
      0   done
      2   it could not be done; the line on standard error says why

    More: docs/PIPELINE.md
    """
    settings = _settings()  # before Spark is imported: what is wrong is told at once
    from log_partitioner_pipeline.jobs import materialize, rebuild  # noqa: PLC0415

    if options.rebuild:
        rebuild.run(settings)
    materialize.run(settings, continuous=options.continuous, show=options.show)
    return 0


def _audit(options: argparse.Namespace) -> int:
    """Compare a window of the source with files, dead letters and table.

    Settings are a worker's (LOGP_...), and its own (PIPELINE_..., docs/CONFIGURATION_PIPELINE.md).

    Example:
      python -m log_partitioner_pipeline audit --table --last 4h --html audit.html

    Exit codes:
      0   clean
      1   findings
      2   could not tell, or settings or arguments are wrong

    More: docs/AUDIT.md
    """
    settings = _settings()  # before Spark is imported: what is wrong is told at once
    from log_partitioner_pipeline.jobs import audit  # noqa: PLC0415

    return audit.run(settings, options)


def _compare(options: argparse.Namespace) -> int:
    """Compare two audits of one window: who of both witnesses lacks what.

    It needs no Spark.

    Example:
      python -m log_partitioner_pipeline compare outputs.json csv.json

    Exit codes:
      0   both agree and are clean
      1   one of them names something
      2   one could not tell

    More: docs/AUDIT.md
    """
    return compare.run(options)


def _report(options: argparse.Namespace) -> int:
    """Write results of audits as one HTML page.

    It needs no Spark.

    Example:
      python -m log_partitioner_pipeline report --html audit.html result.json

    Exit codes:
      0   done
      2   it could not be done; the line on standard error says why

    More: docs/AUDIT.md
    """
    from log_partitioner_pipeline.jobs import report  # noqa: PLC0415

    return report.run(options)


def _backfill(options: argparse.Namespace) -> int:
    """Publish what no committed reference or dead letter holds of a range of the source.

    Settings are a worker's (LOGP_...), and its own (PIPELINE_..., docs/CONFIGURATION_PIPELINE.md).

    Example:
      python -m log_partitioner_pipeline backfill --from 2026-03-04T05:00Z --until 2026-03-04T06:00Z --dry-run

    Exit codes:
      0   done
      2   it could not be done; the line on standard error says why

    More: docs/PIPELINE.md
    """
    settings = _settings()  # before Spark is imported: what is wrong is told at once
    from log_partitioner_pipeline.jobs import backfill  # noqa: PLC0415

    backfill.run(settings, backfill.read_options(options))
    return 0


def _compact(options: argparse.Namespace) -> int:
    """Rewrite small files of hours that the audit has passed, and expire snapshots.

    Settings are a worker's (LOGP_...), and its own (PIPELINE_..., docs/CONFIGURATION_PIPELINE.md).

    Example:
      python -m log_partitioner_pipeline compact --dry-run

    Exit codes:
      0   done
      2   it could not be done; the line on standard error says why

    More: docs/PIPELINE.md
    """
    settings = _settings()  # before Spark is imported: what is wrong is told at once
    from log_partitioner_pipeline.jobs import compact  # noqa: PLC0415

    compact.run(settings, dry_run=options.dry_run)
    return 0


def _erase(options: argparse.Namespace) -> int:
    """Take a user out of the tables and their snapshots, by record; list the objects that still hold the user.

    Settings are a worker's (LOGP_...), and its own (PIPELINE_..., docs/CONFIGURATION_PIPELINE.md).

    Example:
      python -m log_partitioner_pipeline erase ann --dry-run

    Exit codes:
      0   done
      2   it could not be done; the line on standard error says why

    More: docs/PIPELINE.md
    """
    settings = _settings()  # before Spark is imported: what is wrong is told at once
    from log_partitioner_pipeline.jobs import erase  # noqa: PLC0415

    erase.run(settings, options.user, dry_run=options.dry_run)
    return 0


def _acknowledge(options: argparse.Namespace) -> int:
    """Record that raw objects, or messages that workers wrote, are lost for good; every job then passes over them.

    It refuses what can be read. Tables lack the entries of such an object until a backfill has published them anew.

    Example:
      python -m log_partitioner_pipeline acknowledge "bucket rule deleted it" --object s3://logs/user=ann/...

    Exit codes:
      0   done
      2   it could not be done; the line on standard error says why

    More: docs/PIPELINE.md
    """
    settings = _settings()  # before Spark is imported: what is wrong is told at once
    from log_partitioner_pipeline.jobs import acknowledge  # noqa: PLC0415

    acknowledge.run(settings, acknowledge.Losses(options.reason, options.objects, options.offsets))
    return 0


def _user_activity(options: argparse.Namespace) -> int:
    """Count entries and bytes per user and hour, per user and day.

    Settings are a worker's (LOGP_...), and its own (PIPELINE_..., docs/CONFIGURATION_PIPELINE.md).

    Example:
      python -m log_partitioner_pipeline user-activity

    Exit codes:
      0   done
      2   it could not be done; the line on standard error says why

    More: docs/PIPELINE.md
    """
    settings = _settings()  # before Spark is imported: what is wrong is told at once
    from log_partitioner_pipeline.jobs import user_activity  # noqa: PLC0415

    user_activity.run(settings, continuous=options.continuous)
    return 0


def _settings() -> JobSettings:
    settings = load_all()
    privacy.hide(settings.secrets)
    return settings


def _add_backfill(backfill: argparse.ArgumentParser) -> None:
    moment = argument_of(moment_of)
    backfill.add_argument(
        "--from", dest="begin", type=moment, metavar="TIME", help="records from this Kafka timestamp on"
    )
    backfill.add_argument(
        "--until", dest="end", type=moment, metavar="TIME", help="records before this Kafka timestamp"
    )
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
