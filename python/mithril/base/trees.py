"""Nests of dictionaries, lists and tuples, as functions take and return them."""

from __future__ import annotations

import copy
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Iterator
from typing import Any


def leaves(tree: Any) -> list[Any]:
    """Returns the leaves of a nest, in order; None is no leaf."""
    if isinstance(tree, dict):
        return [leaf for item in tree.values() for leaf in leaves(item)]
    if isinstance(tree, list | tuple):
        return [leaf for item in tree for leaf in leaves(item)]
    return [] if tree is None else [tree]


def filled(tree: Any, new: Iterator[Any]) -> Any:
    """Returns a nest of the form of `tree` with the leaves replaced by `new`."""
    if isinstance(tree, dict):
        return with_items(tree, [filled(item, new) for item in tree.values()])
    if isinstance(tree, list | tuple):
        return with_items(tree, [filled(item, new) for item in tree])
    return None if tree is None else next(new)


def with_items(nest: Any, items: Iterable[Any]) -> Any:
    """Returns a dictionary, list or tuple like `nest` with other items."""
    if isinstance(nest, dict):
        pairs = dict(zip(nest, items, strict=True))
        if not isinstance(nest, OrderedDict | defaultdict):
            return pairs
        made = copy.copy(nest)
        made.update(pairs)
        return made
    return type(nest)(*items) if hasattr(nest, "_fields") else type(nest)(items)


def ordered(tree: Any, like: Any) -> Any:
    """Returns a nest with its dictionaries in the order of those in `like`."""
    if isinstance(like, dict):
        return {key: ordered(tree[key], item) for key, item in like.items()}
    if isinstance(like, list | tuple):
        return [ordered(a, b) for a, b in zip(tree, like, strict=True)]
    return tree


__all__ = ["filled", "leaves", "ordered", "with_items"]
