"""librdkafka's own lines and errors, through the logger of the service; and the state of the brokers that they tell.

The library repeats itself some thirty times a second while a broker does not answer, in two ways. One line is written
for each address and reason, and again at a growing distance; the same holds for every other line that comes again.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import structlog
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from log_partitioner.errors import StopError, TokenError
from log_partitioner.pace import Pace

C = TypeVar("C")

SILENT_S = 4.0  # without an answer or an error, after which a broker is reported as silent
# Trouble that is not reported again for so long is over. The library tries again every 10 s at least, and reports the
# same error again every 30 s.
TROUBLE_S = 45.0
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_NUMBERS = re.compile(r"\d+")
_FAILURE = re.compile(
    r"(?P<address>[\w.\-]+:\d+|\[[0-9a-f:]+\]:\d+)(?:/\w+)?: "
    r"(?P<text>.+?)(?: \(after \d+ms in state (?P<state>\w+).*)?$"
)
# Reasons by the library's text; the first that fits counts. An HTTP or TLS answer gives "Invalid response size".
_CLOSES = "closes the connection: not a Kafka broker, or another security.protocol"
_REASONS = tuple(
    (re.compile(pattern, re.IGNORECASE), reason)
    for pattern, reason in (
        ("failed to resolve", "unknown host"),
        ("timed out|timeout", "no answer"),
        ("sasl|authentication fail", "SASL refused"),
        ("ssl|certificate|tls", "TLS failed"),
        ("connection refused", "connection refused"),
        ("invalid response size|apiversion", "not a Kafka broker, or not by this security.protocol"),
        ("disconnected|reset by peer|closed", _CLOSES),
        ("no route|unreachable", "no route"),
    )
)
_OF_BROKERS = {
    KafkaError._TRANSPORT,  # noqa: SLF001 - librdkafka's own codes begin with an underscore
    KafkaError._RESOLVE,  # noqa: SLF001
    KafkaError._SSL,  # noqa: SLF001
    KafkaError._AUTHENTICATION,  # noqa: SLF001
    KafkaError._BAD_MSG,  # noqa: SLF001
    KafkaError._TIMED_OUT,  # noqa: SLF001
}


class Trouble(NamedTuple):
    """The last reported trouble with a broker."""

    address: str
    reason: str
    cause: str
    since_s: float
    seen_s: float


class GroupRefusal(NamedTuple):
    """The group's last reason not to take the worker in; the worker waits for a full group."""

    text: str
    is_full: bool
    seen_s: float


class Brokers:
    """The brokers' state, as this process's clients report it; written by the loop thread, read by the probes' too."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self.now_s = now_s
        self.pace = Pace(now_s)
        self._trouble: Trouble | None = None
        self._refusal: GroupRefusal | None = None
        self._answered = False
        self._log = structlog.get_logger("brokers")

    def failed(self, address: str, reason: str, cause: str) -> None:
        """Note that a broker does not answer as it should, and log it if that is due."""
        now_s, before = self.now_s(), self._trouble
        is_same = before is not None and (before.address, before.reason) == (address, reason)
        since_s = before.since_s if is_same and before is not None else now_s
        self._trouble = Trouble(address, reason, cause, since_s, now_s)
        if times := self.pace.times((address, reason)):
            self._log.warning("broker_unreachable", address=address, reason=reason, cause=cause, times=times)

    def all_down(self) -> None:
        """Note that no broker is left."""
        self._answered = False

    def answered(self) -> None:
        """Note that the cluster answers requests."""
        self._trouble, self._answered = None, True

    def trouble(self) -> str | None:
        """Name the failing broker and its trouble in one sentence; None if none fails, or others answer."""
        trouble, now_s = self._trouble, self.now_s()
        if trouble is None or self._answered or now_s - trouble.seen_s > TROUBLE_S:
            return None
        since = f"for {now_s - trouble.since_s:.0f} s"
        return f"broker {trouble.address}: {trouble.reason}, {since} ({trouble.cause})"

    def refused(self, text: str, *, is_full: bool) -> None:
        """Note the reason that keeps the worker out of the group."""
        self._refusal = GroupRefusal(text, is_full, self.now_s())

    def joined(self) -> None:
        """Note that the group has taken the worker in."""
        self._refusal = None

    def refusal(self) -> GroupRefusal | None:
        """Return the reason that keeps the worker out of the group; the library asks again every few seconds."""
        refusal = self._refusal
        return refusal if refusal is not None and self.now_s() - refusal.seen_s <= TROUBLE_S else None

    def waited(self, addresses: str, since_s: float) -> None:
        """Log that nothing has answered: no answer and no error for SILENT_S, or TROUBLE_S after an error."""
        now_s, trouble = self.now_s(), self._trouble
        is_silent = trouble is None or trouble.reason == "no answer"
        seen_s = since_s if trouble is None else trouble.seen_s
        if now_s - max(since_s, seen_s) >= (SILENT_S if is_silent else TROUBLE_S):
            self._answered = False
            cause = "it takes the connection and says nothing, or packets to it are dropped"
            self.failed(addresses, "no answer", cause)
            if trouble is None or trouble.reason != "no answer":
                assert self._trouble is not None, "it was noted"
                self._trouble = self._trouble._replace(since_s=since_s)


class ClientLog(logging.Handler):
    """A stdlib handler that hands each line of the client library on; called from its polling thread only."""

    def __init__(self, client: str, brokers: Brokers) -> None:
        super().__init__()
        self._log = structlog.get_logger("librdkafka").bind(client=client)
        self._brokers = brokers
        self._client = client

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line, unless it is about a broker, or repeats one that was written a moment ago."""
        line, level = record.getMessage(), record.levelname.lower()
        if line.startswith("FAIL") and self._is_of_broker(line.partition("]: ")[2]):
            return
        if times := self._brokers.pace.times((self._client, _NUMBERS.sub("#", line))):
            self._log.log(_LEVELS.get(level, logging.WARNING), "client_log", line=line, times=times)

    def on_error(self, error: KafkaError) -> None:
        """Log an error that the client library reports outside of a call; calls return fatal errors, too."""
        if error.code() == KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001
            self._brokers.all_down()
            return
        if error.code() in _OF_BROKERS and not error.fatal() and self._is_of_broker(error.str()):
            return
        if times := self._brokers.pace.times((self._client, error.code(), _NUMBERS.sub("#", error.str()))):
            text = {"code": error.name(), "fatal": error.fatal(), "message": error.str()}
            self._log.warning("client_error", **text, times=times)

    def _is_of_broker(self, text: str) -> bool:
        """Note a failed connection; one that ends after use has not failed, because brokers close idle ones."""
        found = _FAILURE.search(text)
        if found is None:
            return False
        cause = found["text"]
        reason = next((reason for pattern, reason in _REASONS if pattern.search(cause)), "fails")
        if found["state"] != "UP" or reason != _CLOSES:
            self._brokers.failed(found["address"], reason, cause)
        return True


def client_logger(client: str, brokers: Brokers | None = None) -> tuple[logging.Logger, ClientLog]:
    """Make a logger to pass to a client, and its handler; clients of one cluster share `brokers`."""
    handler = ClientLog(client, brokers or Brokers())
    logger = logging.Logger(f"librdkafka.{client}", logging.DEBUG)  # noqa: LOG001 - not in the tree of loggers: nobody else handles it
    logger.addHandler(handler)
    return logger, handler


def make_client(kind: Callable[..., C], name: str, options: Mapping[str, Any], brokers: Brokers | None = None) -> C:
    """Make a client of the library that logs and reports here.

    Raises:
        StopError: the library refuses a setting; its text may name the value. A TokenError: it has no token.
    """
    logger, handler = client_logger(name, brokers)
    return _made(kind, {**options, "error_cb": handler.on_error}, logger)


def make_admin(options: Mapping[str, Any]) -> AdminClient:
    """Make an admin client that logs here; it is never polled, or it would warn about a consumer's duties.

    Raises:
        StopError: as `make_client`.
    """
    logger, _ = client_logger("admin")
    return _made(AdminClient, dict(options), logger)


def _made(kind: Callable[..., C], options: dict[str, Any], logger: logging.Logger) -> C:
    try:
        return kind(options, logger=logger)
    except (KafkaException, TypeError, ValueError) as error:
        text = error.args[0].str() if isinstance(error, KafkaException) else str(error)
        if isinstance(error, KafkaException) and error.args[0].code() == KafkaError.SASL_AUTHENTICATION_FAILED:
            raise TokenError(f"no token to log in to Kafka with: {text}") from error
        raise StopError(f"the client library refuses its settings: {text}") from error
    except SystemError as error:  # the binding's, if the callback for a token fails while a client is made
        if "oauth_cb" not in options:
            raise
        raise TokenError("no token to log in to Kafka with") from error


def fields_of(error: KafkaError) -> dict[str, Any]:
    """Return an error as fields of a log line."""
    return {
        "code": error.name(),
        "message": error.str(),
        "fatal": error.fatal(),
        "retriable": error.retriable(),
    }
