"""The surroundings of the demo: a directory of its own, Kafka, S3, topics, a bucket; gone when the block ends."""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from log_partitioner_pipeline import jars as pipeline_jars
from tools.demo.options import SOURCE, DemoOptions
from tools.local.errors import ProcessDiedError
from tools.local.jars import Jars, ensure_jars
from tools.local.kafka import KafkaCluster
from tools.local.processes import ServerProcess
from tools.local.s3 import S3Server
from tools.local.topics import create_bucket, create_topics
from tools.pipeline_jars import ensure_pipeline_jars

_BUCKET = "demo"
_DISPOSABLE = "disposable"  # a file that marks a directory whose data are not needed any more


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Addresses and places of a running environment."""

    directory: Path
    bootstrap: str
    s3_url: str
    variables: dict[str, str]  # of workers, pipeline and audit
    servers: tuple[ServerProcess, ...]  # those that must not end
    objects: Path  # where S3 has the bucket's objects, as files

    @property
    def audit_report(self) -> Path:
        """The file for the audit's output."""
        return self.directory / "audit.txt"

    def require_alive(self) -> None:
        """Check that Kafka and S3 still run.

        Raises:
            ProcessDiedError: one of them has ended.
        """
        for server in self.servers:
            if not server.is_alive():
                raise ProcessDiedError(f"{server.name} ended ({server.log})", last_lines=server.last_lines())

    def describe(self) -> list[str]:
        """Return the places of the demo's files, for a person."""
        places = [
            f"objects        {self.objects}",
            f"Kafka's data   {self.directory / 'kafka'}",
            f"workers' logs  {self.directory / 'workers'}/*/worker.log",
        ]
        return [*places, f"audit's report {self.audit_report}"] if self.audit_report.exists() else places


@contextmanager
def start_environment(options: DemoOptions, tell: Callable[[str], None]) -> Iterator[Environment]:
    """Start Kafka and S3, create topics and bucket; stop both at the end of the block.

    Raises:
        StackError: a program is missing, a port is taken, a server did not start.
    """
    if not list((options.home / "jars").glob("*/kafka")):
        tell("fetching Kafka and S3Proxy with Maven (once, about 110 MB)")
    jars = ensure_jars(options.home / "jars")
    if options.audit == "spark":
        _fetch_spark_jars(options.home, tell)
    tell("starting Kafka and S3 on 127.0.0.1")
    directory = _make_directory(options.home / "demo")
    with ExitStack() as running:
        try:
            environment = _start(options, jars, directory, running)
        except BaseException:
            mark_disposable(directory)
            raise
        tell(f"Kafka {environment.bootstrap}, S3 {environment.s3_url}, data and logs in {directory}")
        yield environment


def _spark_home(home: Path) -> Path:
    return home / pipeline_jars.DIRECTORY.name


def _fetch_spark_jars(home: Path, tell: Callable[[str], None]) -> None:
    if not _spark_home(home).is_dir():
        tell("fetching Iceberg for Spark with Maven (once, about 133 MB)")
    ensure_pipeline_jars(_spark_home(home))


def _start(options: DemoOptions, jars: Jars, directory: Path, running: ExitStack) -> Environment:
    kafka_ports = None if options.kafka_port is None else [options.kafka_port]
    s3 = S3Server(jars=jars, root=directory / "s3", port=options.s3_port)
    running.callback(s3.kill)
    s3.spawn()  # is ready before Kafka is
    kafka = running.enter_context(KafkaCluster(jars=jars, root=directory / "kafka", ports=kafka_ports))
    create_topics(kafka.bootstrap_servers, source=SOURCE, partitions=options.partitions)
    s3.wait_until_ready()
    create_bucket(s3.endpoint, _BUCKET)
    addresses = {
        "LOGP_KAFKA__BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
        "LOGP_KAFKA__SOURCE_TOPICS": f'["{SOURCE}"]',
        **s3.endpoint.variables(_BUCKET),
        "PIPELINE_CATALOG__URI": str(directory / "catalog.db"),
        "PIPELINE_SPARK__JARS_DIRECTORY": str(_spark_home(options.home) / pipeline_jars.version()),
    }
    return Environment(
        directory=directory,
        bootstrap=kafka.bootstrap_servers,
        s3_url=s3.endpoint.url,
        variables=own_variables() | addresses | options.worker_settings(),
        servers=(*kafka.processes, s3.process),
        objects=s3.root / "objects" / _BUCKET,
    )


def mark_disposable(directory: Path) -> None:
    """Let the next demo remove this directory."""
    (directory / _DISPOSABLE).touch()


def _make_directory(home: Path) -> Path:
    """Make the directory of this run; remove those of earlier runs that are of no use any more."""
    home.mkdir(parents=True, exist_ok=True)
    for marker in home.glob(f"*/{_DISPOSABLE}"):
        shutil.rmtree(marker.parent, ignore_errors=True)
    directory = home / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    directory.mkdir()
    return directory


def own_variables() -> dict[str, str]:
    """Return our environment without settings of other workers and jobs and without a proxy for loopback."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LOGP_", "PIPELINE_"))}
    return kept | {"NO_PROXY": "127.0.0.1,localhost", "no_proxy": "127.0.0.1,localhost"}
