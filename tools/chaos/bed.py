"""The targets of faults: three brokers behind proxies, S3 behind its fault proxy; and one run's share of them."""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tools.chaos.faults import BROKERS
from tools.demo.environment import Environment, own_variables
from tools.demo.options import Protocol, parse_options
from tools.local.jars import ensure_jars
from tools.local.kafka import KafkaCluster
from tools.local.s3 import S3Server
from tools.local.s3_faults import S3FaultProxy
from tools.local.topics import create_bucket, create_topics

PARTITIONS = 9


@dataclass(frozen=True, slots=True)
class Bed:
    """Servers and proxies, all of them running."""

    directory: Path
    kafka: KafkaCluster
    s3: S3Server
    store: S3FaultProxy

    def heal(self) -> None:
        """Undo all faults; blocks until every broker is ready."""
        self.store.clear()
        self.store.pace.set()
        self.kafka.heal()


@contextmanager
def make_bed(directory: Path, *, home: Path) -> Iterator[Bed]:
    """Start servers on the data in the directory, also of earlier runs, and end them with the block.

    Raises:
        StackError: a program is missing, or a server did not start.
    """
    jars = ensure_jars(home / "jars")
    directory.mkdir(parents=True, exist_ok=True)
    with ExitStack() as running:
        s3 = running.enter_context(S3Server(jars=jars, root=directory / "s3"))
        store = running.enter_context(S3FaultProxy(s3.endpoint))
        kafka = KafkaCluster(jars=jars, root=directory / "kafka", brokers=BROKERS, through_proxy=True)
        yield Bed(directory, running.enter_context(kafka), s3, store)


@dataclass(frozen=True, slots=True)
class Ground:
    """One run's own topics, group and bucket; `environment` is past all proxies, `worker_variables` through them."""

    name: str
    environment: Environment
    worker_variables: Mapping[str, str]

    @property
    def source(self) -> str:
        """The source topic."""
        return f"{self.name}-logs"

    def remove(self) -> None:
        """Remove logs and objects of a run that needs no inspection."""
        shutil.rmtree(self.environment.directory, ignore_errors=True)
        shutil.rmtree(self.environment.objects, ignore_errors=True)


def make_ground(bed: Bed, name: str, *, protocol: Protocol, settings: Mapping[str, str]) -> Ground:
    """Create the topics and the bucket of a run of this name; leaves those that are there as they are."""
    direct, bucket = bed.kafka.direct_bootstrap_servers, f"{name}-bucket"
    topics = {kind: f"{name}-{kind}" for kind in ("references", "flushes", "dead-letters")}
    create_topics(
        direct,
        source=f"{name}-logs",
        partitions=PARTITIONS,
        references=topics["references"],
        flushes=topics["flushes"],
        dead_letters=topics["dead-letters"],
        replication=BROKERS,
    )
    create_bucket(bed.s3.endpoint, bucket)
    variables = {
        **own_variables(),
        **parse_options(["--protocol", protocol, "--audit", "small"]).worker_settings(),
        "LOGP_KAFKA__BOOTSTRAP_SERVERS": direct,
        "LOGP_KAFKA__GROUP_ID": name,
        "LOGP_KAFKA__SOURCE_TOPICS": f'["{name}-logs"]',
        "LOGP_KAFKA__REFERENCES_TOPIC": topics["references"],
        "LOGP_KAFKA__FLUSHES_TOPIC": topics["flushes"],
        "LOGP_KAFKA__DEAD_LETTERS_TOPIC": topics["dead-letters"],
        **bed.s3.endpoint.variables(bucket),
        **settings,
    }
    proxied = {
        "LOGP_KAFKA__BOOTSTRAP_SERVERS": bed.kafka.bootstrap_servers,
        "LOGP_S3__ENDPOINT_URL": bed.store.endpoint.url,
    }
    environment = Environment(
        directory=bed.directory / name,
        bootstrap=direct,
        s3_url=bed.s3.endpoint.url,
        variables=variables,
        servers=(bed.s3.process,),  # brokers come and go
        objects=bed.s3.root / "objects" / bucket,
    )
    environment.directory.mkdir(parents=True, exist_ok=True)
    return Ground(name, environment, variables | proxied)
