"""Every test in this directory needs a real Kafka or a real S3, and is marked `integration`.

Its fixtures (`kafka`, `kafka_cluster`, `cluster_helper`, `s3`, `s3_faults`, `names`) are in
tests/stack/fixtures.py, because contract and system tests use the same servers; tests/stack/providers.py
says where they come from.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.integration.harness import Deploy, Deployment
from tests.stack.kafka_helper import KafkaHelper
from tests.stack.names import Names
from tests.stack.s3_helper import S3Helper

_HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what was collected here."""
    for item in items:
        if item.path.is_relative_to(_HERE):
            item.add_marker(pytest.mark.integration)
            if "kafka_cluster" in getattr(item, "fixturenames", ()):
                item.add_marker(pytest.mark.cluster)


@pytest.fixture
def deploy(request: pytest.FixtureRequest, s3: S3Helper, names: Names, tmp_path: Path) -> Iterator[Deploy]:
    """Make the deployment of a test, on the Kafka of the run if no other is given; its workers end with the test."""
    with ExitStack() as stack:

        def made(*, kafka: KafkaHelper | None = None, **options: Any) -> Deployment:
            kafka = kafka or request.getfixturevalue("kafka")
            return stack.enter_context(Deployment(kafka=kafka, s3=s3, names=names, root=tmp_path, **options))

        yield made
