"""Fixtures of the pipeline's tests: one Spark in this process, a session with a catalogue of its own for each test.

Jobs that must be killed run as processes of their own (`Lake.start`), as on a cluster.
"""

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

import pytest
from pyspark.sql import SparkSession

from log_partitioner_pipeline.backfill import publish, write
from log_partitioner_pipeline.config import JobSettings, load_all
from log_partitioner_pipeline.session import catalog_options, open_session
from tests.stack.s3_helper import S3Helper
from tools.demo.options import small_spark, temporary_files
from tools.local.processes import ServerProcess
from tools.pipeline_jars import ensure_pipeline_jars, has_pipeline_jars

_HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs servers, and what needs Spark."""
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ())) if item.path.is_relative_to(_HERE) else set()
        if {"kafka", "s3"} & fixtures:
            item.add_marker(pytest.mark.integration)
        if "spark" in fixtures:
            item.add_marker(pytest.mark.spark)


class Delivery(Protocol):
    """The parts of a deployment that a lake needs, be it a worker's or one by hand."""

    bucket: str
    s3: S3Helper

    def environment(self) -> Mapping[str, str]:
        """The environment of a job."""


class Lake:
    """The pipeline beside what was delivered: settings, a session, jobs as processes.

    Plans over a few rows take less time than compiling them; `is_compiled`: as in production.
    """

    def __init__(
        self, deployment: Delivery, root: Path, spark: SparkSession, *, is_compiled: bool = False, **settings: str
    ) -> None:
        self.deployment = deployment
        self.root = root
        self.variables = dict(deployment.environment()) | pipeline_variables(root) | settings
        self.settings = settings_of(self.variables)
        self.spark = spark.newSession()
        properties = json.loads(small_spark(is_compiled=is_compiled)["PIPELINE_SPARK__PROPERTIES"])
        for key, value in (properties | catalog_options(self.settings)).items():
            if key.startswith("spark.sql."):
                self.spark.conf.set(key, value)

    def start(
        self,
        name: str,
        *arguments: str,
        program: tuple[str, ...] = ("-m", "log_partitioner_pipeline"),
        **variables: str,
    ) -> ServerProcess:
        """Start a job as a process of its own; its log is `root/name.log`. It runs each plan once: none is compiled."""
        command = [sys.executable, *program, *arguments]
        path = os.pathsep.join(
            filter(None, [os.environ.get("PYTHONPATH"), str(_HERE.parents[1])])
        )  # drivers are tests'
        environment = self.variables | {"PYTHONPATH": path}
        environment |= small_spark(is_compiled=False) | temporary_files(self.root / "tmp") | variables
        return ServerProcess(name, command, log=self.root / f"{name}.log", env=environment)

    @property
    def table(self) -> str:
        """The table's name in the session."""
        return f"lake.{self.settings.pipeline.table.name}"


def pipeline_variables(root: Path) -> dict[str, str]:
    """Give the pipeline's own settings for a test."""
    return {
        "PIPELINE_CATALOG__URI": str(root / "catalog.db"),
        "PIPELINE_SPARK__MASTER": "local[2]",
        "PIPELINE_SPARK__DRIVER_MEMORY": "2g",
        "PIPELINE_SPARK__JARS_DIRECTORY": str(ensure_pipeline_jars()),
    } | small_spark(is_compiled=True)


def settings_of(variables: dict[str, str]) -> JobSettings:
    """Read settings from these variables instead of the process's own."""
    with pytest.MonkeyPatch.context() as patch:
        for name in os.environ:
            if name.startswith(("LOGP_", "PIPELINE_")):
                patch.delenv(name)
        for name, value in variables.items():
            if name.startswith(("LOGP_", "PIPELINE_")):
                patch.setenv(name, value)
        return load_all()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Spark in this process, for the whole run; take a `lake` to have a catalogue."""
    if not has_pipeline_jars():
        pytest.skip("Spark's jars are absent (133 MB): `python -m tools.pipeline_jars` fetches them")
    root = tmp_path_factory.mktemp("spark")
    worker = {
        "LOGP_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:1",
        "LOGP_KAFKA__SOURCE_TOPICS": '["none"]',
        "LOGP_S3__BUCKET": "none",
        "PIPELINE_CATALOG__WAREHOUSE": str(root / "warehouse"),
    }
    session = open_session(settings_of(worker | pipeline_variables(root)), name="tests")
    yield session
    session.stop()


@pytest.fixture
def lake_of(spark: SparkSession, tmp_path: Path) -> Callable[..., Lake]:
    """Make the pipeline beside what was delivered."""

    def make(deployment: Delivery, *, is_compiled: bool = False, **settings: str) -> Lake:
        return Lake(deployment, tmp_path, spark, is_compiled=is_compiled, **settings)

    return make


@pytest.fixture
def small_outbox(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let backfills have many transactions, and many objects in an outbox; `backfill_driver` has them, too."""
    monkeypatch.setattr(publish, "TRANSACTION_MESSAGES_MAX", 3)
    monkeypatch.setattr(write, "PART_MESSAGES_MAX", 2)
