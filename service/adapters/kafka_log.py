"""librdkafka's own lines and errors, through the logger of the service."""

from __future__ import annotations

import logging
from typing import Any

import structlog
from confluent_kafka import KafkaError

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


class ClientLog(logging.Handler):
    """A stdlib handler that hands each line of the client library on; called from its polling thread only."""

    def __init__(self, client: str) -> None:
        super().__init__()
        self._log = structlog.get_logger("librdkafka").bind(client=client)

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line."""
        level = record.levelname.lower()
        self._log.log(_LEVELS.get(level, logging.WARNING), "client_log", line=record.getMessage())

    def on_error(self, error: KafkaError) -> None:
        """Write what the client library reports beside its calls; fatal errors come back from the calls."""
        self._log.warning("client_error", code=error.name(), fatal=error.fatal(), message=error.str())


def client_logger(client: str) -> tuple[logging.Logger, ClientLog]:
    """Make a logger to pass to a client, and its handler."""
    handler = ClientLog(client)
    logger = logging.Logger(f"librdkafka.{client}", logging.DEBUG)  # noqa: LOG001 - not in the tree of loggers: nobody else handles it
    logger.addHandler(handler)
    return logger, handler


def describe(error: KafkaError) -> dict[str, Any]:
    """Put an error into fields."""
    return {
        "code": error.name(),
        "message": error.str(),
        "fatal": error.fatal(),
        "retriable": error.retriable(),
    }
