"""Operands of native ops; an op that returns NotImplemented for them runs as a custom node."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .graph import FLOAT, Node, Trace, nodes_of, sizes
from .library import DIMENSIONS

native_ops: dict[str, Callable[..., Any]] = {}
_MOST_ELEMENTS = 2**31 - 1  # what counts in 32 bits in some of ggml's loops


def native(function: Callable[..., Any]) -> Callable[..., Any]:
    """Offers a function as the native form of the op of its name."""
    native_ops[function.__name__] = function
    return function


def as_op(name: str, function: Callable[..., Any] | None = None) -> Any:
    """Offers a function as the native form of the op `name`."""
    if function is None:
        return functools.partial(as_op, name)
    native_ops[name] = function
    return function


def trace_of(*operands: Any) -> Trace:
    return next(nodes_of(operands)).trace


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_float(value: Any) -> bool:
    """Tells whether a value is a float32 array that ggml's functions take: not empty, not huge."""
    is_array = isinstance(value, Node | np.ndarray | np.generic)
    return is_array and value.dtype == FLOAT and 0 < value.size <= _MOST_ELEMENTS


def are_floats(*values: Any) -> bool:
    return all(is_number(value) or is_float(value) for value in values)


def joined(shape: Sequence[int], *others: Sequence[int]) -> tuple[list[int], ...] | None:
    """Shapes that broadcast to the first one with axes joined where all go the same way; None if
    more than four are left."""
    rank = len(shape)
    padded = [[1] * (rank - len(other)) + list(other) for other in others]
    groups: list[tuple[tuple[bool, ...], list[int]]] = []
    for axis, size in enumerate(shape):
        ways = tuple(other[axis] == size for other in padded)
        if size == 1:
            continue
        if groups and groups[-1][0] == ways:
            groups[-1][1].append(size)
        else:
            groups.append((ways, [size]))
    if len(groups) > DIMENSIONS:
        return None
    whole = [math.prod(group) for _, group in groups]
    rest = [
        [n if ways[i] else 1 for n, (ways, _) in zip(whole, groups, strict=True)]
        for i in range(len(others))
    ]
    return (whole, *rest)


def repeated(trace: Trace, node: Node, shape: Sequence[int]) -> Node | None:
    """Broadcasts an array to a shape; returns None where four axes do not suffice."""
    if node.shape == tuple(shape):
        return node
    axes = joined(shape, node.shape)
    if axes is None:
        return None
    source = trace.reshaped(node, _four(axes[1]))
    tensor = trace.lib.repeat_4d(trace.context, source, *_four(axes[0]))
    made = trace.made(tensor, axes[0])
    return reshape(made, shape)


def reshape(node: Node, shape: Sequence[int]) -> Node:
    """The same elements in another shape; memory is shared."""
    if node.shape == tuple(shape):
        return node
    trace = node.trace
    tensor = trace.lib.reshape_4d(trace.context, node.tensor, *sizes(shape))
    return trace.made(tensor, shape, node.dtype)


def _four(shape: Sequence[int]) -> tuple[int, ...]:
    backwards = tuple(shape[::-1])
    return (*backwards, *[1] * (DIMENSIONS - len(backwards)))
