"""All settings of a worker by section, each with its meaning, unit and default.

`log_partitioner.config.sources` reads them, `log_partitioner.config.checks` holds the rules between them.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Annotated, ClassVar, Literal, NamedTuple
from zoneinfo import ZoneInfo

from pydantic import BeforeValidator, Field

from log_partitioner.config.flush_settings import FlushSettings
from log_partitioner.config.kafka_properties import ALLOWED, Role, is_allowed
from log_partitioner.config.registry_settings import RegistrySettings
from log_partitioner.config.s3_settings import S3Settings
from log_partitioner.config.section import (
    BYTES,
    TAKES_SIZE,
    Moment,
    Names,
    PositiveBytes,
    PositiveSeconds,
    Properties,
    SecretProperties,
    Section,
    StartAt,
    TimeFormat,
    Zone,
    object_of,
)
from log_partitioner.config.source_topics import SourceEntries, SourceNames
from log_partitioner.config.sources import SourcedSettings
from log_partitioner.formats.object_key import key_safe

PREFIX = "LOGP_"


Layout = Literal["auto", "pack", "file"]
_UTC = ZoneInfo("UTC")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class KafkaSettings(Section):
    """Brokers, topics, the consumer group, and additional librdkafka properties."""

    inline_bytes_max: ClassVar[int] = 1024 * 1024  # of schema texts in the messages of a flush; or of none

    bootstrap_servers: str = Field(examples=["broker:9092"])
    """Brokers to start from, host:port, separated by commas."""
    group_id: str = Field("log-partitioner", min_length=1, max_length=255)
    """Consumer group of all workers; if not set, readers of the output take the only group there is."""
    group_protocol: Literal["classic", "consumer"] = "classic"
    """Group protocol: classic (cooperative-sticky), or consumer (KIP-848, brokers from 4.0)."""
    auth: Literal["properties", "msk-iam"] = "properties"
    """properties: log in as client_properties and secret_properties say, if at all; msk-iam: to Amazon MSK by AWS IAM, with what boto3 finds, in the region AWS_REGION (needs the optional group msk)."""
    source_topics: SourceEntries = Field(min_length=1, examples=["app-logs"])
    r"""Topics to read log records from: names, and patterns that all of a name matches, as ^app-.*, of letters, digits, . _ - \. [a-z] ( | ) * + ?. A topic that comes to match is read within a minute (topic.metadata.refresh.interval.ms; with KIP-848 brokers take seconds)."""
    references_topic: str = "references"
    """Topic that gets references: a message per object."""
    flushes_topic: str = "flushes"
    """Topic that gets one flush record per flush."""
    dead_letters_topic: str = "dead-letters"
    """Topic that gets entries that cannot be partitioned."""
    backfills_topic: str = "backfills"
    """Topic that gets the run records of backfills; the worker does not use it."""
    start_at: StartAt = "beginning"
    """Start on a TopicPartition without a committed offset: beginning; fail; or a time with its zone such as 2026-11-27T09:00:00Z, the first record of that time or later by Kafka's timestamps."""
    entries_per_s_max: float | None = Field(None, gt=0)
    """Entries that a worker takes a second at most, so that catching up leaves room for others; a record is never split. By default as many as it can."""
    accept_unknown_history: bool = False
    """Start even if the flushes topic is unreadable. Risk: if the committed offset is stale, data is published twice."""
    accept_groups: Names = Field((), examples=["staging"])
    """Other groups that may publish the same source topics to the same topics: each has every entry once. A worker that finds flush records of any other group refuses to start."""
    session_timeout_s: PositiveSeconds = 30
    """Seconds without heartbeat until a worker is replaced (classic)."""
    message_bytes_max: Annotated[int, Field(ge=100_000, json_schema_extra=BYTES), TAKES_SIZE] = 900_000
    """Bytes of a message to references, flushes or dead letters; at most their max.message.bytes."""
    client_properties: Properties = Field({})
    """librdkafka properties, such as security.protocol (JSON object); the page lists those that may be set."""
    secret_properties: SecretProperties = Field({})
    """librdkafka properties that must not be shown, such as sasl.password (JSON object)."""

    @property
    def sources(self) -> SourceNames:
        """Which topics are source topics."""
        return SourceNames(self.source_topics)

    @property
    def inline_text_max(self) -> int:
        """Bytes of schema text that a message of references has room for beside its lines."""
        return self.message_bytes_max // 4

    def properties_of(self, role: Role) -> dict[str, str]:
        """Return the properties that are passed to one kind of client, secrets revealed; the others are dropped."""
        secrets = {name: secret.get_secret_value() for name, secret in self.secret_properties.items()}
        given = {**self.client_properties, **secrets}
        return {name: value for name, value in given.items() if name in ALLOWED[role] and is_allowed(name, value)}


class InputSettings(Section):
    """Rules for splitting a record, and its bounds."""

    entries_per_record_max: ClassVar[int] = 100_000  # more is a dead letter,
    json_depth_max: ClassVar[int] = 100  # and so are more levels of nesting in an entry

    format: Literal["json", "ndjson", "access-log", "syslog", "cri", "text", "avro", "protobuf", "otlp"] = "json"
    """json: an object, an array of objects or an envelope; ndjson: one object per line; access-log, syslog, cri (containers), text (by input.pattern): one line each; avro, protobuf: one value by its schema; otlp: logs of OpenTelemetry."""
    pattern: str | None = Field(None, examples=["(?P<time>[^ ]+) (?P<user>[^ ]+) (?P<message>.*)"])
    """Pattern (RE2) of lines of format text: it matches all of a line, and its named groups are the members of an entry."""
    schema_file: Path | None = None
    """File with the schema of all records, in place of a registry, read once: .avsc; .proto, or the descriptors that protoc makes of it."""
    schema_message: str | None = Field(None, examples=["logs.v1.Entry"])
    """Full name of the message in a schema_file of protobuf; by default its first."""
    framing: Literal["none", "confluent", "apicurio8", "glue"] = "none"
    """The id of a schema stands before the content: confluent (five bytes, or a header), apicurio8 (nine), glue (AWS, 18); none: nothing does."""
    entries_path: str | None = None
    """Keys from an envelope to its entries, as a.b[].c[]: [] after a list; an object at the end is one entry."""
    envelope: Literal["keep", "drop"] = "keep"
    """Other members of an envelope: keep them in each row, under _envelope, or drop them."""
    record_bytes_max: PositiveBytes = 16 * 1024 * 1024
    """Bytes of a record after decompression; larger is a dead letter."""
    discard_replays: bool = False
    """Discard what a republisher has published before, by the links of the header source-topic-chain. Risk: one that publishes out of order, or shares its name with another, loses records."""
    inexact_numbers: Literal["round", "text"] = "round"
    """A number that a double does not hold: round it to the nearest, or keep its JSON text."""

    @cached_property
    def schema_content(self) -> bytes | None:
        """The bytes of `schema_file`, if one is set; once read it goes with the settings to where the file is not.

        Raises:
            OSError: it cannot be read.
        """
        return None if self.schema_file is None else self.schema_file.read_bytes()


class UserSettings(Section):
    r"""Paths at which the user of an entry is looked up.

    A path is dotted keys (`\.` for a dot in a key) of the entry; `envelope:path`, `key`, `key:path` (the record key as
    JSON) and `header:name` look elsewhere. `a::b` is key b in the JSON that is a text under a (`\:` for a colon in a key).
    The first path that yields a value wins.
    """

    paths: Names = Field(("user",), min_length=1)
    """Paths to the user, tried in this order."""
    no_values: Names = ("", "-")
    """Values treated as a missing user."""
    missing_name: str | None = Field(None, min_length=1, max_length=4096)
    """User of entries that have none; by default they become dead letters."""


class TimeSettings(Section):
    """Paths at which the event time of an entry is looked up, and how it is read; paths as for `user`."""

    paths: Names = ("time", "timestamp", "@timestamp")
    """Paths to the event time, tried in this order."""
    format: TimeFormat | None = Field(None, examples=["%d/%m/%Y %H:%M:%S"])
    """One more form of texts, tried first, of %Y %y %m %b %d %a %H %M %S %z and other characters: %S takes a fraction, a space several; without a year it is the newest year by which the time is within the window. There is no fast lane then."""
    epoch_unit: Literal["auto", "s", "ms", "us", "ns"] = "auto"
    """Unit of numbers; auto decides by magnitude."""
    zone: Zone = _UTC
    """Time zone of texts that name none."""
    earliest: Moment = datetime(2000, 1, 1, tzinfo=UTC)
    """Event times before this are absurd (ISO-8601; UTC if it names no zone)."""
    future_max_s: PositiveSeconds = 86_400
    """Seconds past the Kafka record's timestamp beyond which an event time is absurd."""
    missing: Literal["record-timestamp", "dead-letter"] = "record-timestamp"
    """Treatment of an entry whose event time is missing or absurd."""

    @cached_property
    def earliest_us(self) -> int:
        """Microseconds since the epoch of `earliest`."""
        return (self.earliest - _EPOCH) // timedelta(microseconds=1)

    @cached_property
    def future_max_us(self) -> int:
        """Microseconds of `future_max_s`."""
        return round(self.future_max_s * 1_000_000)


class IdSettings(Section):
    """Paths at which the unique id of an entry is looked up; paths as for `user`."""

    paths: Names = ()
    """Paths to the unique id, tried in this order."""


class TopicSettings(Section):
    """Settings that a source topic has of its own; `Settings.of_topic` puts the worker's if none is given."""

    input: InputSettings = InputSettings()
    """Settings of section input, for the records of this topic."""
    user: UserSettings = UserSettings()
    """Settings of section user, for the records of this topic."""
    time: TimeSettings = TimeSettings()
    """Settings of section time, for the records of this topic."""
    id: IdSettings = IdSettings()
    """Settings of section id, for the records of this topic."""


def _section_with(worker: Section, own: Section) -> Section:
    """Return a section in which the settings that a topic gives stand in place of the worker's."""
    given = {name: getattr(own if name in own.model_fields_set else worker, name) for name in type(worker).model_fields}
    return type(worker).model_construct(worker.model_fields_set | own.model_fields_set, **given)


class SchemaBounds(NamedTuple):
    """Bounds of one aggregated schema (DESIGN 3.3); the first three are rules by position, and so part of the join.

    An object or array deeper than `depth_max` (the entry itself has depth 1) is JSON text; an object with more than
    `object_keys_max` distinct keys is a map. Nesting beyond `json_depth_max` makes the entry a dead letter.
    `fields_max` counts nested fields too; `bytes_max` bounds the estimated bytes of the schema's text. Beyond these two
    a PartitionKey goes on in another object.
    """

    depth_max: int = 16
    object_keys_max: int = 500
    json_depth_max: int = InputSettings.json_depth_max
    fields_max: int = 1000
    bytes_max: int = 512 * 1024


class PartitionSettings(Section):
    """The meaning of date and hour."""

    zone: Zone = _UTC
    """Time zone of date and hour in a PartitionKey."""


class DeadLettersSettings(Section):
    """The bound on dead letters."""

    share_max: float = Field(0.99, gt=0, le=1)
    """If the share of dead entries in a group's first batch on its TopicPartitions reaches this, the worker stops and commits nothing: a wrong path would commit a topic away. 1 commits such a batch."""


class SpoolSettings(Section):
    """The local disk between record and object; disposable, wiped at start."""

    packed_bytes_max: ClassVar[int] = 1024 * 1024  # of rows of a PartitionKey in a batch; with more it has an object
    pack_bytes_max: ClassVar[int] = 32 * 1024 * 1024
    object_bytes_max: ClassVar[int] = 64 * 1024 * 1024  # of rows of a PartitionKey in an object; it goes on in another
    block_bytes: ClassVar[int] = 64 * 1024  # of rows in an Avro block before compression

    directory: Path = Path("spool")
    """Directory for rows and objects of the batch; each worker uses one of its own in it."""
    bytes_max: PositiveBytes = 2 * 1024 * 1024 * 1024
    """Bytes on disk; a batch is flushed before, and if that frees nothing the consumer is paused."""
    memory_bytes_max: PositiveBytes = 128 * 1024 * 1024
    """Bytes of the open batch in memory: entries beyond go to disk, rows and PartitionKeys cause a flush."""
    codec: Literal["zstandard", "deflate", "null"] = "zstandard"
    """Avro codec of the objects."""


class VerifySettings(Section):
    """Verification mode: flushes are judged right after their commit, as the audit does."""

    share: float = Field(0.0, ge=0, le=1)
    """Share of flushes that are verified; 0: none, 1: all."""
    on_difference: Literal["report", "unready", "stop"] = "report"
    """Consequence of a difference: a metric and a line of the log; with unready /readyz fails from then on, too, and with stop the process ends before the next commit."""


class HttpSettings(Section):
    """One port for /livez, /readyz, /metrics, and a page for people at /."""

    host: str = "0.0.0.0"  # noqa: S104 - probes come from outside the pod
    """Address to listen on."""
    port: int = Field(8080, ge=0, le=65535)
    """Port; 0 takes a free one."""


class LogSettings(Section):
    """Level and form of the worker's log."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """Lowest level that is written."""
    format: Literal["auto", "json", "console"] = "auto"
    """auto: console on a terminal, JSON elsewhere."""


class Settings(SourcedSettings):
    """All settings of a worker."""

    prefix = PREFIX
    schema_bounds: ClassVar[SchemaBounds] = SchemaBounds()

    worker: str = Field(default_factory=socket.gethostname, min_length=1, max_length=255)
    """Name of this worker, unique among live ones; the pod's name."""
    transactional_id_prefix: str = Field("log-partitioner", min_length=1, max_length=255)
    """Prefix of the transactional id, for ACLs."""
    layout: Layout = "auto"
    """Objects: pack puts PartitionKeys together, file gives each its own (for erasure by user), auto packs all but the large and the few."""
    fast_lane: Literal["auto", "off"] = "auto"
    """Compiled code for plain records, if it is installed and the settings allow it; or none."""
    kafka: KafkaSettings
    input: InputSettings = InputSettings()
    registry: RegistrySettings = RegistrySettings()
    user: UserSettings = UserSettings()
    time: TimeSettings = TimeSettings()
    id: IdSettings = IdSettings()
    topics: Annotated[dict[str, TopicSettings], BeforeValidator(object_of)] = Field(
        {}, examples=[{"nginx": {"input": {"format": "access-log"}, "user": {"paths": "client"}}}]
    )
    """Settings of sections input, user, time and id that single source topics have of their own, as {"topic": {"section": {"setting": value}}}; the worker's hold for what is not given."""
    partition: PartitionSettings = PartitionSettings()
    flush: FlushSettings = FlushSettings()
    dead_letters: DeadLettersSettings = DeadLettersSettings()
    spool: SpoolSettings = SpoolSettings()
    s3: S3Settings
    verify: VerifySettings = VerifySettings()
    http: HttpSettings = HttpSettings()
    log: LogSettings = LogSettings()

    @cached_property
    def _by_topic(self) -> dict[str, Settings]:
        return {
            topic: self.model_copy(
                update={name: _section_with(getattr(self, name), getattr(own, name)) for name in own.model_fields_set}
            )
            for topic, own in self.topics.items()
        }

    def of_topic(self, topic: str) -> Settings:
        """Return the settings by which records of a source topic are read: these, if it has none of its own."""
        return self._by_topic.get(topic, self)

    def each_reading(self) -> Iterator[tuple[str, Settings]]:
        """Yield these settings and those of single topics, each behind the begin of sentences about it."""
        yield "", self
        yield from ((f"topics.{topic}: ", settings) for topic, settings in self._by_topic.items())

    @property
    def secrets(self) -> list[str]:
        """Every value that must not be shown."""
        found = [
            self.s3.access_key,
            self.s3.secret_key,
            self.registry.password,
            self.registry.token,
            *self.kafka.secret_properties.values(),
        ]
        return [secret.get_secret_value() for secret in found if secret is not None]

    @property
    def transactional_id(self) -> str:
        """The id that fences an earlier process of the same worker; unique per live process.

        Injective, because neither of the two parts behind the prefix keeps a dot; a long id is cut, with a hash.
        """
        return f"{self.transactional_id_prefix}.{key_safe(self.kafka.group_id)}.{key_safe(self.worker)}"

    @property
    def backfill_transactional_id(self) -> str:
        """The one id of all backfills of a group; no worker's, which has no slash behind the prefix."""
        return f"{self.transactional_id_prefix}.{key_safe(self.kafka.group_id)}/backfill"

    @property
    def replay_transactional_id(self) -> str:
        """The one id of all replays of a group's dead letters, by the same rule."""
        return f"{self.transactional_id_prefix}.{key_safe(self.kafka.group_id)}/replay"

    @property
    def offsets_transactional_id(self) -> str:
        """The one id of `offsets adopt`, by the same rule."""
        return f"{self.transactional_id_prefix}.{key_safe(self.kafka.group_id)}/offsets"
