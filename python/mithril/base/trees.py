"""Nests of dictionaries, lists and tuples, as functions take and return them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def leaves(tree: Any) -> list[Any]:
    """What is in a nest, in its order; None is no leaf."""
    if isinstance(tree, dict):
        return [leaf for item in tree.values() for leaf in leaves(item)]
    if isinstance(tree, list | tuple):
        return [leaf for item in tree for leaf in leaves(item)]
    return [] if tree is None else [tree]


def filled(tree: Any, new: Iterator[Any]) -> Any:
    """A nest of that form with other leaves."""
    if isinstance(tree, dict):
        return {key: filled(item, new) for key, item in tree.items()}
    if isinstance(tree, list | tuple):
        items = [filled(item, new) for item in tree]
        return type(tree)(*items) if hasattr(tree, "_fields") else type(tree)(items)
    return None if tree is None else next(new)


def ordered(tree: Any, like: Any) -> Any:
    """A nest with its dictionaries in the order of another one's."""
    if isinstance(like, dict):
        return {key: ordered(tree[key], item) for key, item in like.items()}
    if isinstance(like, list | tuple):
        return [ordered(a, b) for a, b in zip(tree, like, strict=True)]
    return tree


__all__ = ["filled", "leaves", "ordered"]
