"""`access-log`: lines of a web server in the common or the combined log format; blank lines do not count."""

from __future__ import annotations

import re
from typing import Any

from log_partitioner.config.settings import InputSettings
from log_partitioner.input.format import OTHER_LINES, QUOTED, Format, lines_of, members_by

# No part can take what another could, so that any line is read in linear time. Some servers cut the last quote off.
_LINE = re.compile(
    r"(?P<client>\S++) (?P<ident>\S++) (?P<user>\S++) \[(?P<time>[^]]++)] "
    rf'"(?P<request>{QUOTED})" (?P<status>[0-9]{{3}}) (?:(?P<bytes>[0-9]{{1,18}})|-)'
    rf'(?>(?: "(?P<referer>{QUOTED})" "(?P<agent>{QUOTED})(?:"(?= |\Z)|\Z))?)(?: (?P<more>.*))?',
    re.DOTALL,
)
_EXPECTED = (
    'no line of an access log: client ident user [time] "request" status bytes, maybe "referer" "agent"; ' + OTHER_LINES
)


def access_log(_rules: InputSettings) -> Format:
    """Take each line as an entry."""
    return Format(split=lines_of, read=_entry)


def _entry(line: bytes) -> Any:
    entry = members_by(_LINE, line, expected=_EXPECTED)
    return entry | {name: int(entry[name]) for name in ("status", "bytes") if name in entry}
