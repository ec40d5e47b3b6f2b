"""An upper rate: how long to wait so that there are no more than so many a second, in the long run."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(slots=True)
class Rate:
    """Spaces counted things out; without `per_s` nothing waits. Used by one thread at a time."""

    per_s: float | None
    free_at_s: float = -math.inf
    """The time from which on more may come."""

    def wait_s(self, now_s: float) -> float:
        """Return the seconds until more may come."""
        return max(0.0, self.free_at_s - now_s)

    def took(self, count: int, now_s: float) -> None:
        """Note that so many have come."""
        if self.per_s is not None:
            self.free_at_s = max(self.free_at_s, now_s) + count / self.per_s
