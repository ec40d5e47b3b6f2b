"""`csv`, once more."""

from __future__ import annotations

import re

from log_partitioner.config.settings import InputSettings
from log_partitioner.formats.dead_letter import Reason
from log_partitioner.proof.oracle.format import DeadError, Format
from log_partitioner.proof.oracle.formats import FORMATS

_LINE = re.compile("(?P<user>[^,]*),(?P<time>[^,]*),(?P<id>[^,]*)", re.DOTALL)


def csv(_settings: InputSettings) -> Format:
    """Return the rules of `csv`."""
    return Format(lines=lambda payload: re.findall(rb"[^\n]+", payload), parse=_entry)


def _entry(line: bytes) -> object:
    try:
        found = _LINE.fullmatch(line.decode())
    except UnicodeDecodeError as error:
        raise DeadError(Reason.INVALID_UNICODE) from error
    if found is None:
        raise DeadError(Reason.MALFORMED)
    return found.groupdict()


FORMATS["csv"] = csv
