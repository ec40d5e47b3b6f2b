"""Settings of the jobs (`PIPELINE_`, nested by `__`); brokers, topics, bucket and input rules are the worker's.

The worker's settings (`LOGP_`, see `log_partitioner.config.settings`) say where its topics and objects are; a job needs the
same environment as a worker, and these settings in addition, from the same kinds of sources: environment, a TOML file
named by `PIPELINE_CONFIG_FILE`, secret files in the directory named by `PIPELINE_SECRETS_DIR`, defaults.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, Field, SecretStr

from log_partitioner.config.checks import load
from log_partitioner.config.section import (
    Names,
    NotNegativeSeconds,
    PositiveInt,
    PositiveSeconds,
    Properties,
    Section,
    Zone,
)
from log_partitioner.config.settings import Settings
from log_partitioner.config.sources import SourcedSettings, read_settings
from log_partitioner.errors import SettingsError
from log_partitioner.input.formats import find_format_problems

PREFIX = "PIPELINE_"
_OF_SECRETS = ("password", "passwd", "passphrase", "secret", "key.pem", "jaas", "credential")


def _known_encoding(name: str) -> str:
    try:
        codecs.lookup(name)
    except LookupError as error:
        raise ValueError(f"{name!r} is no encoding that Python knows, such as utf-8 or latin-1") from error
    return name


class SparkSettings(Section):
    """The session."""

    master: str = "local[*]"
    """Spark master; k8s://... or what spark-submit gives on a cluster."""
    driver_memory: str = "2g"
    """Heap of the driver; in local mode, of everything."""
    jars_directory: Path | None = None
    """Directory of the jars in pipeline/log_partitioner_pipeline/jars.lock; by default the one of `python -m tools.pipeline_jars`."""
    properties: Properties = Field({})
    """Further Spark properties (JSON object); they win over ours."""


class CatalogSettings(Section):
    """The catalogue, in which Iceberg keeps the newest state of the table, and the place of the table's files."""

    type: Literal["sqlite", "postgres", "rest", "glue"] = "sqlite"
    """Kind of catalogue."""
    uri: str = ".local/catalog.db"
    """sqlite: a file (one machine only; an absolute path if objects are retired); postgres: host:port/database; rest: the URL; glue: not used, AWS is found by role and region."""
    warehouse: str | None = None
    """Location of tables, s3://bucket/prefix or a directory; by default _tables in the worker's bucket."""
    user: str | None = None
    """User of the Postgres catalogue."""
    password: SecretStr | None = None
    """Password of the Postgres catalogue."""
    properties: Properties = Field({})
    """Further Iceberg catalogue properties (JSON object)."""


class TableSettings(Section):
    """The table of all entries."""

    name: str = Field("logs.entries", pattern=r"^\w+\.\w+$")
    """Namespace and name."""
    user_buckets: Annotated[int, Field(ge=0)] = 0
    """Buckets of users in the partition of an hour, for tables in which few users are looked for; 0: none. Fixed at creation."""
    columns_max: int = Field(1000, ge=20)
    """Columns, nested ones too; values beyond stand together as JSON text in one column."""

    def beside(self, name: str) -> str:
        """Return the full name of a table in the same namespace."""
        return f"{self.name.partition('.')[0]}.{name}"


class MaterializeSettings(Section):
    """References to table."""

    references_max: PositiveInt = 5000
    """References in one commit, unless one message alone has more; more make fewer, larger files, and more to do again after a kill."""
    interval_s: PositiveSeconds = 60
    """Seconds from one catching-up of a continuous run to the next, at least; none pass while it is behind."""
    metrics_file: Path | None = None
    """File for metrics of the table, written when everything is in it, as Prometheus' textfile collector reads them."""
    metrics_port: int | None = Field(None, ge=1, le=65535)
    """Port for the same metrics, for a continuous run."""


class ActivitySettings(Section):
    """Entries and bytes per user."""

    interval_s: PositiveSeconds = 60
    """Seconds between two writes of states, at least."""
    identity: Literal["root", "record"] = "root"
    """root: an entry that was republished (source topic chain) is the one of its root record, and counts once; record: every source record counts, for republishers that make several records of one. Fixed at creation."""


class BackfillSettings(Section):
    """A range of the source, partitioned again."""

    assume_forgotten_unheld: bool = False
    """If the references or dead-letters topic has lost its beginning, assume that the lost messages held no entries of the range. Set it only if that is known; otherwise entries are published twice."""


class AuditSettings(Section):
    """Source against everything made from it."""

    unreferenced: Literal["finding", "note"] = "finding"
    """Treatment of an object that nothing committed names; killed workers leave some."""
    unreferenced_age_s: NotNegativeSeconds = 3600
    """Age in seconds from which such an object counts."""
    history_directory: Path | None = None
    """Directory in which the newest 200 results are kept as JSON."""
    results_prefix: Annotated[str, Field(min_length=1)] | None = None
    """Prefix in the worker's bucket below which each result is kept as JSON, such as _audits: for audits in pods, which leave no files."""
    metrics_file: Path | None = None
    """File for metrics of the last result, as Prometheus' textfile collector reads them."""
    metrics_port: int | None = Field(None, ge=1, le=65535)
    """Port for the same metrics, for an audit that runs periodically."""


class CsvSettings(Section):
    """The archived CSV of an older system, as a second witness of the source."""

    id_column: str = "id"
    """Column of the unique id; that of source entries is found by LOGP_ID."""
    user_column: str | None = None
    """Column of the user; by default users are not compared."""
    time_column: str | None = None
    """Column of the event time; without it no row is unexpected, because its window is unknown."""
    zone: Zone = ZoneInfo("UTC")
    """Time zone of folders, and of times that name none."""
    time_tolerance_s: NotNegativeSeconds = 1
    """Seconds by which equal times may differ: the precision of the older system."""
    values: Properties = Field({})
    """Further columns to compare, with the path of the value in an entry: {"message": "msg"}."""
    columns: Names = ()
    """Names of the columns if files have no header; empty: the first line names them."""
    delimiter: str = Field(",", min_length=1, max_length=1)
    """Character between fields."""
    escape: str | None = Field(None, min_length=1, max_length=1)
    """Character before a quote inside a field, if quotes are not doubled."""
    encoding: Annotated[str, AfterValidator(_known_encoding)] = "utf-8-sig"
    """Encoding of the text, by Python's name."""
    folders: str | None = None
    """How folders below the location name day and hour, such as date=%Y-%m-%d/hour=%H: an audit of a window then reads only its folders."""


class CompactSettings(Section):
    """Files and snapshots of the table, and the raw objects that are in it."""

    snapshots_s: PositiveSeconds = 86_400
    """Seconds that snapshots, and files only they have, stay, in the tables of the other jobs as well."""
    retention_s: PositiveSeconds | None = None
    """Seconds after its announcement from which a raw object is retired: recorded, then deleted. By default none ever is."""


class PipelineSettings(SourcedSettings):
    """All settings of the jobs that are not the worker's."""

    prefix = PREFIX

    spark: SparkSettings = SparkSettings()
    catalog: CatalogSettings = CatalogSettings()
    table: TableSettings = TableSettings()
    materialize: MaterializeSettings = MaterializeSettings()
    audit: AuditSettings = AuditSettings()
    csv: CsvSettings = CsvSettings()
    activity: ActivitySettings = ActivitySettings()
    compact: CompactSettings = CompactSettings()
    backfill: BackfillSettings = BackfillSettings()


class JobSettings(Section):
    """All settings of a job: its own, and the worker's."""

    worker: Settings
    pipeline: PipelineSettings

    @property
    def warehouse(self) -> str:
        """The location in which Iceberg puts tables."""
        return self.pipeline.catalog.warehouse or f"s3://{self.worker.s3.bucket}/_tables"

    @property
    def secrets(self) -> list[str]:
        """Every value that must not be shown."""
        pipeline = self.pipeline
        given = {**pipeline.spark.properties, **pipeline.catalog.properties}
        password = pipeline.catalog.password
        return [
            *self.worker.secrets,
            *([] if password is None else [password.get_secret_value()]),
            *(value for name, value in given.items() if _is_secret(name)),
        ]


def _is_secret(name: str) -> bool:
    """Return whether a property of Spark or of the catalogue is named like a secret."""
    return name.lower().endswith("token") or any(word in name.lower() for word in _OF_SECRETS)


def load_all() -> JobSettings:
    """Read everything from the environment, from files and secret files, as a worker does.

    Raises:
        SettingsError: with everything that is wrong, at once.
    """
    jobs = read_settings(PipelineSettings)
    problems = jobs.with_rules(_catalog_problems(jobs.settings))
    try:
        worker = load(find_format_problems)
    except SettingsError as error:
        raise SettingsError([*error.problems, *problems]) from error
    if problems:
        raise SettingsError(problems)
    return JobSettings(worker=worker, pipeline=jobs.settings)


def _catalog_problems(settings: PipelineSettings) -> Iterator[str]:
    """Say why a catalogue in a file would be lost, or be another one elsewhere."""
    catalog = settings.catalog
    if catalog.type != "sqlite":
        return
    if settings.spark.master.startswith("k8s:"):
        yield (
            f"PIPELINE_CATALOG__TYPE sqlite is a file of one machine, which pods of {settings.spark.master} lose: set "
            "PIPELINE_CATALOG__TYPE to postgres or rest, and PIPELINE_CATALOG__URI to where that is, or the type to glue"
        )
    elif settings.compact.retention_s is not None and not Path(catalog.uri).is_absolute():
        yield (
            f"PIPELINE_COMPACT__RETENTION_S leaves the only copy in the table, which {catalog.uri} below the working "
            "directory leads to: set PIPELINE_CATALOG__TYPE to postgres, rest or glue, or PIPELINE_CATALOG__URI to the "
            "absolute path of a file that is kept"
        )
