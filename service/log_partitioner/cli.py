"""The console command: run | check-config | try | config-schema | audit | verify-logs | offsets | OPERATIONS.

An error is one line that says what to do.

Exit codes: 0 done; 1 the worker failed, the audit found something, logs break a rule, offsets were not set, most of
a sample is dead, or there is not what was asked for; 2 settings or arguments are wrong, or nobody could tell.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from importlib.util import find_spec
from runpy import run_module

from log_partitioner import privacy, trial
from log_partitioner.adapters import logs
from log_partitioner.adapters.kafka.options import find_refused
from log_partitioner.batch.fast_lane import why_no_lane
from log_partitioner.config import checks
from log_partitioner.config.settings import Settings
from log_partitioner.errors import CouldNotTellError, LogPartitionerError, SettingsError, StoreRefusedError
from log_partitioner.input.formats import find_format_problems
from log_partitioner.offsets import command as offsets
from log_partitioner.operations import cat, dead_letters, find, orphans, status, topics
from log_partitioner.outside import connect
from log_partitioner.proof.audit import run as audit
from log_partitioner.proof.verify import command as verify_logs
from log_partitioner.usage import describe
from log_partitioner.version import product_version

FAILED, REFUSED = 1, 2
PIPELINE = "log_partitioner_pipeline"
OPERATIONS = (
    ("status", status, "show workers, lag and last flushes"),
    ("find", find, "find an entry: its reference, object and bytes, or its dead letter"),
    ("topics", topics, "create the topics that workers write"),
    ("dead-letters", dead_letters, "list dead letters, show some, or put them back into their source topics"),
    ("orphans", orphans, "list objects that no reference names, and delete them"),
    ("cat", cat, "print the rows of an object, or of a reference, as JSON"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    options = _parser().parse_args(arguments)
    try:
        code: int = options.command(options)
    except SettingsError as error:
        sys.stderr.write("".join(f"settings: {problem}\n" for problem in error.problems))
        return REFUSED
    except LogPartitionerError as error:
        sys.stderr.write(privacy.describe(error) + "\n")
        return FAILED
    except BrokenPipeError:  # who was reading, such as `head`, has enough
        return FAILED
    except Exception as error:  # noqa: BLE001 - Python would write its text, in which input may stand
        sys.stderr.write(privacy.trace(error))
        return FAILED
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="log-partitioner",
        description="Kafka log records -> Avro files on S3.",
        epilog="`log-partitioner COMMAND --help` has an example and the exit codes. README.md is where to begin.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {product_version()}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    command = commands.add_parser("run", help="run a worker until SIGTERM")
    describe(command, _run)
    command = commands.add_parser("check-config", help="check all settings")
    command.add_argument("--show", action="store_true", help="print the effective settings as JSON, without secrets")
    command.add_argument(
        "--connect", action="store_true", help="check that store and brokers have and allow what a worker needs"
    )
    describe(command, _check_config)
    command = commands.add_parser("try", help="show what the settings make of a sample; nothing is written")
    trial.add_arguments(command)
    describe(command, _try)
    command = commands.add_parser("config-schema", help="print every setting with default and meaning, as JSON schema")
    describe(command, _config_schema)
    command = commands.add_parser("audit", help="compare the source with what was committed, entry by entry")
    audit.add_arguments(command)
    describe(command, _audit)
    command = commands.add_parser("verify-logs", help="prove from all workers' logs who owned and committed what")
    verify_logs.add_arguments(command)
    describe(command, _verify_logs)
    command = commands.add_parser("offsets", help="show committed offsets, and set them if a worker refuses to start")
    offsets.add_arguments(command)
    describe(command, _offsets)
    for name, operation, text in OPERATIONS:
        command = commands.add_parser(name, help=text)
        operation.add_arguments(command)
        describe(command, _with_settings(name, operation.main))
    command = commands.add_parser("pipeline", help="run a job of the pipeline on Spark, such as materialize")
    command.add_argument("arguments", nargs=argparse.REMAINDER, metavar="JOB ...", help="the job and its options")
    describe(command, _pipeline)
    return parser


def _with_settings(
    name: str, command: Callable[[argparse.Namespace, Settings], int]
) -> Callable[[argparse.Namespace], int]:
    """Return a command that loads its settings, and logs to standard error."""

    @wraps(command)
    def run(options: argparse.Namespace) -> int:
        settings = _load()
        logs.configure(level="warning", style=settings.log.format, worker=name, boot="", stream=sys.stderr)
        try:
            return command(options, settings)
        except (CouldNotTellError, StoreRefusedError) as error:
            sys.stderr.write(f"could not tell: {privacy.veiled(str(error))}\n")
            return REFUSED

    return run


def _run(_options: argparse.Namespace) -> int:
    """Run one worker until SIGTERM or SIGINT; then it flushes and leaves the group.

    A second signal abandons the flush.
    Settings come from the environment (LOGP_...), LOGP_CONFIG_FILE and LOGP_SECRETS_DIR.

    Example:
      log-partitioner check-config && log-partitioner run

    Exit codes:
      0   it was asked to stop, and left
      1   it could not go on; the last log line says why
      2   settings or arguments are wrong; nothing was started

    More: docs/RUNBOOK.md
    """
    from log_partitioner.runtime.app import run  # noqa: PLC0415 - a second of imports that no other command needs

    run(_load(find_refused))
    return 0


def _audit(options: argparse.Namespace) -> int:
    """Compare every record that the source still holds with everything that was committed of it.

    With --last, --from or --until: the records of the flushes that ended then. Settings come from the environment
    (LOGP_...), LOGP_CONFIG_FILE and LOGP_SECRETS_DIR.

    Example:
      log-partitioner audit --json report.json
      log-partitioner audit --last 1h

    Exit codes:
      0   clean
      1   findings
      2   could not tell, or settings or arguments are wrong

    More: docs/AUDIT.md
    """
    settings = _load()
    try:
        return audit.main(options, settings)
    except SettingsError:
        raise
    except Exception as error:  # noqa: BLE001 - an audit that crashed could not tell (2), and found nothing (1)
        sys.stderr.write(privacy.trace(error))
        return REFUSED


def _verify_logs(options: argparse.Namespace) -> int:
    """Read the JSON logs of all workers as one history and hold it against nine rules.

    It needs neither Kafka nor S3.

    Example:
      log-partitioner verify-logs worker-*.log --json

    Exit codes:
      0   no rule is broken
      1   one is
      2   lines are missing, or a file cannot be read

    More: docs/AUDIT.md
    """
    try:
        return verify_logs.main(options)
    except Exception as error:  # noqa: BLE001 - it crashed, so it could not tell (2), and found nothing (1)
        sys.stderr.write(privacy.trace(error))
        return REFUSED


def _offsets(options: argparse.Namespace) -> int:
    """Show or set committed offsets, skip what cannot be read, or go on as another group.

    Settings come from the environment (LOGP_...), LOGP_CONFIG_FILE and LOGP_SECRETS_DIR.

    Example:
      log-partitioner offsets set --topic app-logs --to flushed --dry-run

    Exit codes:
      0   what was asked for holds
      1   it does not: refused, not confirmed, not known, or left
      2   settings or arguments are wrong; nothing was started

    More: docs/RUNBOOK.md
    """
    return offsets.main(options, _load())


def _check_config(options: argparse.Namespace) -> int:
    """Check names and values of all settings, and whether they fit together.

    It connects to nothing without --connect.
    Settings come from the environment (LOGP_...), LOGP_CONFIG_FILE and LOGP_SECRETS_DIR.

    Example:
      log-partitioner check-config --connect

    Exit codes:
      0   the settings are good, nothing is missing
      1   with --connect: something is missing
      2   settings or arguments are wrong; nothing was started

    More: docs/CONFIGURATION.md
    """
    settings = _load(find_refused)
    if options.connect:
        logs.configure(level="error", style="auto", worker=settings.worker, boot="check", stream=sys.stderr)
        return 0 if connect(settings) else FAILED
    if options.show:
        sys.stdout.write(settings.model_dump_json(indent=2) + "\n")
        return 0
    kafka, s3, lane = settings.kafka, settings.s3, why_no_lane(settings)
    sys.stdout.write(
        f"The settings are good: group {kafka.group_id} reads {', '.join(kafka.source_topics)} and writes "
        f"s3://{s3.bucket}/{s3.prefix}; fast lane: {lane or 'on'}.\n"
        + "".join(f"note: {note}\n" for note in checks.find_notes(settings))
    )
    return 0


def _try(options: argparse.Namespace) -> int:
    """Show how a worker would partition a sample.

    It shows user, time, id, PartitionKey and schema of its entries, and why some are dead, and prints
    values of the sample. Nothing is written, no group is joined. A line of a file is a record of now.
    Settings come from the environment (LOGP_...), LOGP_CONFIG_FILE and LOGP_SECRETS_DIR.
    Only --topic needs one: the address of the brokers.

    Example:
      LOGP_USER__PATHS=user.id log-partitioner try sample.ndjson

    Exit codes:
      0   most entries are in files
      1   most are dead letters
      2   no sample, or wrong settings or arguments

    More: docs/CONFIGURATION.md
    """
    return trial.main(options, _load(kind=trial.TrialSettings))


def _pipeline(options: argparse.Namespace) -> int:
    """Run a job of the pipeline: materialize, audit, backfill, compact, erase, ...

    The same as `python -m log_partitioner_pipeline JOB`. It needs the optional group pipeline.

    Example:
      log-partitioner pipeline materialize --show

    Exit codes:
      those of the job: `log-partitioner pipeline JOB --help`

    More: docs/PIPELINE.md
    """
    if find_spec("pyspark") is None or find_spec(PIPELINE) is None:
        raise SettingsError(["the pipeline is not installed: pip install 'log-partitioner[pipeline]'"])
    sys.argv[1:] = options.arguments or ["--help"]
    run_module(PIPELINE, run_name="__main__", alter_sys=True)  # by its name: the worker imports nothing of it
    return 0


def _load(*more: Callable[[Settings], list[str]], kind: type[Settings] = Settings) -> Settings:
    """Load settings that pass all checks, `more` among them; their secrets are written nowhere from now on."""
    settings = checks.load(find_format_problems, *more, kind=kind)
    privacy.hide(settings.secrets)
    return settings


def _config_schema(_options: argparse.Namespace) -> int:
    """Print every setting with type, default and meaning, as JSON schema.

    Example:
      log-partitioner config-schema

    Exit codes:
      0   printed

    More: docs/CONFIGURATION.md
    """
    sys.stdout.write(json.dumps(Settings.model_json_schema(), indent=2) + "\n")
    return 0
