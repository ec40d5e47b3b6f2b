"""The client library's own reading of a property, from `debug=conf`, which prints values that are no default."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaException

REDACTED = "[redacted]"
_VALUES = (
    "x", "conf", "true", "false", "1", "2000", "10000", "none", "plain", "0", "ssl", "v4", "oidc", "ES256",
    "azure_imds", "SCRAM-SHA-256", "resolve_canonical_bootstrap_servers_only",
    "urn:ietf:params:oauth:grant-type:jwt-bearer",
)  # fmt: skip
_LINE = re.compile(r"\]:\s{3}(\S+) = (.*)$")
_OWN = {"error_cb", "log_cb", "log.queue", "opaque", "default_topic_conf", "dr_msg_cb", "rebalance_cb", "debug",
        "offset_commit_cb", "client.software.name", "client.software.version"}  # fmt: skip


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@cache
def effect(name: str) -> dict[str, str]:
    """Return the properties that setting this one changes, by the library's name; empty for an unknown property.

    A consumer's and a producer's together; the first of some values that is taken and not the default.
    """
    for value in _VALUES:
        kinds: tuple[type[Any], ...] = (confluent_kafka.Consumer, confluent_kafka.Producer)
        found = {made: text for kind in kinds for made, text in effective(kind, {name: value}).items()}
        if found:
            return found
    return {}


def effective(kind: type[Any], properties: dict[str, str]) -> dict[str, str]:
    """Return what the library says it has set, but for what every client sets; empty if it refuses."""
    logger, handler = logging.Logger("conf"), _Lines()  # noqa: LOG001 - nobody else handles it
    logger.addHandler(handler)
    group = {"group.id": "g"} if kind is confluent_kafka.Consumer and "group.id" not in properties else {}
    try:
        client = kind({"debug": "conf", **group, **properties}, logger=logger)
    except (KafkaException, TypeError, ValueError, AttributeError):  # the binding's own names
        return {}
    client.poll(0)
    if kind is confluent_kafka.Consumer:
        client.close()
    return dict(_changed(handler.lines, {*_OWN, *group} - properties.keys()))


def _changed(lines: list[str], without: set[str]) -> Iterator[tuple[str, str]]:
    for line in lines:
        found = _LINE.search(line)
        if found and found[1] not in without:
            yield found[1], found[2]
