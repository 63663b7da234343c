"""A bounded dictionary that makes what it lacks: what was used longest ago goes."""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class RecentlyUsed(Generic[Value]):
    """Keeps the `most` values that were used last. Many threads may ask at once.

    >>> kept = RecentlyUsed(2)
    >>> kept.get_or_make("a", list) is kept.get_or_make("a", list)
    True
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._values: collections.OrderedDict[Hashable, Value] = collections.OrderedDict()

    def get_or_make(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """The value of a key, made outside the lock; of two that are made at once the first one
        stays."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
        made = make()
        with self._lock:
            value = self._values.setdefault(key, made)
            while len(self._values) > self._most:
                self._values.popitem(last=False)
        return value

    def __len__(self) -> int:
        return len(self._values)

    def values(self) -> list[Value]:
        with self._lock:
            return list(self._values.values())


__all__ = ["RecentlyUsed"]
