"""Paces a message that recurs: at once, then at intervals that double."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

AGAIN_FIRST_S, AGAIN_MAX_S = 5.0, 300.0
_KINDS_MAX = 200


class Pace:
    """Decides whether to repeat a message: at once, then at intervals that double; for any thread."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._kinds: dict[object, tuple[float, float, int]] = {}
        self._lock = Lock()

    def times(self, what: object) -> int:
        """Return how often it has happened since it was last said, this time included; 0 if it is not due."""
        with self._lock:
            now_s = self._now_s()
            due_s, distance_s, unsaid = self._kinds.get(what, (now_s, AGAIN_FIRST_S, 0))
            if now_s < due_s:
                self._kinds[what] = due_s, distance_s, unsaid + 1
                return 0
            self._kinds[what] = now_s + distance_s, min(AGAIN_MAX_S, 2 * distance_s), 0
            while len(self._kinds) > _KINDS_MAX:
                del self._kinds[next(iter(self._kinds))]
            return unsaid + 1
