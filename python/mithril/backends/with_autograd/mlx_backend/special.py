"""Functions that `ops` needs and MLX lacks: exp, sin, erf and others in full float64, and erfc.

MLX computes exp, sin, cos, erf, the sigmoid and logaddexp of float64 with the digits of float32
(0.32, on the CPU; no other device has float64), so here they come from functions that it has in
full: power, tan, log, expm1. Its erf of float32 is wrong by up to 13 units in the last place and is
0 below 1e-8, so erf and erfc are written here for every type. Its `where` multiplies cotangents by
0 where a branch is not taken, which makes NaN of inf.
"""

from __future__ import annotations

import functools
import math

import mlx.core as mx

from mithril.backends import erf_coefficients as cody

HALVES = (mx.float16, mx.bfloat16)


def in_wide(function):
    """Computes 16-bit floats in float32 and rounds once."""

    @functools.wraps(function)
    def call(*arrays, **options):
        dtype = arrays[0].dtype
        if dtype not in HALVES:
            return function(*arrays, **options)
        wide = (x.astype(mx.float32) if isinstance(x, mx.array) else x for x in arrays)
        return function(*wide, **options).astype(dtype)

    return call


@functools.cache
def constant(value, dtype):
    """Converts a number to an array: beside float64 MLX takes bare numbers for float32."""
    return mx.array(value, dtype)


def spread(*arrays):
    """Broadcast to one shape if that has no elements, for there MLX's gradients of it do not end,
    and if they are halves, whose gradients it sums in halves.

    What is replaced gets the gradient 0, the sum of nothing.
    """
    is_empty = 0 in [x.size for x in arrays]
    if not is_empty and not any(x.dtype in HALVES for x in arrays):
        return arrays
    shape = mx.broadcast_shapes(*(x.shape for x in arrays))
    if not is_empty:
        return tuple(repeated(x, shape) for x in arrays)
    return tuple(x if tuple(x.shape) == tuple(shape) else mx.zeros(shape, x.dtype) for x in arrays)


def repeated(x, shape):
    """Broadcasts an array; the gradient of a 16-bit float is summed in float32."""
    if x.dtype not in HALVES or tuple(x.shape) == tuple(shape):
        return mx.broadcast_to(x, shape)
    return mx.broadcast_to(x.astype(mx.float32), shape).astype(x.dtype)


@mx.custom_function
def _select(cond, x, y):
    return mx.where(cond, x, y)


@_select.vjp
def _select_vjp(operands, cotangent, _):
    cond, zeros = operands[0], mx.zeros_like(cotangent)
    return mx.zeros_like(cond), _select(cond, cotangent, zeros), _select(cond, zeros, cotangent)


def where(cond, x, y):
    """`mx.where` of arrays that sends exactly 0 to the branch not taken."""
    dtype = mx.result_type(x, y)
    operands = spread(cond, x.astype(dtype), y.astype(dtype))
    return _select(*mx.broadcast_arrays(*operands))


# ------------------------------------------------------------------------------ exp, sin, cos


def exp(x):
    return mx.power(constant(math.e, x.dtype), x) if x.dtype == mx.float64 else mx.exp(x)


def _half_tangent(x):
    """(tan(x / 2), 1 + tan(x / 2) ** 2)."""
    t = mx.tan(x * 0.5)
    return t, 1 + t * t


@mx.custom_function
def _sin(x):
    t, norm = _half_tangent(x)
    return 2 * t / norm


@mx.custom_function
def _cos(x):
    t, norm = _half_tangent(x)
    return (1 - t * t) / norm


@_sin.vjp
def _sin_vjp(x, cotangent, _):
    return cotangent * _cos(x)


@_cos.vjp
def _cos_vjp(x, cotangent, _):
    return -cotangent * _sin(x)


def sin(x):
    return _sin(x) if x.dtype == mx.float64 else mx.sin(x)


def cos(x):
    return _cos(x) if x.dtype == mx.float64 else mx.cos(x)


def _decay(x):
    """Returns whether x < 0, and exp(-|x|), whose slope at 0 is that from above."""
    negative = x < 0
    return negative, exp(mx.where(negative, x, -x))


@in_wide
def sigmoid(x):
    if x.dtype != mx.float64:
        return mx.sigmoid(x)
    negative, decay = _decay(x)
    return mx.where(negative, decay, 1) / (1 + decay)


@in_wide
def softplus(x):
    if x.dtype != mx.float64:
        return mx.logaddexp(x, 0)
    negative, decay = _decay(x)
    return mx.where(negative, 0, x) + mx.log1p(decay)


# --------------------------------------------------------------------------------- erf and erfc


def _polynomial(coefficients, x):
    first, *rest = (constant(c, x.dtype) for c in coefficients)
    return functools.reduce(lambda sum, c: sum * x + c, rest, first)


def _ratio(p, q, x):
    return _polynomial(p, x) / _polynomial(q, x)


def _near(x, small):
    """erf(x) for |x| <= 0.46875."""
    return x * _ratio(cody.SMALL_P, cody.SMALL_Q, mx.where(small, x * x, 0))


def _tail(y):
    """erfc(y) for y > 0.46875; the exponent is split so that its rounding does not show."""
    middle = _ratio(cody.MIDDLE_P, cody.MIDDLE_Q, mx.minimum(y, 4))
    inverse = 1 / (y * y)
    rest = inverse * _ratio(cody.LARGE_P, cody.LARGE_Q, inverse)
    large = (constant(cody.INVERSE_ROOT_PI, y.dtype) - rest) / y
    head = mx.floor(mx.minimum(y, 30) * 16) * 0.0625
    scale = exp(-head * head) * exp(-(y - head) * (y + head))
    return scale * mx.where(y <= 4, middle, large)


def _parts(x):
    y = mx.abs(x)
    small = y <= cody.SMALL
    return small, _near(x, small), _tail(mx.where(small, 1, y))


@mx.custom_function
def _erf(x):
    small, near, tail = _parts(x)
    return mx.where(small, near, mx.where(x < 0, tail - 1, 1 - tail))


@mx.custom_function
def _erfc(x):
    small, near, tail = _parts(x)
    return mx.where(small, 1 - near, mx.where(x < 0, 2 - tail, tail))


def _bell(x):
    """Returns the derivative of erf."""
    return constant(2 * cody.INVERSE_ROOT_PI, x.dtype) * exp(-x * x)


@_erf.vjp
def _erf_vjp(x, cotangent, _):
    return cotangent * _bell(x)


@_erfc.vjp
def _erfc_vjp(x, cotangent, _):
    return -cotangent * _bell(x)


def _wide(function, x):
    """Computes a function of 16-bit floats in float32."""
    return function(x.astype(mx.float32)).astype(x.dtype) if x.dtype.size == 2 else function(x)


def erf(x):
    return _wide(_erf, x)


def erfc(x):
    return _wide(_erfc, x)
