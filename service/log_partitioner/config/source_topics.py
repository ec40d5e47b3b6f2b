r"""Which topics are source topics: those that are named, and those whose whole name matches a pattern, as ^app-.*.

The client library matches by POSIX (classic protocol), brokers by RE2 (KIP-848), and our own code by Python's `re`:
a pattern may hold only constructs that mean the same to all three (KAFKA_FACTS R21).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated

from pydantic import AfterValidator

from log_partitioner.config.section import Names

_CLASS = r"\[\^?(?:[A-Za-z0-9._](?:-[A-Za-z0-9._])?)+-?\]"
_REPEATABLE = rf"(?:[A-Za-z0-9._-]|\\\.|{_CLASS}|\))[*+?]?"
_BEFORE_MORE = r"[(|](?![|)$]|\Z)"  # an empty alternative is undefined in POSIX
_PATTERN = re.compile(rf"\^(?!\|)(?:{_REPEATABLE}|{_BEFORE_MORE})+\$?")


def entries_of(given: tuple[str, ...]) -> tuple[str, ...]:
    """Return names and patterns; `config.checks` judges names.

    Raises:
        ValueError: an entry begins as a pattern, and is not a valid one.
    """
    for entry in given:
        if is_pattern(entry) and not _means_the_same(entry):
            raise ValueError(
                rf"has {entry}, which is no pattern: ^, then letters, digits, . _ - \. [a-z] ( | ) * + ?, and all of a "
                "name matches it, as ^app-.*"
            )
    return given


def _means_the_same(pattern: str) -> bool:
    """Return whether a pattern is valid, and has only constructs that mean the same to all three."""
    if _PATTERN.fullmatch(pattern) is None:
        return False
    try:
        re.compile(pattern)
    except re.error:
        return False
    return True


def is_pattern(entry: str) -> bool:
    """Return whether an entry of the settings is a pattern."""
    return entry.startswith("^")


SourceEntries = Annotated[Names, AfterValidator(entries_of)]


class SourceNames:
    """The names of source topics; `name in names` asks whether a topic is one."""

    def __init__(self, entries: Iterable[str]) -> None:
        self._entries = tuple(entries)
        self._names = [one for one in self._entries if not is_pattern(one)]
        self._patterns = [re.compile(one) for one in self._entries if is_pattern(one)]

    def __contains__(self, topic: object) -> bool:
        return topic in self._names or any(one.fullmatch(str(topic)) for one in self._patterns)

    def __str__(self) -> str:
        return ", ".join(self._entries)

    def are_naming(self, topic: str) -> bool:
        """Return whether a topic is named, and so has to be there."""
        return topic in self._names

    @property
    def has_patterns(self) -> bool:
        """Whether the existing topics decide which ones are read."""
        return bool(self._patterns)

    def among(self, there: Iterable[str]) -> list[str]:
        """Return the named topics, whether they exist or not, and the topics of `there` that match a pattern."""
        return [*self._names, *sorted({topic for topic in there if topic in self} - {*self._names})]

    def subscription(self) -> list[str]:
        """Return the entries to subscribe to: the library itself would accept a match of a part of a name."""
        return [f"^({one})$" if is_pattern(one) else one for one in self._entries]
