"""`access-log`: lines of a web server in the common or the combined log format; blank lines do not count."""

from __future__ import annotations

import re
from typing import Any

from log_partitioner.config.settings import InputSettings
from log_partitioner.formats.dead_letter import Reason
from log_partitioner.input.format import Format, lines_of
from log_partitioner.input.json_text import UndecodableError

_QUOTED = r'"((?:[^"\\]|\\.)*+)'
# No part can take what another could, so that any line is read in linear time. Some servers cut the last quote off.
_BEGIN = rf'(\S++) (\S++) (\S++) \[([^]]++)] {_QUOTED}" ([0-9]{{3}}) ([0-9]{{1,18}}|-)'
_LINE = re.compile(rf'{_BEGIN}(?: {_QUOTED}" {_QUOTED}(?:"|\Z))?(?: (.+))?', re.DOTALL)


def access_log(_rules: InputSettings) -> Format:
    """Take each line as an entry."""
    return Format(split=lines_of, read=_entry)


def _entry(line: bytes) -> Any:
    try:
        found = _LINE.fullmatch(line.decode().removesuffix("\r"))
    except UnicodeDecodeError as error:
        raise UndecodableError(Reason.INVALID_UNICODE, str(error)) from error
    if found is None:
        message = 'no line of an access log: client ident user [time] "request" status bytes, maybe "referer" "agent"'
        raise UndecodableError(Reason.MALFORMED, message)
    client, ident, user, time, request, status, size, referer, agent, more = found.groups()
    entry = {"client": client, "ident": ident, "user": user, "time": time, "request": request, "status": int(status)}
    rest = {"bytes": None if size == "-" else int(size), "referer": referer, "agent": agent, "more": more}
    return entry | {name: value for name, value in rest.items() if value is not None}
