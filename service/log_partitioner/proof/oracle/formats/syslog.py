"""`syslog`, from left to right; RFC 5424 is told by its version, 1."""

from __future__ import annotations

import re

from log_partitioner.config.settings import InputSettings
from log_partitioner.formats.dead_letter import Reason
from log_partitioner.proof.oracle.format import DeadError, Format, lines_of, text_of_line

_PRIORITIES = {str(number): number for number in range(192)}
_STAMP = re.compile(r"[A-Z][a-z][a-z] [ \d]?\d \d\d:\d\d:\d\d(\.\d+)?(?= )|\d{4}-[^ ]+(?= )", re.ASCII)
_NAME = re.compile(r'[^ =\]"]+')
_VALUE = re.compile(r'="((?>(?:[^"\\]|\\.)*))"', re.DOTALL)


def syslog(_settings: InputSettings) -> Format:
    """Return the rules of `syslog`."""
    return Format(lines=lines_of, parse=_entry)


def _entry(line: bytes) -> object:
    text = text_of_line(line)
    if not text.startswith("<"):
        return _of_3164(text)
    number, _, text = text[1:].partition(">")
    if number not in _PRIORITIES:
        raise DeadError(Reason.MALFORMED)
    rest = _of_5424(text.removeprefix("1 ")) if text.startswith("1 ") else _of_3164(text)
    return {"facility": _PRIORITIES[number] // 8, "severity": _PRIORITIES[number] % 8} | rest


def _of_3164(text: str) -> dict[str, object]:
    stamp = _STAMP.match(text)
    if stamp is None:
        raise DeadError(Reason.MALFORMED)
    host, space, rest = text[stamp.end() + 1 :].partition(" ")
    if not host:
        raise DeadError(Reason.MALFORMED)
    entry: dict[str, object] = {"time": stamp[0], "host": host}
    word, space_behind, message = rest.partition(" ")
    tag = _tag(word)
    if tag is not None:
        entry |= tag
        space, rest = space_behind, message
    return entry | ({"message": rest} if space else {})


def _tag(word: str) -> dict[str, str] | None:
    """Read `app:` or `app[pid]:`; None if a word is neither."""
    app, bracket, pid = word[:-1].partition("[")
    if not word.endswith(":") or not app or ":" in app:
        return None
    if not bracket:
        return {"app": app}
    return {"app": app, "pid": pid[:-1]} if pid.find("]") == len(pid) - 1 and pid else None


def _of_5424(text: str) -> dict[str, object]:
    entry: dict[str, object] = {}
    for name in ("time", "host", "app", "pid", "msgid"):
        value, space, text = text.partition(" ")
        if not value or not space:
            raise DeadError(Reason.MALFORMED)
        if value != "-":
            entry[name] = value
    end = 1
    if not text.startswith("-"):
        entry["data"], end = _elements(text)
    if len(text) > end:
        if text[end] != " ":
            raise DeadError(Reason.MALFORMED)
        entry["message"] = text[end + 1 :]
    return entry


def _elements(text: str) -> tuple[dict[str, dict[str, object]], int]:
    """Return the structured data with which a text begins, and its end."""
    data: dict[str, dict[str, object]] = {}
    several: dict[tuple[str, str], list[str]] = {}
    at = 0
    if not text.startswith("["):
        raise DeadError(Reason.MALFORMED)
    while text.startswith("[", at):
        element, at = _token(_NAME, text, at + 1)
        parameters = data.setdefault(element[0], {})
        while text.startswith(" ", at):
            name, at = _token(_NAME, text, at + 1)
            value, at = _token(_VALUE, text, at)
            values = several.setdefault((element[0], name[0]), [])
            values.append(value[1])
            parameters[name[0]] = values if len(values) > 1 else value[1]
        if not text.startswith("]", at):
            raise DeadError(Reason.MALFORMED)
        at += 1
    return data, at


def _token(form: re.Pattern[str], text: str, at: int) -> tuple[re.Match[str], int]:
    found = form.match(text, at)
    if found is None:
        raise DeadError(Reason.MALFORMED)
    return found, found.end()
