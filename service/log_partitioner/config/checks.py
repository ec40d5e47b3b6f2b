# ruff: noqa: E501 - one sentence, one line
"""The rules between settings: each has a name, and says what to change, with the numbers in it.

`load` reads settings and reports all problems of all kinds at once: names, values, and conflicts between settings whose
values are good. The checks are plain functions from settings to sentences.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from importlib.util import find_spec
from urllib.parse import SplitResult, urlsplit

from log_partitioner.config.kafka_properties import SECRET, is_allowed, why_not
from log_partitioner.config.section import parse_entries_path, parse_path
from log_partitioner.config.settings import Settings
from log_partitioner.config.source_topics import SourceNames, is_pattern
from log_partitioner.config.sources import aws_region, read_settings
from log_partitioner.errors import SettingsError

ALERT_WINDOW_S = 600  # of LogPartitionerNoCommit among the alerts of the chart
_LISTENERS = {"PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"}  # what the client library takes before ://
TAGS_MAX = 10  # of an object, as S3 has it
_NEEDED = ("kafka.bootstrap_servers", "kafka.source_topics", "s3.bucket")
EXAMPLE = """this is enough, with your own names:
  export LOGP_KAFKA__BOOTSTRAP_SERVERS=broker:9092 LOGP_KAFKA__SOURCE_TOPICS=app-logs
  export LOGP_S3__BUCKET=my-logs        # and LOGP_S3__ENDPOINT_URL=https://... unless it is on AWS
  export LOGP_USER__PATHS=user.id,account
  export LOGP_TIME__PATHS=@timestamp
  log-partitioner check-config"""
_BUCKET_NAME = re.compile(r"[a-zA-Z0-9._-]{1,255}\Z")  # older buckets, and other stores, have more than AWS allows now
_KAFKAS_OWN = ("__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata")
_TOPIC_NAME = re.compile(r"(?!\.{1,2}\Z)[a-zA-Z0-9._-]{1,249}\Z")


def load(*more: Callable[[Settings], Iterable[str]], kind: type[Settings] = Settings, **arguments: object) -> Settings:
    """Read all settings and check them, by `more` checks, too; `arguments` win over every other source.

    `kind` may have defaults of its own.

    Raises:
        SettingsError: has all problems of names, values and their combinations.
    """
    reading = read_settings(kind, **arguments)
    checks = (find_problems, *more)
    problems = reading.with_rules(problem for check in checks for problem in check(reading.settings))
    if reading.doubtful.issuperset(_NEEDED):
        problems.append(EXAMPLE)
    if problems:
        raise SettingsError(problems)
    return reading.settings


def find_problems(settings: Settings) -> list[str]:
    """Find everything that contradicts itself; one sentence each."""
    checks = (_sizes, _topics, _places, _readings, _properties, _msk, _credentials, _registry)
    return [problem for check in checks for problem in check(settings)]


def find_notes(settings: Settings) -> Iterator[str]:
    """Find allowed settings with an unexpected consequence."""
    interval_s = settings.flush.interval_s
    if interval_s > ALERT_WINDOW_S:
        yield (
            f"flush.interval_s ({interval_s:g}) is longer than the {ALERT_WINDOW_S} s in which the alert "
            "LogPartitionerNoCommit expects a commit: give its rule a longer window"
        )
    if settings.kafka.sources.has_patterns and settings.kafka.start_at == "fail":
        yield "kafka.start_at is fail: each topic that comes to match a pattern of kafka.source_topics ends the worker"


def _sizes(settings: Settings) -> Iterator[str]:
    flush, spool = settings.flush, settings.spool
    if 2 * flush.bytes_max > spool.bytes_max:
        yield (
            f"spool.bytes_max ({spool.bytes_max}) must be at least twice flush.bytes_max ({flush.bytes_max}): "
            "entries may lie there as rows and, while they are sealed, as objects"
        )


def _topics(settings: Settings) -> Iterator[str]:
    kafka = settings.kafka
    outputs = ("references_topic", "flushes_topic", "dead_letters_topic", "backfills_topic")
    own: list[str] = [getattr(kafka, name) for name in outputs]
    for name, topic in (*(("source_topics", topic) for topic in kafka.source_topics), *zip(outputs, own, strict=True)):
        if not _TOPIC_NAME.match(topic) and not (name == "source_topics" and is_pattern(topic)):
            yield f"kafka.{name}: {topic!r} is no topic name: 1 to 249 letters, digits, '.', '_' and '-', and neither '.' nor '..'"
    for topic in sorted({topic for topic in own if own.count(topic) > 1}):
        yield f"topic {topic} is named for more than one of references, flushes, dead letters and backfills"
    for entry in kafka.source_topics:
        read = SourceNames([entry])
        by = f" ({entry} matches it)" if is_pattern(entry) else ""
        for topic in sorted(topic for topic in {*own} if topic in read):
            yield f"topic {topic} is read{by} and written: the worker would consume its own output"
        for topic in [topic for topic in _KAFKAS_OWN if topic in read and by][:1]:
            yield f"kafka.source_topics: {entry} matches topics of Kafka itself, such as {topic}, which hold no logs"


def _places(settings: Settings) -> Iterator[str]:
    s3 = settings.s3
    servers = [server.strip() for server in settings.kafka.bootstrap_servers.split(",")]
    if not any(servers):
        yield "kafka.bootstrap_servers names no broker: host:port, separated by commas"
    for server in servers:
        if "://" in server and server.partition("://")[0].upper() not in _LISTENERS:
            yield (
                f"kafka.bootstrap_servers: {server.rpartition('@')[2]} begins with what is no listener of Kafka: give "
                "host:port alone, and what the connection is in kafka.client_properties, as security.protocol"
            )
    if not _BUCKET_NAME.match(s3.bucket):
        yield f"s3.bucket ({s3.bucket!r}) is no bucket name: letters, digits, '.', '_' and '-'; what follows it in keys is s3.prefix"
    if not all(s3.prefix.split("/")):
        yield f"s3.prefix ({s3.prefix!r}) must be one name or several with a / between them: keys are made of it, a / and more"
    if s3.endpoint_url is not None:
        address = _split(s3.endpoint_url)
        if address.scheme not in ("http", "https") or not address.hostname:
            shown = s3.endpoint_url if "@" not in s3.endpoint_url else "..."
            yield f"s3.endpoint_url ({shown!r}) must begin with http:// or https:// and a host"


def _readings(settings: Settings) -> Iterator[str]:
    for topic, own in settings.topics.items():
        if topic not in settings.kafka.sources:
            yield f"topics.{topic} has no effect: kafka.source_topics has no such topic"
        if (
            own.input.inexact_numbers != settings.input.inexact_numbers
            and "inexact_numbers" in own.input.model_fields_set
        ):
            yield f"topics.{topic}: input.inexact_numbers is of all topics, since entries of several share an object"
    for place, reading in settings.each_reading():
        yield from (f"{place}{problem}" for problem in _paths(reading))


def _paths(settings: Settings) -> Iterator[str]:
    source = settings.input
    if source.entries_path is not None and source.format not in ("json", "avro", "protobuf"):
        yield f"input.entries_path is of input.format json, avro and protobuf: {source.format} says itself what an entry is"
    if source.pattern is not None and source.format != "text":
        yield f"input.pattern has no effect: input.format {source.format} has a form of its own"
    if source.schema_message is not None and (source.format != "protobuf" or source.schema_file is None):
        yield "input.schema_message has no effect: it names a message of input.schema_file for input.format protobuf"
    try:
        parse_entries_path(source.entries_path or "entries")
    except ValueError as error:
        yield f"input.entries_path: {error}"
    for name, paths in (
        ("user", settings.user.paths),
        ("time", settings.time.paths),
        ("id", settings.id.paths),
    ):
        for path in paths:
            try:
                parse_path(path)
            except ValueError as error:
                yield f"{name}.paths: {error}"
            if path.startswith("envelope:") and source.entries_path is None and source.format != "otlp":
                yield f"{name}.paths: {path!r} finds nothing without input.entries_path, which makes an object an envelope"
    if settings.user.missing_name in settings.user.no_values:
        yield f"user.missing_name ({settings.user.missing_name!r}) is in user.no_values"


def _properties(settings: Settings) -> Iterator[str]:
    kafka = settings.kafka
    secrets = {name: secret.get_secret_value() for name, secret in kafka.secret_properties.items()}
    for place, properties in (("client_properties", kafka.client_properties), ("secret_properties", secrets)):
        for name, value in properties.items():
            if not is_allowed(name, value):
                yield f"kafka.{place}: {name} may not be set: {why_not(name)}"
            elif properties is secrets:
                continue
            elif name in SECRET:
                yield f"kafka.{place}: {name} belongs in kafka.secret_properties: this place is shown by check-config"
            elif "@" in _split(value).netloc:
                yield f"kafka.{place}: {name} has a user in its address, and is shown: it belongs in kafka.secret_properties"
    together = kafka.client_properties | secrets
    in_the_clear = "ssl" not in together.get("security.protocol", "").lower()
    if in_the_clear and "PLAIN" in (together.get("sasl.mechanism"), together.get("sasl.mechanisms")):
        yield "kafka: sasl.mechanism PLAIN sends the password in the clear without TLS: use SASL_SSL"


def _msk(settings: Settings) -> Iterator[str]:
    kafka = settings.kafka
    if kafka.auth != "msk-iam":
        return
    yield from lacking_for_msk()
    for name in sorted({*kafka.client_properties, *kafka.secret_properties}):
        if name.startswith("sasl.") or name == "security.protocol":
            yield f"kafka.auth (msk-iam) leaves no choice of {name}: leave it out of the properties"


def lacking_for_msk() -> Iterator[str]:
    """Find what tokens for Amazon MSK cannot be signed without."""
    if find_spec("aws_msk_iam_sasl_signer") is None:
        yield "kafka.auth (msk-iam) needs the optional group msk: pip install 'log-partitioner[msk]', or an image that is built with REQUIREMENTS=requirements-msk.lock"
    if aws_region() is None:
        yield "kafka.auth (msk-iam) signs for a region: set AWS_REGION"


def _credentials(settings: Settings) -> Iterator[str]:
    s3 = settings.s3
    for name in ("kms_key_id", "bucket_key"):
        if getattr(s3, name) is not None and not s3.encryption.startswith("aws:kms"):
            yield f"s3.{name} is of s3.encryption aws:kms, not of {s3.encryption}"
    if len(s3.tags) > TAGS_MAX:
        yield f"s3.tags are {len(s3.tags)}, an object has at most {TAGS_MAX}"
    if (settings.s3.access_key is None) != (settings.s3.secret_key is None):
        yield "s3.access_key and s3.secret_key belong together: set both or neither"
    if "@" in _split(settings.s3.endpoint_url or "").netloc:
        yield "s3.endpoint_url is shown by check-config: its user and password belong in s3.access_key and s3.secret_key"


def _registry(settings: Settings) -> Iterator[str]:
    registry = settings.registry
    address = _split(registry.url or "")
    if registry.url is not None and (address.scheme not in ("http", "https") or not address.hostname):
        yield "registry.url must begin with http:// or https:// and a host"
    if "@" in address.netloc:
        yield "registry.url is shown by check-config: its user and password belong in registry.user and registry.password"
    if (registry.user is None) != (registry.password is None):
        yield "registry.user and registry.password belong together: set both or neither"
    if registry.user is not None and registry.token is not None:
        yield "registry.token stands in place of registry.user and registry.password: set one or the other"
    if (registry.certificate_file is None) != (registry.key_file is None):
        yield "registry.certificate_file and registry.key_file belong together: set both or neither"
    if address.scheme == "http" and (registry.user or registry.token or registry.ca_file or registry.certificate_file):
        yield "registry.url begins with http://, which sends credentials in the clear and uses no certificate: https://"


def _split(address: str) -> SplitResult:
    """Split an address; a text that is no address yields empty parts."""
    try:
        return urlsplit(address)
    except ValueError:
        return urlsplit("")
