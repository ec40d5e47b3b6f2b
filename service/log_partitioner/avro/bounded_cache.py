"""A cache bounded by the weight of its values, not by their number: hostile schemas weigh a thousand ordinary ones."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")


class BoundedCache(Generic[_K, _V]):
    """Keeps the values used last; together they weigh `weight_max` at most, a heavier one is not kept at all."""

    __slots__ = ("_kept", "_make", "_weigh", "_weight_max", "weight")

    def __init__(self, make: Callable[[_K], _V], *, weigh: Callable[[_K], int], weight_max: int) -> None:
        self._kept: OrderedDict[_K, tuple[_V, int]] = OrderedDict()
        self._make = make
        self._weigh = weigh
        self._weight_max = weight_max
        self.weight = 0

    def get(self, key: _K) -> _V:
        """Return the value of a key, made anew if it is not kept."""
        kept = self._kept.get(key)
        if kept is not None:
            self._kept.move_to_end(key)
            return kept[0]
        value, weight = self._make(key), self._weigh(key)
        self._kept[key] = value, weight
        self.weight += weight
        while self.weight > self._weight_max:
            self.weight -= self._kept.popitem(last=False)[1][1]
        return value
