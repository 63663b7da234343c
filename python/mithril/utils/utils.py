"""`OrderedSet`: a set that remembers in which order its items came."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableSet
from typing import Any


class OrderedSet(MutableSet):
    """
    >>> OrderedSet("banana")
    OrderedSet(['b', 'a', 'n'])
    """

    def __init__(self, items: Iterable[Any] = ()):
        self._items = dict.fromkeys(items)

    def __contains__(self, item: object) -> bool:
        return item in self._items

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def add(self, value: Any) -> None:
        self._items[value] = None

    def discard(self, value: Any) -> None:
        self._items.pop(value, None)

    def update(self, items: Iterable[Any]) -> None:
        self._items.update(dict.fromkeys(items))

    def __repr__(self) -> str:
        return f"OrderedSet({list(self)!r})"


__all__ = ["OrderedSet"]
