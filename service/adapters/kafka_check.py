"""What the client library itself refuses of the properties that settings pass through: asked without any broker.

It knows names, values, files and what belongs together better than a list here would.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaException

from service.adapters.kafka_options import consumer_options, producer_options
from service.config.kafka_properties import is_secret, refused
from service.config.settings import KafkaSettings, Settings
from service.privacy import veiled

_TOGETHER = "Failed to create "  # begins what the library says of properties that do not fit together
_FILES = tuple(f"ssl.{name}.location" for name in ("ca", "certificate", "key", "keystore", "crl"))
_NO_FILE = ("", "probe")
_CONSUMER, _PRODUCER = "consumer", "producer"


def find_refused(settings: Settings) -> list[str]:
    """Find what no client could be made with; one sentence each, in which no secret stands."""
    kafka = settings.kafka
    found = [*dict.fromkeys(_of_each(kafka)), *_files(kafka)]
    if found:  # what is left without these may not fit together
        return found
    told = {
        _CONSUMER: consumer_options(settings, worker=settings.worker),
        _PRODUCER: producer_options(settings, worker=settings.worker, transactional_id=settings.transactional_id),
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
    """Ask for each alone; what is refused anyway, or is a secret that is shown, `config.checks` says."""
    for role, place, name, value in _passed(kafka):
        hidden = place == "secret_properties"
        if refused(name, value) is None and (hidden or not is_secret(name)):
            text = _refusal(role, {"group.id": "none", name: value} if role == _CONSUMER else {name: value})
            if text is not None and not text.startswith(_TOGETHER):
                why = "the name or its value" if hidden else text
                yield f"kafka.{place}: {name} is refused by the client library: {why}"


def _files(kafka: KafkaSettings) -> Iterator[str]:
    passed = list(_passed(kafka))
    if any("ssl" in value.lower() for _, _, name, value in passed if name == "security.protocol"):
        for place, name, value in dict.fromkeys(one[1:] for one in passed):
            if name in _FILES and value not in _NO_FILE and not os.access(value, os.R_OK):
                yield f"kafka.{place}: {name} names no file that can be read: {value}"


def _passed(kafka: KafkaSettings) -> Iterator[tuple[str, str, str, str]]:
    """Give role, place, name and value of each property."""
    secrets = {name: secret.get_secret_value() for name, secret in kafka.secret_properties.items()}
    places: tuple[tuple[str, tuple[str, ...], Mapping[str, str]], ...] = (
        ("client_properties", (_CONSUMER, _PRODUCER), kafka.client_properties),
        ("consumer_properties", (_CONSUMER,), kafka.consumer_properties),
        ("producer_properties", (_PRODUCER,), kafka.producer_properties),
        ("secret_properties", (_CONSUMER, _PRODUCER), secrets),
    )
    for place, roles, properties in places:
        for name, value in properties.items():
            for role in roles:
                yield role, place, name, value


def _refusal(role: str, options: Mapping[str, Any]) -> str | None:
    """Make a client that knows no broker, and let go of it; gives what the library says against it."""
    logger = logging.Logger("check")  # noqa: LOG001 - not in the tree of loggers: nobody hears it
    logger.addHandler(logging.NullHandler())
    try:
        if role == _CONSUMER:
            confluent_kafka.Consumer({**options, "bootstrap.servers": ""}, logger=logger).close()
        else:
            confluent_kafka.Producer({**options, "bootstrap.servers": ""}, logger=logger)
    except KafkaException as error:
        return str(error.args[0].str())
    except (TypeError, ValueError, AttributeError) as error:  # the binding's own names
        return str(error)
    return None
