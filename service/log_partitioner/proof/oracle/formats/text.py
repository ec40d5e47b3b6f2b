"""`text`, by RE2 too: nothing else reads its patterns."""

from __future__ import annotations

from log_partitioner.config.settings import InputSettings
from log_partitioner.formats.dead_letter import Reason
from log_partitioner.proof.oracle.format import DeadError, Format, lines_of, text_of_line


def text(settings: InputSettings) -> Format:
    """Return the rules of `text`; the pattern was checked when the settings were read."""
    import re2  # noqa: PLC0415 - an optional package

    pattern = re2.compile(settings.pattern)

    def parse(line: bytes) -> object:
        found = pattern.fullmatch(text_of_line(line))
        if found is None:
            raise DeadError(Reason.MALFORMED)
        return {name: value for name, value in found.groupdict().items() if value is not None}

    return Format(lines=lines_of, parse=parse)
