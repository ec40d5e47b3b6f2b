"""The Spark session, with Iceberg's catalogue in it. The only place with Spark options."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import structlog
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from log_partitioner_pipeline import python_daemon
from log_partitioner_pipeline.jars import find_jars
from log_partitioner_pipeline.objects import region_of

if TYPE_CHECKING:
    from log_partitioner.config.s3_settings import S3Settings
    from log_partitioner_pipeline.config import CatalogSettings, JobSettings, SparkSettings

CATALOG = "lake"
_SQLITE_BUSY_MS = 30_000
_PLAN_CHARS = "10000"
_RETAINED = "10"
_LOOPBACK = "127.0.0.1"
# Java's second compiler takes half the time of a job of minutes, and what it compiles is no faster after 16 million
# entries. Without it Java reserves 48 MB for code, which Spark's generated classes fill: then the process dies.
_JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseParallelGC"
_LOG4J = Path(__file__).with_name("log4j2.properties").absolute()


def open_session(settings: JobSettings, *, name: str) -> SparkSession:
    """Start a session (takes seconds), or return the running one.

    Raises:
        PipelineError: the jars are not there.
    """
    spark = settings.pipeline.spark
    structlog.get_logger(name).info(
        "spark_starting", master=spark.master
    )  # half a minute, in which nothing else is said
    # The Python of the executors is this one, wherever PATH points to.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    _quieten(spark.master)
    builder = SparkSession.builder.appName(f"log-partitioner {name}").master(spark.master)
    properties = {**_properties(settings), **_addresses(spark.master), **catalog_options(settings), **spark.properties}
    for key, value in properties.items():
        builder = builder.config(key, value)
    at_interrupt = signal.getsignal(signal.SIGINT)
    session = builder.getOrCreate()
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, at_interrupt)  # Spark's own handler calls Java from within a call of Java
    session.sparkContext.setLogLevel("FATAL")  # errors reach us as exceptions; their Java traces help nobody
    return session


def _quieten(master: str) -> None:
    """Keep the messages of Spark's Java at its start away from people; variables set by an operator stay."""
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
    if "SPARK_CONF_DIR" not in os.environ:
        os.environ.setdefault("SPARK_SUBMIT_OPTS", f"-Dlog4j2.configurationFile={_LOG4J.as_uri()}")


def is_running(spark: SparkSession) -> bool:
    """Return whether a session can still do anything: its context is not stopped, its Java process answers."""
    try:
        return not spark.sparkContext._jsc.sc().isStopped()  # noqa: SLF001 - py4j is the way in
    except (Py4JError, OSError):
        return False


def _properties(settings: JobSettings) -> dict[str, str]:
    return {
        "spark.driver.memory": settings.pipeline.spark.driver_memory,
        "spark.driver.extraJavaOptions": _JAVA_OPTIONS,
        "spark.jars": _jars(settings.pipeline.spark),
        "spark.python.daemon.module": python_daemon.__name__,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # Without the page nobody reads what is kept for it: 1,000 plans of an audit are hundreds of MB of a driver that
        # runs for weeks.
        **dict.fromkeys(
            ("spark.ui.retainedJobs", "spark.ui.retainedStages", "spark.sql.ui.retainedExecutions"), _RETAINED
        ),
        "spark.ui.retainedTasks": "100",
        "spark.sql.maxPlanStringLength": _PLAN_CHARS,
        # Spark keeps 100 classes of generated code; one audit has several times as many, and the next one has the same.
        "spark.sql.codegen.cache.maxEntries": "1000",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.shuffle.partitions": "8",
    }


def _jars(spark: SparkSettings) -> str:
    # On Kubernetes driver and executors are of one image: nothing is sent around.
    scheme = "local://" if spark.master.startswith("k8s:") else ""
    return ",".join(f"{scheme}{jar}" for jar in find_jars(spark.jars_directory))


def _addresses(master: str) -> dict[str, str]:
    """Keep everything of this machine on it; elsewhere executors must find the driver."""
    if not master.startswith("local"):
        return {}
    return {"spark.driver.host": _LOOPBACK, "spark.driver.bindAddress": _LOOPBACK}


def catalog_options(settings: JobSettings) -> dict[str, str]:
    """Return the options of the catalogue; they hold for one session and may differ from those of another."""
    catalog = f"spark.sql.catalog.{CATALOG}"
    return {
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        # What other drivers committed is seen at once.
        f"{catalog}.cache-enabled": "false",
        **{f"{catalog}.{key}": value for key, value in catalog_properties(settings).items()},
    }


def catalog_properties(settings: JobSettings) -> dict[str, str]:
    """Return Iceberg's own properties of the catalogue, as any engine on the JVM takes them."""
    catalog = settings.pipeline.catalog
    properties = {"warehouse": settings.warehouse, **_type_properties(catalog)}
    if settings.warehouse.startswith("s3://"):
        s3 = settings.worker.s3
        properties["io-impl"] = "org.apache.iceberg.aws.s3.S3FileIO"
        if (region := region_of(s3)) is not None:
            properties["client.region"] = region
        if s3.endpoint_url is not None:
            properties["s3.endpoint"] = s3.endpoint_url
        if s3.addressing == "path":
            properties["s3.path-style-access"] = "true"
        properties |= _writing(s3)
        if s3.access_key is not None and s3.secret_key is not None:
            properties["s3.access-key-id"] = s3.access_key.get_secret_value()
            properties["s3.secret-access-key"] = s3.secret_key.get_secret_value()
    return {**properties, **catalog.properties}


def _writing(s3: S3Settings) -> dict[str, str]:
    """Return how the table's files are written, as Iceberg's S3FileIO has it; it knows no expected owner."""
    kinds = {"AES256": "s3", "aws:kms": "kms", "aws:kms:dsse": "dsse-kms"}
    optional = {
        "s3.sse.type": kinds.get(s3.encryption),
        "s3.sse.key": s3.kms_key_id,
        "s3.write.storage-class": s3.storage_class,
        **{f"s3.write.tags.{name}": value for name, value in s3.tags.items()},
    }
    return {name: value for name, value in optional.items() if value is not None}


def _type_properties(catalog: CatalogSettings) -> dict[str, str]:
    if catalog.type == "rest":
        return {"type": "rest", "uri": catalog.uri}
    if catalog.type == "glue":
        return {"type": "glue"}
    if catalog.type == "sqlite":
        file = Path(catalog.uri).absolute()
        file.parent.mkdir(parents=True, exist_ok=True)
        return {
            "type": "jdbc",
            "jdbc.schema-version": "V1",
            "uri": f"jdbc:sqlite:file:{file}?busy_timeout={_SQLITE_BUSY_MS}",
        }
    properties = {"type": "jdbc", "jdbc.schema-version": "V1", "uri": f"jdbc:postgresql://{catalog.uri}"}
    if catalog.user is not None:
        properties["jdbc.user"] = catalog.user
    if catalog.password is not None:
        properties["jdbc.password"] = catalog.password.get_secret_value()
    return properties
