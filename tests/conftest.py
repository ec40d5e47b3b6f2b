"""All tests share this: the fixtures of tests/stack, and the header that says what this run stands on.

A file `test_real_*.py` needs real log data and is not collected without them.
"""

from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
import structlog

from log_partitioner.config.settings import SpoolSettings
from tests import canaries
from tests.stack.providers import kafka_provider, s3_provider
from tests.stack.real_logs import real_log_sets

pytest_plugins = ("tests.stack.fixtures", "tests.simulation.options", "tests.tiers")

_HERE = Path(__file__).parent
_SPOOL = _HERE.parent / SpoolSettings().directory


@pytest.fixture(autouse=True)
def _logs_as_they_were() -> Iterator[None]:
    """Forget what a test's command has configured: it writes to that test's standard error, which is closed then."""
    yield
    structlog.reset_defaults()


@pytest.fixture(autouse=True)
def _nothing_beside_the_code() -> Iterator[None]:
    """Fail a test that started a worker without LOGP_SPOOL__DIRECTORY: its default is a directory of the repository."""
    was_there = _SPOOL.exists()
    yield
    assert was_there or not _SPOOL.exists(), f"{_SPOOL} was made meanwhile: set LOGP_SPOOL__DIRECTORY, or spool"


def pytest_configure() -> None:
    """Look at everything that is logged."""
    canaries.watch()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail a test that shows a user or a secret (I11)."""
    report = yield
    output = "\n".join(text for title, text in report.sections if title.endswith(f" {report.when}"))
    told = canaries.found_in(output) or canaries.found_in(canaries.logged())
    if told is not None and report.passed:
        report.outcome, report.longrepr = "failed", f"I11: a user or a secret stands in the output: {told}"
    return report


def pytest_report_header() -> list[str]:
    """Say who provides Kafka and S3, and whether real logs are present."""
    sets = len(real_log_sets())
    return [
        f"kafka: {kafka_provider()}; s3: {s3_provider()}; three brokers: local process",
        f"real logs: {sets} sets" if sets else "real logs: absent: those tests are not collected",
    ]


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out the tests of real logs if there are none."""
    if collection_path.name.startswith("test_real_") and not real_log_sets():
        return True
    return None
