"""Every test in this directory needs a real Kafka or a real S3, and is marked `integration`.

Its fixtures (`kafka`, `kafka_cluster`, `cluster_helper`, `s3`, `s3_faults`, `names`) are in
tests/stack/fixtures.py, because contract and system tests use the same servers; tests/stack/providers.py
says where they come from.
"""

from pathlib import Path

import pytest

_HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what was collected here."""
    for item in items:
        if item.path.is_relative_to(_HERE):
            item.add_marker(pytest.mark.integration)
            if "kafka_cluster" in getattr(item, "fixturenames", ()):
                item.add_marker(pytest.mark.cluster)
