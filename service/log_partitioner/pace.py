"""Paces a message that recurs: at once, then at intervals that double."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

AGAIN_FIRST_S, AGAIN_MAX_S = 5.0, 300.0
_KINDS_MAX = 200


class _Kind:
    """One message that recurs."""

    def __init__(self, now_s: float) -> None:
        self.due_s, self.distance_s, self.unsaid = now_s, AGAIN_FIRST_S, 0


class Pace:
    """Decides whether to repeat a message: at once, then at intervals that double; for any thread."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._kinds: dict[object, _Kind] = {}
        self._lock = Lock()

    def times(self, what: object) -> int:
        """Return how often it has happened since it was last said, this time included; 0 if it is not due."""
        with self._lock:
            return self._times(what, self._now_s())

    def _times(self, what: object, now_s: float) -> int:
        kind = self._kinds.setdefault(what, _Kind(now_s))
        kind.unsaid += 1
        if now_s < kind.due_s:
            return 0
        times, kind.unsaid = kind.unsaid, 0
        kind.due_s = now_s + kind.distance_s
        kind.distance_s = min(AGAIN_MAX_S, 2 * kind.distance_s)
        while len(self._kinds) > _KINDS_MAX:
            del self._kinds[next(iter(self._kinds))]
        return times
