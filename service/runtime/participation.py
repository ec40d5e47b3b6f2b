"""How long a worker has taken no part in its group: one that never will again ends, so that another is started."""

from __future__ import annotations

from service.errors import SourceError


class Participation:
    """Used by the loop thread only."""

    def __init__(self, *, without_max_s: float, now_s: float) -> None:
        self._without_max_s = without_max_s
        self._part_at_s = self._looked_at_s = now_s

    def is_over(self, now_s: float) -> bool:
        """Return whether the last moment with a part in the group is too long ago."""
        return now_s - self._part_at_s >= self._without_max_s

    def look(self, now_s: float, hindrance: str | None) -> None:
        """Take note of what keeps the worker from its part, or that nothing does.

        Where it has not looked for so long the process was stopped, and nothing is known of that time.

        Raises:
            SourceError: something has, for longer than is waited.
        """
        was_stopped = now_s - self._looked_at_s >= self._without_max_s / 2
        self._looked_at_s = now_s
        if hindrance is None or was_stopped:
            self._part_at_s = now_s
        elif self.is_over(now_s):
            raise SourceError(f"no part in the group for {now_s - self._part_at_s:.0f} s: {hindrance}")
