"""`text`: lines that match the setting `pattern`, a regular expression of RE2; each named group is a member.

RE2 reads any line in linear time, whatever the pattern. Blank lines do not count.
"""

from __future__ import annotations

import re
from typing import Any

from log_partitioner.config.settings import InputSettings
from log_partitioner.formats.dead_letter import Reason
from log_partitioner.input.format import Format, FormatError, lines_of, text_of_line
from log_partitioner.input.json_text import UndecodableError

_BYTE = re.compile(r"(?<!\\)(?:\\\\)*\\C")
_PACKAGE = (
    "input.format text needs google-re2: pip install 'log-partitioner[formats]', "
    "or an image that is built with REQUIREMENTS=requirements-formats.lock"
)
_EXPECTED = "the line does not match input.pattern, which has to match all of it: .* at its end takes any rest"


def text(rules: InputSettings) -> Format:
    """Take each line as an entry.

    Raises:
        FormatError: google-re2 is not installed, or the pattern has no named groups, or is not RE2's.
    """
    try:
        import re2  # noqa: PLC0415 - an optional package
    except ImportError as error:
        raise FormatError(_PACKAGE) from error
    options = re2.Options()
    options.log_errors = False
    try:
        pattern = re2.compile((rules.pattern or "").encode(), options)
    except re2.error as error:
        raise FormatError(f"input.pattern is no pattern of RE2: {error.args[0].decode()}") from error
    if not pattern.groupindex:
        raise FormatError("input.format text needs an input.pattern with named groups: (?P<time>[^ ]+) (?P<user>[^ ]+)")
    if _BYTE.search(pattern.pattern.decode()):
        raise FormatError(r"input.pattern has \C, a byte that may be no character: . is one")
    groups = {name.decode(): number for name, number in sorted(pattern.groupindex.items(), key=lambda one: one[1])}

    def read(line: bytes) -> Any:
        found = pattern.fullmatch(text_of_line(line).encode())
        if found is None:
            raise UndecodableError(Reason.MALFORMED, _EXPECTED)
        values = zip(groups, map(found.__getitem__, groups.values()), strict=True)
        return {name: value.decode() for name, value in values if value is not None}

    return Format(split=lines_of, read=read)
