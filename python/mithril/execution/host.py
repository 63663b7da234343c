"""Ops on host values (sizes, tuples, slices) in emitted text, called like the ops of `ops`."""

from __future__ import annotations

import builtins
import operator
from collections.abc import Callable
from typing import Any

from mithril.types import Dtype  # noqa: F401  (results that are one)


def _on(names: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with operands by name where they mix wires and numbers."""
    order = names.split()

    def call(*values: Any, **named: Any) -> Any:
        return function(*values, *(named[name] for name in order[len(values) :]))

    return call


add = _on("left right", operator.add)
subtract = _on("left right", operator.sub)
multiply = _on("left right", operator.mul)
divide = _on("numerator denominator", operator.truediv)
floor_divide = _on("numerator denominator", operator.floordiv)
mod = _on("numerator denominator", operator.mod)
power = _on("base exponent", operator.pow)
negate = _on("input", operator.neg)
abs = _on("input", abs)
minimum = _on("left right", min)
maximum = _on("left right", max)
equal = _on("left right", operator.eq)
not_equal = _on("left right", operator.ne)
less = _on("left right", operator.lt)
less_equal = _on("left right", operator.le)
greater = _on("left right", operator.gt)
greater_equal = _on("left right", operator.ge)
logical_and = _on("left right", operator.and_)
logical_or = _on("left right", operator.or_)
logical_xor = _on("left right", operator.xor)
logical_not = _on("input", operator.not_)
shift_left = _on("input shift", operator.lshift)
shift_right = _on("input shift", operator.rshift)
length = _on("input", len)
buffer = _on("input", lambda value: value)


def broadcast_size(a: int, b: int) -> int:
    """The size that two sizes, one of which may be 1, broadcast to."""
    return b if a == 1 else a


def to_tuple(items: Any) -> tuple[Any, ...]:
    return tuple(items)


def to_list(items: Any) -> list[Any]:
    return list(items)


def slice(start: Any = None, stop: Any = None, step: Any = None) -> Any:
    return builtins.slice(start, stop, step)


def index(input: Any, index: Any) -> Any:
    return input[index]


def item(input: Any) -> Any:
    return input.item() if hasattr(input, "item") else input
