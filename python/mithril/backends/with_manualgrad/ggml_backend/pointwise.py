"""Elementwise ops that ggml computes itself.

ggml's max(x, 0) and its like lose NaN, and x·sigmoid(x) at -inf is NaN there; what has to be put
right is put right by further nodes (docs/numerics.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .graph import Node, Trace
from .operands import (
    are_floats,
    as_op,
    is_float,
    is_number,
    joined,
    native,
    repeated,
    reshape,
    trace_of,
)

_LOWEST = float(np.finfo(np.float32).min)
_FAR = -1e30  # whose half is finite, and of which gelu is 0


def apply(trace: Trace, name: str, like: Node, *operands: Any) -> Node:
    """A function of ggml whose result is like an operand."""
    values = (x.tensor if isinstance(x, Node) else x for x in operands)
    return trace.made(getattr(trace.lib, name)(trace.context, *values), like.shape)


def _unary(name: str, function: str) -> None:
    def op(x: Any) -> Any:
        return apply(x.trace, function, x, x) if is_float(x) else NotImplemented

    as_op(name, op)


for _op in ["exp", "log", "sin", "cos", "sqrt", "abs", "floor", "ceil", "trunc", "tanh", "sigmoid"]:
    _unary(_op, _op)
_unary("negate", "neg")


@native
def relu(input):
    """clamp(x, 0, inf) · (x > 0): clamp makes inf of NaN, and inf · 0 is NaN."""
    if not is_float(input):
        return NotImplemented
    trace = input.trace
    return apply(trace, "mul", input, _at_least(input, 0.0), apply(trace, "step", input, input))


def _at_least(x: Node, bound: float) -> Node:
    """A copy, for ggml clamps where the elements are."""
    return apply(x.trace, "clamp", x, apply(x.trace, "cont", x, x), bound, math.inf)


def _finite_below(x: Node) -> Node:
    """Keeps -inf from the factor 0; of NaN it makes inf, which times NaN is NaN."""
    return _at_least(x, _LOWEST)


@native
def silu(x):
    if not is_float(x):
        return NotImplemented
    weight = apply(x.trace, "sigmoid", x, x)
    return apply(x.trace, "mul", x, _finite_below(x), weight)


@native
def gelu(x):
    if not is_float(x):
        return NotImplemented
    trace = x.trace
    found = apply(trace, "gelu_erf", x, _at_least(x, _FAR))
    sign = apply(trace, "sgn", x, x)  # 0 of NaN, where `found` is inf
    return apply(trace, "mul", x, found, apply(trace, "sqr", x, sign))


@native
def gelu_tanh(x):
    """x · sigmoid(2 · sqrt(2 / pi) · x · (1 + 0.044715 · x²)); ggml's own rounds to float16."""
    if not is_float(x):
        return NotImplemented
    trace, scale = x.trace, 2 * math.sqrt(2 / math.pi)
    square = apply(trace, "sqr", x, x)
    inner = apply(trace, "scale_bias", x, square, scale * 0.044715, scale)
    weight = apply(trace, "sigmoid", x, apply(trace, "mul", x, inner, x))
    return apply(trace, "mul", x, _finite_below(x), weight)


@native
def rsqrt(x):
    return divide(1.0, apply(x.trace, "sqrt", x, x)) if is_float(x) else NotImplemented


@native
def maximum(x, y):
    is_rectifier = is_number(y) and y == 0 and is_float(x)
    return relu(x) if is_rectifier else NotImplemented


# ------------------------------------------------------------------------------ two operands


def binary(function: str, x: Any, y: Any) -> Any:
    """A function of ggml of two operands that broadcast; it repeats its second one only."""
    trace = trace_of(x, y)
    x, y = (trace.lift(v, np.float32) if is_number(v) else trace.lift(v) for v in (x, y))
    shape = np.broadcast_shapes(x.shape, y.shape)
    if x.shape != shape and y.shape == shape and function in ("add", "mul"):
        x, y = y, x
    first = repeated(trace, x, shape)
    axes = joined(shape, y.shape)
    if first is None or axes is None:
        return NotImplemented
    whole, part = ((*axis[::-1], *[1] * (4 - len(axis))) for axis in axes)
    operands = trace.reshaped(first, whole), trace.reshaped(y, part)
    made = trace.made(getattr(trace.lib, function)(trace.context, *operands), axes[0])
    return reshape(made, shape)


def _scaled(x: Node, factor: float, offset: float = 0.0) -> Node:
    return apply(x.trace, "scale_bias", x, x, factor, offset)


def _with_numbers(function: str, linear: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def op(x: Any, y: Any) -> Any:
        if not are_floats(x, y):
            return NotImplemented
        found = linear(x, y) if is_number(x) or is_number(y) else None
        return binary(function, x, y) if found is None else found

    return op


def _number_and_node(x: Any, y: Any) -> tuple[float, Node]:
    return (float(x), y) if is_number(x) else (float(y), x)


def _sum(x: Any, y: Any) -> Node:
    number, node = _number_and_node(x, y)
    return _scaled(node, 1.0, number)


def _difference(x: Any, y: Any) -> Node:
    return _scaled(y, -1.0, float(x)) if is_number(x) else _scaled(x, 1.0, -float(y))


def _product(x: Any, y: Any) -> Node:
    number, node = _number_and_node(x, y)
    return apply(node.trace, "scale", node, node, number)


def _quotient(x: Any, y: Any) -> Node | None:
    """By powers of two it is a product, which is exact."""
    if not is_number(y) or not y or math.isinf(y) or abs(math.frexp(y)[0]) != 0.5:
        return None
    return _product(x, 1.0 / y) if 2.0**-126 <= abs(1.0 / y) < 2.0**127 else None


add = as_op("add", _with_numbers("add", _sum))
subtract = as_op("subtract", _with_numbers("sub", _difference))
divide = as_op("divide", _with_numbers("div", _quotient))
_multiply = _with_numbers("mul", _product)


@native
def multiply(x, y):
    if x is y and is_float(x):
        return apply(x.trace, "sqr", x, x)
    return _multiply(x, y)


@native
def fma(x, y, z):
    """Rounded twice where ours rounds once: within the bound of float32."""
    if not isinstance(x, Node) and not isinstance(y, Node):
        return NotImplemented
    product = multiply(x, y)
    return product if product is NotImplemented else add(product, z)
