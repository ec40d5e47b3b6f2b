"""`cri`: lines of a container as a Kubernetes node writes them; each is read alone, so partial lines stay parts."""

from __future__ import annotations

import re
from functools import partial

from log_partitioner.config.settings import InputSettings
from log_partitioner.input.format import OTHER_LINES, Format, lines_of, members_by

_LINE = re.compile(
    r"(?P<time>[^ ]++) (?P<stream>stdout|stderr) (?P<tag>[FP](?>(?::[^ ]*+)?))(?: (?P<message>.*))?", re.DOTALL
)
_EXPECTED = f"no line of a container: time, stdout or stderr, F or P, message; {OTHER_LINES}"


def cri(_rules: InputSettings) -> Format:
    """Take each line as an entry."""
    return Format(split=lines_of, read=partial(members_by, _LINE, expected=_EXPECTED))
