"""`syslog`: lines of RFC 5424, or of RFC 3164 as rsyslog writes them; blank lines do not count."""

from __future__ import annotations

import re
from typing import Any

from log_partitioner.config.settings import InputSettings
from log_partitioner.input.format import OTHER_LINES, QUOTED, Format, lines_of, members_by

# No part can take what another could, so that any line is read in linear time.
_PRIORITY = r"<(?P<priority>[1-9]?[0-9]|1[0-8][0-9]|19[01])>"
_NAME = r'[^ =\]"]++'
_PARAMETERS = rf'(?>(?: {_NAME}="{QUOTED}")*)'
_WORDS = "".join(rf"(?:- |(?P<{name}>[^ ]++) )" for name in ("time", "host", "app", "pid", "msgid"))
_RFC_5424 = re.compile(
    rf"{_PRIORITY}1 {_WORDS}(?:-|(?P<data>(?>(?:\[{_NAME}{_PARAMETERS}])+)))(?: (?P<message>.*))?", re.DOTALL
)
_TIME = r"[A-Z][a-z]{2} [ 0-9]?[0-9] [0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]++)?|[0-9]{4}-[^ ]++"
_TAG = r"(?P<app>[^ \[:]++)(?>(?:\[(?P<pid>[^ \]]*+)])?):(?= |\Z)"
_RFC_3164 = re.compile(
    rf"(?:{_PRIORITY})?(?P<time>{_TIME}) (?P<host>[^ ]++)(?>(?: {_TAG})?)(?: (?P<message>.*))?", re.DOTALL
)
_HAS_VERSION = re.compile(rb"<[0-9]++>1 ")
_ELEMENT = re.compile(rf"\[({_NAME})({_PARAMETERS})]", re.DOTALL)
_PARAMETER = re.compile(rf' ({_NAME})="({QUOTED})"', re.DOTALL)
_EXPECTED = f"no line of syslog: <priority>, time, host, tag[pid]: message, or RFC 5424; {OTHER_LINES}"


def syslog(_rules: InputSettings) -> Format:
    """Take each line as an entry."""
    return Format(split=lines_of, read=_entry)


def _entry(line: bytes) -> Any:
    entry = members_by(_RFC_5424 if _HAS_VERSION.match(line) else _RFC_3164, line, expected=_EXPECTED)
    if "data" in entry:
        entry["data"] = _data(entry["data"])
    if "priority" not in entry:
        return entry
    facility, severity = divmod(int(entry.pop("priority")), 8)
    return {"facility": facility, "severity": severity, **entry}


def _data(text: str) -> dict[str, dict[str, Any]]:
    """Return the parameters of each element; one that comes several times is a list."""
    data: dict[str, dict[str, list[str]]] = {}
    for name, parameters in _ELEMENT.findall(text):
        element = data.setdefault(name, {})
        for key, value in _PARAMETER.findall(parameters):
            element.setdefault(key, []).append(value)
    return {
        name: {key: values if len(values) > 1 else values[0] for key, values in element.items()}
        for name, element in data.items()
    }
