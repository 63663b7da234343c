"""Makes the functions that emitted text calls: native where they can be, else custom nodes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from . import lookups, movement, norms, pointwise, products, windows  # noqa: F401 - they define ops
from .graph import Untraceable, nodes_of
from .operands import native_ops

_OF_SHAPES = frozenset(("shape", "size", "length", "zeros_like", "ones_like"))
_OF_VALUES = frozenset(("item", "tensor_to_list", "index", "index_add", "true_places", "nonzero"))


def operation(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    native = native_ops.get(name)

    @functools.wraps(function)
    def op(*args: Any, **kwargs: Any) -> Any:
        node = next(nodes_of((args, kwargs)), None)
        if node is None or name in _OF_SHAPES:
            return function(*args, **kwargs)
        if name in _OF_VALUES:
            _refuse_masks(name, args, kwargs)
        trace = node.trace
        if native is not None:
            found = native(*args, **kwargs)
            if found is not NotImplemented:
                trace.ways.append((name, "native"))
                return found
        return trace.custom(name, function, args, kwargs, _known(name, args, kwargs))

    return op


def _refuse_masks(name: str, args: Any, kwargs: Any) -> None:
    """Raises `Untraceable` where the size of a result depends on data, as with boolean masks."""
    items = (args[1:], kwargs) if name.startswith("index") else ()
    if not items or any(node.dtype == bool for node in nodes_of(items)):
        raise Untraceable


def _known(name: str, args: Any, kwargs: Any) -> Any:
    """Returns arrays like the results of a loop, which must not run on stand-ins; else None."""
    if name == "while_loop":
        return tuple(_like(x.shape, x.dtype) for x in args[2])
    if name == "scan":
        carries, ys = args[1], args[4]
        return (*(_like(x.shape, x.dtype) for x in carries), *(_like(*y) for y in ys))
    return None


def _like(shape: Any, dtype: Any) -> np.ndarray:
    return np.broadcast_to(np.zeros((), dtype), shape)
