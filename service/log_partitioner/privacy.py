"""Keeps users and secrets out of log lines, error texts and exit messages (I11).

Users come into texts by object keys (`user=...`, also as S3 quotes them in its answers) and by the texts of foreign
exceptions. A user in a key becomes `~` and a keyed hash. The key is random for each process, so that a reader cannot
try names, and lines about one user still belong together. The object is found by the rest of its key: batch id and
number stand in references and in the store.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import sys
import traceback
from collections.abc import Iterable

from structlog.typing import EventDict, WrappedLogger

from log_partitioner.errors import LogPartitionerError

SECRET_CHARS_MIN = 6  # a shorter one is a part of too many words
_KEY = secrets.token_bytes(16)
_USER = re.compile(r"(user(?:=|%3D))([\w%.~-]+)", re.IGNORECASE)
_HIDDEN: set[str] = set()


def hide(values: Iterable[str]) -> None:
    """Never write these secrets from now on, in whatever text they appear."""
    for value in values:
        if len(value) >= SECRET_CHARS_MIN:
            _HIDDEN.update((value, json.dumps(value)[1:-1], repr(value)[1:-1]))


def veiled(text: str) -> str:
    """Return a text with the users of its object keys hashed, and without the secrets of this process."""
    for value in sorted(_HIDDEN, key=len, reverse=True):
        text = text.replace(value, "**********")
    return _USER.sub(lambda found: f"{found[1]}~{_hash(found[2])}", text)


def printable(text: str) -> str:
    """Keep control characters of data or logs from steering the terminal."""
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in text)


def describe(error: BaseException) -> str:
    """Return the class of an exception, and its text unless it may hold input, as a foreign one may."""
    name = type(error).__name__
    if isinstance(error, LogPartitionerError | AssertionError):
        return f"{name}: {veiled(str(error))}"
    if isinstance(error, OSError) and error.strerror:
        return f"{name}: {error.strerror}"
    return f"{name} (its text may hold input, and is not shown)"


def trace(error: BaseException) -> str:
    """Return the traceback of an exception, causes first, with `describe` in place of its text; several lines."""
    before = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    frames = "".join(traceback.format_list(traceback.extract_tb(error.__traceback__)))
    return (trace(before) if before is not None else "") + f"Traceback:\n{frames}{describe(error)}\n"


def say_trace(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Return an event of structlog with its exception's traceback, without a text that may hold input."""
    error = event.pop("exc_info", None)
    error = sys.exc_info()[1] if error is True else error
    if isinstance(error, BaseException):
        event["exception"] = trace(error)
    return event


def _hash(user: str) -> str:
    return hashlib.blake2s(user.encode(), key=_KEY, digest_size=4).hexdigest()
