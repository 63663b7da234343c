"""Python objects of the engine's nodes: a node knows the tag of its object, if it has one."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mithril.logical.connection import Connection
    from mithril.logical.model import Model

_handles: weakref.WeakValueDictionary[int, Model] = weakref.WeakValueDictionary()
_next_tag = itertools.count(1).__next__
_makers: list[Callable[[Any], Model]] = []


def keep(model: Model, node: Any) -> None:
    """Makes a model the object of a node."""
    node.tag = tag = _next_tag()
    _handles[tag] = model


def makes_handles(make: Callable[[Any], Model]) -> None:
    """Says what makes the object of a node that has none; the class of models does, once."""
    _makers[:] = [make]


def handle(node: Any) -> Model:
    """The Python object of a node: the one that made it, or a new one."""
    known = _handles.get(node.tag)
    return _makers[0](node) if known is None else known


def adopt(owner: Any, child: Model) -> Model:
    """Keeps the object of a part alive as long as that of the whole."""
    owner._children[child._node.tag] = child
    return child


def node_of(model: Model) -> Any:
    """The node that a model is the object of."""
    return model._node


def wire_of(connection: Connection) -> Any:
    """The wire of the engine that a connection stands for."""
    return connection._wire


def known_handle(node: Any) -> Model | None:
    """The Python object of a node if there is one."""
    return _handles.get(node.tag)


__all__ = ["adopt", "handle", "keep", "known_handle", "makes_handles", "node_of", "wire_of"]
