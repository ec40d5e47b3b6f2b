"""The main path, with a rebalance, on the newest release of each minor version of Kafka that is promised (DESIGN 1).

A sweep: each version's jars are fetched the first time, 107 MB.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration import test_main_path
from tests.integration.flow import some_records
from tests.integration.harness import Deploy, Deployment
from tests.stack.kafka_helper import KafkaHelper
from tests.stack.providers import jars
from tools.local.kafka import KafkaCluster

pytestmark = pytest.mark.sweep

_CLASSIC_ALONE = ["3.7.2", "3.8.1", "3.9.2"]  # KIP-848 is a preview there, and off
_BOTH = ["4.0.2", "4.1.2", "4.2.1", "4.3.1", "4.4.0"]
_TOLD = re.compile(r"Kafka version: (\S+)")

Property = Callable[[str, object], None]


@pytest.fixture(scope="module")
def kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaHelper]:
    """One broker of the version that the test names, and says of itself."""
    version: str = request.param
    with KafkaCluster(jars=jars(kafka=version), root=tmp_path_factory.mktemp("kafka")) as cluster:
        (log,) = cluster.root.glob("*/server.log")
        assert set(_TOLD.findall(log.read_text())) == {version}
        yield KafkaHelper(cluster.bootstrap_servers, provider=f"local process of {version}")


def _play(scenario: Callable[[Deploy], None], deploy: Deploy, record_property: Property) -> None:
    """Play a scenario of one deployment, and record what the audit counts in the end."""
    made: list[Deployment] = []

    def deploy_one(**options: Any) -> Deployment:
        made.append(deploy(**options))
        return made[-1]

    scenario(deploy_one)
    (deployment,) = made
    record_property("discards", deployment.count("batch_discarded"))
    record_property("audit", deployment.require_clean().json["counts"])


@pytest.mark.parametrize("kafka", [*_CLASSIC_ALONE, *_BOTH], indirect=True)
def test_broker_of_a_promised_version_classic_protocol(
    kafka: KafkaHelper, tmp_path: Path, deploy: Deploy, record_property: Property
) -> None:
    """A worker is joined by another: everything is accounted for."""
    scenario = test_main_path.test_worker_is_joined_by_another_everything_accounted_for
    _play(lambda made: scenario(kafka, tmp_path, made), deploy, record_property)


@pytest.mark.parametrize("kafka", _BOTH, indirect=True)
@pytest.mark.usefixtures("kafka")
def test_broker_of_a_promised_version_consumer_protocol(deploy: Deploy, record_property: Property) -> None:
    """A worker joins, another leaves: brokers before 4.3 refuse a batch of the one that leaves, which is read again."""
    _play(_is_joined_and_leaves, deploy, record_property)


def _is_joined_and_leaves(deploy: Deploy) -> None:
    deployment = deploy(protocol="consumer", settings={"LOGP_FLUSH__INTERVAL_S": "1"})
    written = deployment.kafka.produce(deployment.source, some_records(300, partitions=6))
    deployment.start("w1", LOGP_FLUSH__INTERVAL_S="600")
    deployment.wait_metric("w1", "records_total", 300)
    deployment.start("w2")
    for name in ("w1", "w2"):
        deployment.wait_metric(name, "owned_topic_partitions", 3)
    written += deployment.kafka.produce(deployment.source, some_records(300, partitions=6, first=300))
    deployment.workers["w1"].terminate()
    assert deployment.exit_code("w1") == 0
    deployment.wait_drained(written)
    assert deployment.stop_all() == {"w1": 0, "w2": 0}
