"""librdkafka options: those that the promise needs, those that settings pass through, and those that it refuses.

Everything is passed explicitly, never left to a default that might change (KAFKA_FACTS F7, O1). The library knows
names, values, files and combinations of properties better than a list here would; to be asked it needs no broker.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaException

from log_partitioner.adapters.kafka import msk
from log_partitioner.config.checks import lacking_for_msk
from log_partitioner.config.kafka_properties import SECRET, Role
from log_partitioner.config.settings import KafkaSettings, Settings
from log_partitioner.errors import SettingsError
from log_partitioner.privacy import hide, veiled

_MESSAGE_MAX_BYTES = 1_000_000  # librdkafka's default
_QUEUE_MAX_KBYTES = 65_536  # copies of messages in memory; librdkafka's default is a GiB
PINNED_PRODUCER: dict[str, Any] = {
    "enable.idempotence": True,
    "acks": "all",
    "compression.type": "zstd",
    "linger.ms": 5,
    "allow.auto.create.topics": False,
    # Offsets are sent until a request has failed, whatever time-out the call was given (KAFKA_FACTS T17).
    "socket.timeout.ms": 10_000,
}
PINNED_CONSUMER: dict[str, Any] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    "isolation.level": "read_committed",
    "allow.auto.create.topics": False,
    "check.crcs": True,
    "enable.partition.eof": True,
    # librdkafka sleeps that long when its queue is full; its default of 1000 starves a fast loop (KAFKA_FACTS L6).
    "fetch.queue.backoff.ms": 20,
    "queued.max.messages.kbytes": 32_768,
    "topic.metadata.refresh.interval.ms": 60_000,
}
_TOGETHER = "Failed to create "  # the beginning of the library's text if properties do not fit together
_CLIENT = "log-partitioner-"  # the beginning of a worker's client id
_FILES = tuple(f"ssl.{name}.location" for name in ("ca", "certificate", "key", "keystore", "crl"))
_NO_FILE = ("", "probe")
_ROLES: tuple[Role, ...] = ("consumer", "producer")


def given_options(kafka: KafkaSettings, role: Role) -> dict[str, Any]:
    """Return what settings pass through, and the way to log in.

    Raises:
        SettingsError: logging in needs a token, and there is none.
    """
    return {**kafka.properties_of(role), **(msk.login() if kafka.auth == "msk-iam" else {})}


def consumer_options(settings: Settings, *, worker: str) -> dict[str, Any]:
    """Return the consumer's options: defaults, then the settings' options, then those that the promise needs.

    Raises:
        SettingsError: as `given_options`.
    """
    kafka = settings.kafka
    options: dict[str, Any] = {**PINNED_CONSUMER, **given_options(kafka, "consumer")}
    options |= {
        "bootstrap.servers": kafka.bootstrap_servers,
        "client.id": f"{_CLIENT}{worker}",
        "group.id": kafka.group_id,
        "group.protocol": kafka.group_protocol,
        "max.poll.interval.ms": round(settings.flush.max_poll_interval_s * 1000),
    }
    if kafka.group_protocol == "classic":
        options |= {
            "partition.assignment.strategy": "cooperative-sticky",
            "session.timeout.ms": round(kafka.session_timeout_s * 1000),
            "heartbeat.interval.ms": round(kafka.session_timeout_s * 1000 / 10),
        }
    return options


def producer_options(settings: Settings, *, worker: str, transactional_id: str) -> dict[str, Any]:
    """Return the producer's options, in the same order of precedence.

    Raises:
        SettingsError: as `given_options`.
    """
    kafka = settings.kafka
    sizes = {  # a broker refuses a batch, not a message, that is larger than max.message.bytes
        "batch.size": kafka.message_bytes_max,
        "message.max.bytes": max(_MESSAGE_MAX_BYTES, kafka.message_bytes_max),
        "queue.buffering.max.kbytes": max(_QUEUE_MAX_KBYTES, 2 * kafka.message_bytes_max // 1024),
    }
    options: dict[str, Any] = {**sizes, **PINNED_PRODUCER, **given_options(kafka, "producer")}
    return options | {
        "bootstrap.servers": kafka.bootstrap_servers,
        "client.id": f"{_CLIENT}{worker}",
        "transactional.id": transactional_id,
        "transaction.timeout.ms": round(settings.flush.transaction_timeout_s * 1000),
    }


def worker_of(client_id: str) -> str:
    """Return the name of the worker with this client id."""
    return client_id.removeprefix(_CLIENT)


def find_refused(settings: Settings) -> list[str]:
    """Find settings with which no client can be made; one sentence each, without secrets."""
    hide(settings.secrets)
    kafka = settings.kafka
    found = [*dict.fromkeys(_of_each(kafka)), *_files(kafka)]
    if found:  # the others may not fit together without these
        return found
    if kafka.auth == "msk-iam" and any(lacking_for_msk()):  # which the settings' own checks have said
        return []
    try:
        told: dict[Role, dict[str, Any]] = {
            "consumer": consumer_options(settings, worker=settings.worker),
            "producer": producer_options(settings, worker=settings.worker, transactional_id=settings.transactional_id),
        }
    except SettingsError as error:
        return error.problems
    texts: dict[str, list[str]] = {}
    for role, options in told.items():
        if (text := _refusal(role, options)) is not None:
            texts.setdefault(veiled(text.removeprefix(f"{_TOGETHER}{role}: ")), []).append(f"no {role}")
    return [
        f"kafka: the client library makes {' and '.join(roles)} of these properties: {text}"
        for text, roles in texts.items()
    ]


def _of_each(kafka: KafkaSettings) -> Iterator[str]:
    """Ask for the value of each alone; `config.checks` judges names."""
    for role in _ROLES:
        for name, value in kafka.properties_of(role).items():
            place = _place(kafka, name)
            text = _refusal(role, {"group.id": "none", name: value} if role == "consumer" else {name: value})
            if text is not None and not text.startswith(_TOGETHER):
                why = "its value" if place == "secret_properties" or name in SECRET else text
                yield f"kafka.{place}: {name} is refused by the client library: {why}"


def _files(kafka: KafkaSettings) -> Iterator[str]:
    given = kafka.properties_of("consumer")
    if "ssl" in given.get("security.protocol", "").lower():
        for name in _FILES:
            if (value := given.get(name, "")) not in _NO_FILE and not os.access(value, os.R_OK):
                yield f"kafka.{_place(kafka, name)}: {name} names no file that can be read: {value}"


def _place(kafka: KafkaSettings, name: str) -> str:
    return "secret_properties" if name in kafka.secret_properties else "client_properties"


def _refusal(role: Role, options: Mapping[str, Any]) -> str | None:
    """Make a client that knows no broker, and close it; returns the library's refusal, if any."""
    logger = logging.Logger("check")  # noqa: LOG001 - not in the tree of loggers: no handler gets it
    logger.addHandler(logging.NullHandler())
    options = {name: value for name, value in options.items() if name != "oauth_cb"}  # it would be waited for
    try:
        if role == "consumer":
            confluent_kafka.Consumer({**options, "bootstrap.servers": ""}, logger=logger).close()
        else:
            confluent_kafka.Producer({**options, "bootstrap.servers": ""}, logger=logger)
    except KafkaException as error:
        return str(error.args[0].str())
    except (TypeError, ValueError, AttributeError) as error:  # the binding's own names
        return str(error)
    return None
