"""Measures how long a worker has been out of its group: one that never comes back ends, so that another is started."""

from __future__ import annotations

from log_partitioner.errors import SourceError


class Participation:
    """Used by the loop thread only."""

    def __init__(self, *, without_max_s: float, now_s: float) -> None:
        self._without_max_s = without_max_s
        self._part_at_s = self._looked_at_s = now_s

    def is_over(self, now_s: float) -> bool:
        """Return whether the worker has been out of its group for too long."""
        return now_s - self._part_at_s >= self._without_max_s

    def look(self, now_s: float, hindrance: str | None) -> None:
        """Note the reason that keeps the worker out of its group, None if it takes part.

        If the last look is too long ago, the process was stopped, and that time does not count.

        Raises:
            SourceError: the worker has been out of its group for too long.
        """
        was_stopped = now_s - self._looked_at_s >= self._without_max_s / 2
        self._looked_at_s = now_s
        if hindrance is None or was_stopped:
            self._part_at_s = now_s
        elif self.is_over(now_s):
            raise SourceError(f"no part in the group for {now_s - self._part_at_s:.0f} s: {hindrance}")
