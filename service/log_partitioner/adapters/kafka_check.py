"""Asks the client library which properties of the settings it refuses; needs no broker.

The library knows names, values, files and combinations better than a list here would.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaException

from log_partitioner.adapters.kafka_options import consumer_options, producer_options
from log_partitioner.config.kafka_properties import SECRET, Role
from log_partitioner.config.settings import KafkaSettings, Settings
from log_partitioner.privacy import veiled

_TOGETHER = "Failed to create "  # begins what the library says of properties that do not fit together
_FILES = tuple(f"ssl.{name}.location" for name in ("ca", "certificate", "key", "keystore", "crl"))
_NO_FILE = ("", "probe")
_ROLES: tuple[Role, ...] = ("consumer", "producer")


def find_refused(settings: Settings) -> list[str]:
    """Find settings with which no client can be made; one sentence each, without secrets."""
    kafka = settings.kafka
    found = [*dict.fromkeys(_of_each(kafka)), *_files(kafka)]
    if found:  # what is left without these may not fit together
        return found
    told: dict[Role, dict[str, Any]] = {
        "consumer": consumer_options(settings, worker=settings.worker),
        "producer": producer_options(settings, worker=settings.worker, transactional_id=settings.transactional_id),
    }
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
    logger = logging.Logger("check")  # noqa: LOG001 - not in the tree of loggers: nobody hears it
    logger.addHandler(logging.NullHandler())
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
