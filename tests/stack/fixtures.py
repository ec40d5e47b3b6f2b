"""Fixtures for tests that need a real Kafka or a real S3; nothing starts before a test asks for it.

One Kafka and one S3 serve the whole run, a cluster the tests of a module: three brokers that nobody uses take a tenth
of a core, and start in five seconds. Names keep the tests apart.
"""

from collections.abc import Iterator

import pytest

from tests.stack.kafka_helper import KafkaHelper
from tests.stack.names import Names
from tests.stack.providers import jars, kafka_provider, running_kafka, running_s3, s3_provider
from tests.stack.s3_helper import S3Helper
from tools.local.kafka import KafkaCluster
from tools.local.s3_faults import S3FaultProxy


@pytest.fixture
def names(request: pytest.FixtureRequest) -> Names:
    """Names that are unique to this test."""
    return Names(request.node.name)


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaHelper]:
    """One broker; no test may break it."""
    with running_kafka(tmp_path_factory.mktemp("kafka")) as bootstrap_servers:
        yield KafkaHelper(bootstrap_servers, provider=kafka_provider())


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Helper]:
    """An S3 API; no test may break it."""
    with running_s3(tmp_path_factory.mktemp("s3")) as endpoint:
        helper = S3Helper(endpoint, provider=s3_provider())
        yield helper
        helper.close()


@pytest.fixture
def s3_faults(s3: S3Helper) -> Iterator[S3FaultProxy]:
    """A proxy in front of `s3`, for this test alone: without rules at first, its tally at zero."""
    with S3FaultProxy(s3.endpoint) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def _running_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    root = tmp_path_factory.mktemp("kafka-cluster")
    with KafkaCluster(jars=jars(), root=root, brokers=3, through_proxy=True) as cluster:
        yield cluster


@pytest.fixture
def kafka_cluster(_running_cluster: KafkaCluster) -> Iterator[KafkaCluster]:
    """Three brokers, always local processes, each behind a TcpProxy; healed after each test."""
    yield _running_cluster
    _running_cluster.heal()


@pytest.fixture
def cluster_helper(kafka_cluster: KafkaCluster) -> KafkaHelper:
    """Topics and records on `kafka_cluster`, past its proxies."""
    return KafkaHelper(kafka_cluster.direct_bootstrap_servers, provider="local process", replication=3)
