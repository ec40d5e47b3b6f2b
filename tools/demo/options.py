"""The options of the demo, and the workers' settings that follow from them."""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from log_partitioner.config.settings import IdSettings, TimeSettings, UserSettings
from tools.local.class_archive import options_to_load
from tools.local.errors import MissingPrerequisiteError
from tools.pipeline_jars import spark_class_archive

Protocol = Literal["cooperative-sticky", "consumer"]
AuditKind = Literal["spark", "small"]
Layout = Literal["auto", "pack", "file"]

SOURCE = "logs"
GROUP = "demo"
SPARK_OPTIONS = "spark.driver.extraJavaOptions"
SESSION_TIMEOUT_S = 6.0  # the local brokers use the same for the consumer protocol, where they decide

_HOME = Path(__file__).parents[2] / ".local"
_GENERATED_ENTRIES = 60_000
# For a minute's work on two cores: few files and tasks, and one compiler as in session.py.
_SMALL = {
    "spark.sql.shuffle.partitions": "2",
    SPARK_OPTIONS: "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC",
}
# For one run of each plan, which is over before its code would be compiled: 154-170 s of a demo became 121-124. And for
# stages of some thousand rows, of which a second task takes longer to start than to run: 188 s became 162, later.
_UNCOMPILED = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # Entries are gathered by their position, of which each is another: sorted from the 128th on, 17 s were 14.
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "100000",
    SPARK_OPTIONS: f"{_SMALL[SPARK_OPTIONS]} "
    "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false",
}


def small_spark(*, is_compiled: bool) -> dict[str, str]:
    """Return settings of the pipeline for a minute's work; plans are compiled and adapted as in production, or not."""
    properties = _SMALL if is_compiled else _SMALL | _UNCOMPILED
    java_options = f"{properties[SPARK_OPTIONS]} {for_spark(_options_to_load())}".rstrip()
    properties = properties | {SPARK_OPTIONS: java_options}
    return {"PIPELINE_TABLE__USER_BUCKETS": "2", "PIPELINE_SPARK__PROPERTIES": json.dumps(properties)}


def for_spark(options: list[str]) -> str:
    """Quote options of Java for the one text that Spark splits at spaces."""
    return " ".join(f'"{option}"' for option in options)


def _options_to_load() -> list[str]:
    try:
        return options_to_load(spark_class_archive())
    except MissingPrerequisiteError:  # settings can be made without Java
        return []


def temporary_files(directory: Path) -> dict[str, str]:
    """Return variables by which Spark, its Java and its Python keep temporary files there; the directory is made.

    A Java that is killed leaves hundreds of MB behind.
    """
    directory.mkdir(parents=True, exist_ok=True)
    place = str(directory)
    return {"TMPDIR": place, "SPARK_LOCAL_DIRS": place, "JDK_JAVA_OPTIONS": f'"-Djava.io.tmpdir={place}"'}


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """The command line of the demo."""

    home: Path
    input: tuple[Path, ...]
    user_paths: tuple[str, ...]
    time_paths: tuple[str, ...]
    id_paths: tuple[str, ...]
    entries: int | None
    entries_per_record: int
    rate: float | None
    workers: int
    partitions: int
    protocol: Protocol
    layout: Layout
    seed: int
    audit: AuditKind
    kafka_port: int | None
    s3_port: int | None

    @property
    def entries_generated(self) -> int:
        """How many entries to generate if none are replayed."""
        return self.entries or _GENERATED_ENTRIES

    @property
    def paths(self) -> dict[str, tuple[str, ...]]:
        """The workers' paths to user, time and id, by these names; the product's defaults if no option sets them."""
        return {
            "user": self.user_paths or UserSettings().paths,
            "time": self.time_paths or TimeSettings().paths,
            "id": self.id_paths or IdSettings().paths,
        }

    def worker_settings(self) -> dict[str, str]:
        """Return the settings that all workers, the pipeline and the audit share, but for addresses."""
        settings = {
            "LOGP_KAFKA__GROUP_ID": GROUP,
            "LOGP_KAFKA__GROUP_PROTOCOL": "consumer" if self.protocol == "consumer" else "classic",
            "LOGP_LAYOUT": self.layout,
            # Short, so that a minute shows what takes an hour in production; but long enough for a machine on which
            # others work, too: what is given up is read again, and never by the clock of a quiet one.
            "LOGP_KAFKA__SESSION_TIMEOUT_S": f"{SESSION_TIMEOUT_S:.0f}",
            "LOGP_DEAD_LETTERS__SHARE_MAX": "1",  # what is dead is told by the verdict
            "LOGP_FLUSH__INTERVAL_S": "3",
            "LOGP_FLUSH__BUDGET_S": "60",
            "LOGP_VERIFY__SHARE": "1",
        }
        settings |= small_spark(is_compiled=False)
        if not self.input:
            # One of the generated clients writes data as keys: the table keeps them in one column beyond this bound.
            settings["PIPELINE_TABLE__COLUMNS_MAX"] = "200"
        paths = {"USER": self.user_paths, "TIME": self.time_paths, "ID": self.id_paths}
        settings |= {f"LOGP_{name}__PATHS": json.dumps(found) for name, found in paths.items() if found}
        return settings


def parse_options(arguments: list[str] | None = None, *, epilog: str = "") -> DemoOptions:
    """Return the options of a command line; ends the process with a message if it is wrong. `epilog` ends the help."""
    chosen = _parser(epilog).parse_args(arguments)
    generated = not chosen.input
    return DemoOptions(
        home=chosen.home,
        input=tuple(chosen.input or ()),
        user_paths=tuple(chosen.user_path or (("user",) if generated else ())),
        time_paths=tuple(chosen.time_path or (("time",) if generated else ())),
        id_paths=tuple(chosen.id_path or (("id",) if generated else ())),
        entries=chosen.entries,
        entries_per_record=chosen.entries_per_record,
        rate=chosen.rate,
        workers=chosen.workers,
        partitions=chosen.partitions,
        protocol=chosen.protocol,
        layout=chosen.layout,
        seed=chosen.seed,
        audit=chosen.audit,
        kafka_port=chosen.kafka_port,
        s3_port=chosen.s3_port,
    )


def _parser(epilog: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.demo",
        description="Three workers on a local Kafka and S3, faults while records flow, then the audit.",
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add(
        "--input",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="logs to replay (.ndjson, .log; .gz, .zst); else generated",
    )
    add("--user-path", nargs="+", metavar="PATH", help="where entries have their user, as in LOGP_USER__PATHS")
    add("--time-path", nargs="+", metavar="PATH", help="where entries have their event time")
    add("--id-path", nargs="+", metavar="PATH", help="where entries have their unique id")
    add(
        "--entries",
        type=_positive,
        help=f"entries to write (default: the whole input, or {_GENERATED_ENTRIES} generated)",
    )
    add(
        "--entries-per-record",
        type=_positive,
        default=1,
        help="lines of the input in one record (default %(default)s)",
    )
    add("--rate", type=float, help="entries per second (default: so that they last as long as the faults)")
    add("--workers", type=_positive, default=3, help="workers at the begin (default %(default)s)")
    add("--partitions", type=_positive, default=6, help="of the source topic (default %(default)s)")
    add(
        "--protocol",
        choices=get_args(Protocol),
        default="cooperative-sticky",
        help="how the group assigns (default %(default)s)",
    )
    add(
        "--layout",
        choices=get_args(Layout),
        default="auto",
        help="how objects are laid out: packs of many users and hours, a file for each, or what fits (%(default)s)",
    )
    add("--seed", type=int, default=1, help="of the logs (default %(default)s)")
    add(
        "--audit",
        choices=get_args(AuditKind),
        default="spark",
        help="what judges at the end: Spark, with a table and a query over it, or the small one (default %(default)s)",
    )
    add("--kafka-port", type=_positive, help="port of Kafka on 127.0.0.1 (default: a free one)")
    add("--s3-port", type=_positive, help="port of S3 on 127.0.0.1 (default: a free one)")
    add(
        "--home",
        type=Path,
        default=_HOME,
        help="directory for jars, data and logs (default: .local of this repository)",
    )
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number <= 0:
        raise argparse.ArgumentTypeError(f"{number} is not a positive number")
    return number
