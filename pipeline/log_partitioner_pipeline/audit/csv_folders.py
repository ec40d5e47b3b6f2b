"""Folders of an archive that name a day or an hour -> the time span of their files. Pure."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

from log_partitioner_pipeline.errors import ArchiveError

_PARTS = {"Y": r"\d{4}", "m": r"\d{2}", "d": r"\d{2}", "H": r"\d{2}"}
_HOUR_MS = 3_600_000


class Period(NamedTuple):
    """[begin, end), both in milliseconds since 1970."""

    begin_ms: int
    end_ms: int

    def overlaps(self, from_ms: int | None, until_ms: int | None, *, margin_ms: int = 0) -> bool:
        """Return whether the period overlaps a window; None means that side of the window is open."""
        is_before = until_ms is not None and self.begin_ms >= until_ms + margin_ms
        is_after = from_ms is not None and self.end_ms <= from_ms - margin_ms
        return not (is_before or is_after)


class Folders:
    """Reads times off paths by a pattern such as `date=%Y-%m-%d/hour=%H`."""

    def __init__(self, pattern: str, zone: str) -> None:
        """Take the pattern, which needs %Y, %m and %d, and may have %H.

        Raises:
            ArchiveError: it has others, one of them twice, or no whole date.
        """
        used = re.findall(r"%(.)", pattern)
        if sorted(used) not in (sorted("Ymd"), sorted("YmdH")):
            raise ArchiveError(
                f"PIPELINE_CSV__FOLDERS {pattern!r} needs each of %Y, %m, %d once, may have %H, no other"
            )
        parts = re.split(r"%(.)", pattern.strip("/"))
        texts = [f"(?P<{part}>{_PARTS[part]})" if nth % 2 else re.escape(part) for nth, part in enumerate(parts)]
        self._path = re.compile("".join(texts) + "(?:/|$)", re.ASCII)
        self._zone = ZoneInfo(zone)

    def period_of(self, path: str) -> Period | None:
        """Read the period of a file off its path below the location; None if its folders name none."""
        match = self._path.match(path)
        if match is None:
            return None
        numbers = {name: int(text) for name, text in match.groupdict().items()}
        try:
            begin = datetime(numbers["Y"], numbers["m"], numbers["d"], numbers.get("H", 0))  # noqa: DTZ001 - local
        except ValueError:
            return None
        # An hour that the clock shows twice is both: the files of one folder cannot be told apart.
        if "H" in numbers:
            return Period(min(self._moments_ms(begin)), max(self._moments_ms(begin)) + _HOUR_MS)
        return Period(min(self._moments_ms(begin)), max(self._moments_ms(begin + timedelta(days=1))))

    def _moments_ms(self, local: datetime) -> list[int]:
        return [round(local.replace(tzinfo=self._zone, fold=fold).timestamp() * 1000) for fold in (0, 1)]
