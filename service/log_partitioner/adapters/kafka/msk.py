"""Tokens of AWS IAM, by which clients log in to Amazon MSK; needs the optional group `msk`.

All clients of a process share a token, because each transaction has a client of its own, and the signer looks for
credentials anew each time. A token is renewed in the second half of its life: librdkafka asks again after four fifths
of the rest, and the old token serves as long as that fails (KAFKA_FACTS L13).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import structlog
from botocore.exceptions import BotoCoreError, ClientError

from log_partitioner.config.sources import aws_region
from log_partitioner.errors import SettingsError
from log_partitioner.pace import Pace

Sign = Callable[[], tuple[str, float]]

# The signer finds no credentials and reads an attribute of None, or they are empty.
_REFUSALS = (BotoCoreError, ClientError, AttributeError, ValueError)


class Token(NamedTuple):
    """A token; times are seconds since 1970."""

    text: str
    renewed_from_s: float
    ends_s: float


class Tokens:
    """Signs tokens and keeps the last one; safe to use from many threads, as librdkafka's own."""

    def __init__(self, sign: Sign, *, now_s: Callable[[], float] = time.time) -> None:
        self._sign = sign
        self._now_s = now_s
        self._token: Token | None = None
        self._lock = threading.Lock()
        self._pace = Pace(now_s)
        self._log = structlog.get_logger("msk")

    def __call__(self, _config: str = "") -> tuple[str, float]:
        """Return a token and its end; blocks while credentials are asked for.

        Raises:
            SettingsError: there is no new token, and the old one has ended.
        """
        with self._lock:
            now_s = self._now_s()
            if self._token is None or now_s >= self._token.renewed_from_s:
                self._renew(now_s)
            assert self._token is not None, "it was signed"
            return self._token.text, self._token.ends_s

    def _renew(self, now_s: float) -> None:
        try:
            text, ends_s = self._sign()
        except _REFUSALS as error:
            why = (
                "there are no credentials" if isinstance(error, AttributeError) else f"{type(error).__name__}: {error}"
            )
            if times := self._pace.times("token"):
                self._log.warning("token_refused", message=why, times=times)
            if self._token is None or now_s >= self._token.ends_s:
                raise SettingsError([f"kafka.auth (msk-iam): no token: {why}"]) from error
        else:
            self._token = Token(text, (now_s + ends_s) / 2, ends_s)


def _sign() -> tuple[str, float]:
    from aws_msk_iam_sasl_signer import MSKAuthTokenProvider  # noqa: PLC0415 - of an optional group

    text, ends_ms = MSKAuthTokenProvider.generate_auth_token(aws_region())
    return text, ends_ms / 1000


tokens = Tokens(_sign)


def login() -> dict[str, Any]:
    """Return the options by which a client logs in with tokens; blocks while the first one is signed.

    Raises:
        SettingsError: there is none.
    """
    tokens()
    return {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER", "oauth_cb": tokens}
