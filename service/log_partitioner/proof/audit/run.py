"""`log-partitioner audit`: the command's options, its exit code, and the place of its report."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from log_partitioner.adapters.kafka.topics import KafkaTopics
from log_partitioner.adapters.schema_registry import schema_finder
from log_partitioner.config.section import moment_of, seconds_of
from log_partitioner.errors import CouldNotTellError, StoreRefusedError
from log_partitioner.proof.accounting import ExitCode
from log_partitioner.proof.audit.audit import EXAMPLES, Audit, Options
from log_partitioner.proof.audit.judge import THREADS
from log_partitioner.proof.audit.report import Report
from log_partitioner.proof.audit.store import S3Reader
from log_partitioner.proof.audit.whose import Groups, of_group
from log_partitioner.proof.audit.window import FlushWindow, window_of
from log_partitioner.usage import argument_of

if TYPE_CHECKING:
    import argparse

    from log_partitioner.config.settings import Settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument(
        "--require-caught-up",
        action="store_true",
        help="could not tell (exit code 2) unless the committed offsets have reached the end of the source",
    )
    parser.add_argument(
        "--examples",
        type=int,
        default=EXAMPLES,
        metavar="N",
        help="examples shown of each kind of finding (%(default)s)",
    )
    parser.add_argument(
        "--threads",
        type=int,
        default=THREADS,
        metavar="N",
        help="objects read at the same time (%(default)s)",
    )
    parser.add_argument(
        "--last",
        type=argument_of(seconds_of),
        metavar="DURATION",
        help="audit the flushes that ended in the last 90s, 15m, 1h or 1d",
    )
    for name, dest, text in (("--from", "begin", "at this time or later"), ("--until", "end", "before this time")):
        parser.add_argument(
            name,
            type=argument_of(moment_of),
            dest=dest,
            metavar="TIME",
            help=f"audit the flushes that ended {text}: ISO 8601, UTC",
        )
    parser.add_argument("--json", type=Path, metavar="FILE", dest="json_file", help="write the report as JSON, too")


def main(args: argparse.Namespace, settings: Settings) -> int:
    """Run the command, print the report, return the exit code: 0 clean, 1 findings, 2 could not tell."""
    try:
        window = window_of(args.begin, args.end, args.last, now_ms=time.time_ns() // 1_000_000)
        options = Options(args.require_caught_up, args.examples, args.threads, window)
        report = run_audit(settings, options)
    except (CouldNotTellError, StoreRefusedError) as error:
        sys.stderr.write(f"could not tell: {error}\n")
        return int(ExitCode.COULD_NOT_TELL)
    if args.json_file is not None:
        args.json_file.write_text(report.to_json(), encoding="utf-8")
    sys.stdout.write(report.to_text())
    return int(report.exit_code)


def run_audit(settings: Settings, options: Options) -> Report:
    """Audit the output of workers with these settings.

    Blocks for as long as it takes to read everything.

    Raises:
        CouldNotTellError: Kafka or S3 do not answer, or several unrelated groups may be meant.
        StoreRefusedError: credentials of S3 are incomplete, or whoever has them does not answer.
    """
    groups = Groups()
    with KafkaTopics.of(settings.kafka) as topics:
        if options.window.from_ms is not None:
            since = FlushWindow(options.window.padded(2).from_ms)
            ends, _ = topics.settled(topics.topic_partitions(settings.kafka.flushes_topic))
            groups.begin_at({tp: first for tp, (first, _) in since.narrow(topics, ends).items()})
        groups.read_on(topics, settings.kafka.flushes_topic)
    lineage = groups.lineage(settings.kafka)
    settings = of_group(settings, lineage.group_id)
    with KafkaTopics.of(settings.kafka) as topics:
        s3, find_schema = S3Reader(settings.s3, threads=options.threads), schema_finder(settings)
        return Audit(settings, options, topics, s3.get, lineage, find_schema=find_schema).run()
