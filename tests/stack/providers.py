"""The providers of Kafka and S3 for a test run; the tests do not know which one it is.

Order: an address in the environment, containers if a local Docker engine answers, local processes.
A question costs nothing and starts nothing; the context managers start.
"""

import enum
import functools
import os
import secrets
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from tools.local.jars import Jars, ensure_jars
from tools.local.kafka import KafkaCluster
from tools.local.kafka_config import broker_settings
from tools.local.ports import LOOPBACK, find_free_ports
from tools.local.s3 import S3Endpoint, S3Server

REPOSITORY = Path(__file__).parents[2]

KAFKA_IMAGE = "apache/kafka:4.3.1"
S3_IMAGE = "andrewgaul/s3proxy:4.1.0"  # what a local process runs, too: tools/local/pom.xml

# Only an engine on this machine: the containers publish their ports on 127.0.0.1 alone.
_DOCKER_SOCKET = Path("/var/run/docker.sock")


class Provider(enum.StrEnum):
    """Who runs a server."""

    ENVIRONMENT = "address from the environment"
    CONTAINER = "testcontainers"
    PROCESS = "local process"


def kafka_provider() -> Provider:
    """Say where Kafka will come from."""
    return _provider("LOGP_TEST_KAFKA")


def s3_provider() -> Provider:
    """Say where S3 will come from."""
    return _provider("LOGP_TEST_S3_ENDPOINT")


def _provider(variable: str) -> Provider:
    if os.environ.get(variable):
        return Provider.ENVIRONMENT
    return Provider.CONTAINER if docker_answers() else Provider.PROCESS


@functools.cache
def docker_answers() -> bool:
    """Say whether a Docker engine on this machine answers."""
    if not _DOCKER_SOCKET.exists():
        return False
    import docker  # noqa: PLC0415  # 0.3 s that most runs do not need

    try:
        with closing(docker.DockerClient(base_url=f"unix://{_DOCKER_SOCKET}", timeout=2)) as client:
            return bool(client.ping())
    except (docker.errors.DockerException, OSError):
        return False


def jars(*, kafka: str | None = None) -> Jars:
    """Return the jars for local processes, of another version of Kafka if asked; fetched if this is the first run."""
    return ensure_jars(REPOSITORY / ".local" / "jars", kafka=kafka)


@contextmanager
def running_kafka(root: Path) -> Iterator[str]:
    """Yield the bootstrap servers of a Kafka; a local process keeps its files under `root`."""
    match kafka_provider():
        case Provider.ENVIRONMENT:
            yield os.environ["LOGP_TEST_KAFKA"]
        case Provider.CONTAINER:
            with _kafka_container() as bootstrap_servers:
                yield bootstrap_servers
        case Provider.PROCESS:
            with KafkaCluster(jars=jars(), root=root) as cluster:
                yield cluster.bootstrap_servers


@contextmanager
def running_s3(root: Path) -> Iterator[S3Endpoint]:
    """Yield the endpoint of an S3; a local process keeps its files under `root`."""
    match s3_provider():
        case Provider.ENVIRONMENT:
            yield S3Endpoint(
                url=os.environ["LOGP_TEST_S3_ENDPOINT"],
                access_key=os.environ["LOGP_TEST_S3_ACCESS_KEY"],
                secret_key=os.environ["LOGP_TEST_S3_SECRET_KEY"],
                region=os.environ.get("LOGP_TEST_S3_REGION", "us-east-1"),
            )
        case Provider.CONTAINER:
            with _s3_container() as endpoint:
                yield endpoint
        case Provider.PROCESS:
            with S3Server(jars=jars(), root=root) as server:
                yield server.endpoint


# The two below need a Docker engine, which the machine they were written on did not have.


@contextmanager
def _kafka_container() -> Iterator[str]:
    from testcontainers.core.container import DockerContainer  # noqa: PLC0415  # connects at import
    from testcontainers.core.wait_strategies import LogMessageWaitStrategy  # noqa: PLC0415

    (port,) = find_free_ports(1)  # fixed, because the broker must advertise it
    settings = broker_settings(replicas=1) | {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": "1@localhost:9093",
        "listeners": "CLIENT://0.0.0.0:9092,INTERNAL://localhost:9094,CONTROLLER://localhost:9093",
        "advertised.listeners": f"CLIENT://{LOOPBACK}:{port},INTERNAL://localhost:9094",
        "listener.security.protocol.map": "CLIENT:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "INTERNAL",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": "/tmp/kafka-data",  # noqa: S108  # inside the container
    }
    container = DockerContainer(KAFKA_IMAGE).waiting_for(LogMessageWaitStrategy("Kafka Server started"))
    for name, value in settings.items():
        container.with_env("KAFKA_" + name.upper().replace(".", "_"), str(value))
    container.ports["9092/tcp"] = (LOOPBACK, port)  # with_bind_ports() would publish on all addresses
    with container:
        yield f"{LOOPBACK}:{port}"


@contextmanager
def _s3_container() -> Iterator[S3Endpoint]:
    from testcontainers.core.container import DockerContainer  # noqa: PLC0415
    from testcontainers.core.wait_strategies import PortWaitStrategy  # noqa: PLC0415

    (port,) = find_free_ports(1)
    endpoint = S3Endpoint(
        url=f"http://{LOOPBACK}:{port}",
        access_key=f"test-{secrets.token_hex(6)}",
        secret_key=secrets.token_urlsafe(24),
    )
    container = (
        DockerContainer(S3_IMAGE)
        .with_env("S3PROXY_ENDPOINT", "http://0.0.0.0:80")
        .with_env("S3PROXY_AUTHORIZATION", "aws-v2-or-v4")
        .with_env("S3PROXY_IDENTITY", endpoint.access_key)
        .with_env("S3PROXY_CREDENTIAL", endpoint.secret_key)
        .with_env("JCLOUDS_PROVIDER", "filesystem-nio2")
        .waiting_for(PortWaitStrategy(80))
    )
    container.ports["80/tcp"] = (LOOPBACK, port)
    with container:
        yield endpoint
