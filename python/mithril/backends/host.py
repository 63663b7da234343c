"""Ops on host values (sizes, tuples, slices) in emitted text, called like the ops of `ops`."""

from __future__ import annotations

import builtins
import operator
from typing import Any

add = operator.add
subtract = operator.sub
multiply = operator.mul
divide = operator.truediv
floor_divide = operator.floordiv
mod = operator.mod
power = operator.pow
negate = operator.neg
abs = abs
minimum = min
maximum = max
equal = operator.eq
not_equal = operator.ne
less = operator.lt
less_equal = operator.le
greater = operator.gt
greater_equal = operator.ge
logical_and = operator.and_
logical_or = operator.or_
logical_xor = operator.xor
logical_not = operator.not_
shift_left = operator.lshift
shift_right = operator.rshift
length = len


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
