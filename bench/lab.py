"""The surroundings of benchmarks of the worker: their own Kafka and S3; for each run, topics, group and prefix."""

import argparse
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.peers.task import Task
from bench.workloads import PARTITIONS, Workload
from tools.demo.fleet import Fleet
from tools.local.errors import StackError
from tools.local.jars import ensure_jars
from tools.local.kafka import KafkaCluster
from tools.local.s3 import S3Endpoint, S3Server
from tools.local.topics import create_bucket, create_topics

BUCKET = "bench"


@dataclass(frozen=True, slots=True)
class Lab:
    """A running Kafka and S3; their data are under `directory`."""

    directory: Path
    bootstrap: str
    s3: S3Endpoint

    def run(self, name: str, source: str, variables: dict[str, str], *, s3: S3Endpoint | None = None) -> "Run":
        """Return a run of this name, whose topics are made; `s3` may be a proxy's."""
        run = Run(lab=self, name=name, source=source, variables=variables, s3=s3 or self.s3)
        create_topics(
            self.bootstrap,
            source=source,
            partitions=PARTITIONS,
            references=run.topic("references"),
            flushes=run.topic("flushes"),
            dead_letters=run.topic("dead-letters"),
        )
        return run


@dataclass(frozen=True, slots=True)
class Run:
    """One measured run: its name is its group, its prefix, and that of its topics and directory.

    `variables` are settings beyond addresses and names; without any, the product's defaults apply.
    """

    lab: Lab
    name: str
    source: str
    variables: dict[str, str]
    s3: S3Endpoint

    def topic(self, of: str) -> str:
        """Return the name of an output topic."""
        return f"{self.name}-{of}"

    def fleet(self) -> Fleet:
        """Return the run's workers, none of them started."""
        return Fleet(root=self.directory, settings=self.environment())

    def task(self, workload: Workload, *, jars: list[str]) -> Task:
        """Return the same work as a task for a peer."""
        return Task(
            name=self.name,
            bootstrap=self.lab.bootstrap,
            topic=self.source,
            references=self.topic("references"),
            endpoint=self.s3.url,
            region=self.s3.region,
            bucket=BUCKET,
            access_key=self.s3.access_key,
            secret_key=self.s3.secret_key,
            directory=str(self.directory.absolute()),
            jars=jars,
            user_paths=list(workload.user_paths),
            time_paths=list(workload.time_paths),
            is_flat=workload.shape == "flat",
        )

    @property
    def directory(self) -> Path:
        """The directory with the workers' spools and logs."""
        return self.lab.directory / "runs" / self.name

    @property
    def objects(self) -> Path:
        """The directory in which the S3 server keeps the run's objects, as files."""
        return self.lab.directory / "s3" / "objects" / BUCKET / self.name

    def environment(self) -> dict[str, str]:
        """Return the variables of the run's workers and commands, but for what is a worker's own."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("LOGP_", "PIPELINE_"))}
        return {
            **kept,
            "NO_PROXY": "127.0.0.1",
            "no_proxy": "127.0.0.1",
            "LOGP_KAFKA__BOOTSTRAP_SERVERS": self.lab.bootstrap,
            "LOGP_KAFKA__SOURCE_TOPICS": json.dumps([self.source]),
            "LOGP_KAFKA__GROUP_ID": self.name,
            "LOGP_KAFKA__REFERENCES_TOPIC": self.topic("references"),
            "LOGP_KAFKA__FLUSHES_TOPIC": self.topic("flushes"),
            "LOGP_KAFKA__DEAD_LETTERS_TOPIC": self.topic("dead-letters"),
            "LOGP_S3__PREFIX": self.name,
            **self.s3.variables(BUCKET),
            **self.variables,
        }


@contextmanager
def open_lab(home: Path, *, properties: Mapping[str, object] | None = None) -> Iterator[Lab]:
    """Start Kafka and S3; at the end of the block they are gone, and their data, unless it ended by an error.

    `properties` are the broker's beside the usual ones.

    Raises:
        StackError: a program is missing, a server did not start.
    """
    jars = ensure_jars(home / "jars", compiles_fully=True)
    directory = home / "bench" / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    with (
        KafkaCluster(jars=jars, root=directory / "kafka", properties=properties) as kafka,
        S3Server(jars=jars, root=directory / "s3") as s3,
    ):
        create_bucket(s3.endpoint, BUCKET)
        yield Lab(directory, kafka.bootstrap_servers, s3.endpoint)
    shutil.rmtree(directory, ignore_errors=True)


def add_options(parser: argparse.ArgumentParser, *, has_json: bool = True) -> None:
    """Add the options that all benchmarks of the worker have."""
    parser.add_argument(
        "--settings", nargs="+", default=[], metavar="NAME=VALUE", help="settings of the worker; default: its own"
    )
    parser.add_argument("--home", type=Path, default=Path(".local"), help="jars and data; default: %(default)s")
    if has_json:
        parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures of all rounds there")


def variables_of(settings: list[str], layout: str | None) -> dict[str, str]:
    """Return settings given as NAME=VALUE, and the layout, as environment variables.

    Raises:
        StackError: one of them has no value.
    """
    if wrong := [setting for setting in settings if "=" not in setting]:
        raise StackError(f"{wrong[0]!r} is not NAME=VALUE.")
    return dict(setting.split("=", 1) for setting in settings) | ({"LOGP_LAYOUT": layout} if layout else {})
