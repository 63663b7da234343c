"""The functions that emitted text calls on MLX arrays.

Three kinds: instructions of tile programs (`add` … `reduce_all`), ops that have a function here of
their own name, and what the text itself needs (`scalar`, `drop_axes`, dtypes). Operands of
pointwise functions may be Python numbers where another operand is an array. Values and gradients
at kinks are those of `docs/numerics.md`; indices from arrays that are out of bounds count as the
nearest place inside, for MLX itself would read and write beyond its memory.
"""

from __future__ import annotations

import builtins as _builtins
import itertools as _itertools
import math as _math

import mlx.core as _mx
import numpy as _np

from mithril.execution.random import threefry_block as _threefry_block

from ...indexing import counted_axes as _counted_axes
from ...indexing import is_mask as _is_list_mask
from ...indexing import plan_index as _plan_index
from ...indexing import reduced_axes as _axes
from ...indexing import whole_shape as _whole_shape
from . import attention as _attention
from . import fourier as _fourier
from . import linalg as _linalg
from . import scans as _scans
from . import special as _special
from . import windows as _windows

bool_ = _mx.bool_
uint8, int8, int16, int32, int64 = _mx.uint8, _mx.int8, _mx.int16, _mx.int32, _mx.int64
float16, bfloat16, float32, float64 = _mx.float16, _mx.bfloat16, _mx.float32, _mx.float64

_Array = _mx.array
_FLOATS = frozenset((float16, bfloat16, float32, float64))
_UNSIGNED = {1: _mx.uint8, 2: _mx.uint16, 4: _mx.uint32, 8: _mx.uint64}


# ---------------------------------------------------------------------------- what text needs


def scalar(value, dtype):
    return _mx.array(value, dtype)


def drop_axes(x, axis):
    return _mx.squeeze(x, _axes(x, axis))


def position(shape):
    """Returns the row-major index of each element."""
    return _mx.arange(_math.prod(shape), dtype=int64).reshape(shape)


def _is_float(x):
    return x.dtype in _FLOATS


def _as_compute(x):
    """Converts float16 and bfloat16 to float32; returns anything else unchanged."""
    return x.astype(float32) if x.dtype in (float16, bfloat16) else x


def _pair(x, y):
    """Converts both to arrays: MLX rounds bare numbers to float32, also beside float64."""
    if not isinstance(x, _Array):
        return _mx.array(x, y.dtype), y
    return _special.spread(x, y) if isinstance(y, _Array) else (x, _mx.array(y, x.dtype))


def _on_pairs(function):
    def call(x, y):
        if x.__class__ is y.__class__ and x.size and y.size and x.itemsize > 2:
            return function(x, y)  # arrays, and nothing to mend
        return function(*_pair(x, y))

    return call


def _alike(x, y):
    """Brings both to one shape and dtype, as gradients written by hand require."""
    x, y = _pair(x, y)
    dtype = _mx.result_type(x, y)
    return _mx.broadcast_arrays(x.astype(dtype), y.astype(dtype))


# ------------------------------------------------------------------------ tile instructions

add, subtract = _on_pairs(_mx.add), _on_pairs(_mx.subtract)
multiply = _on_pairs(_mx.multiply)
negate, abs, sqrt = _mx.negative, _mx.abs, _mx.sqrt
rsqrt = _special.in_wide(_mx.rsqrt)
floor, ceil, trunc, isnan = _mx.floor, _mx.ceil, _mx.trunc, _mx.isnan
equal, not_equal = _on_pairs(_mx.equal), _on_pairs(_mx.not_equal)
less, less_equal = _on_pairs(_mx.less), _on_pairs(_mx.less_equal)
greater, greater_equal = _on_pairs(_mx.greater), _on_pairs(_mx.greater_equal)
bitwise_and, bitwise_or = _on_pairs(_mx.bitwise_and), _on_pairs(_mx.bitwise_or)
bitwise_xor, bitwise_not = _on_pairs(_mx.bitwise_xor), _mx.bitwise_invert
expm1, log, log1p, tanh = _mx.expm1, _mx.log, _mx.log1p, _mx.tanh
exp, sin, cos, sigmoid = _special.exp, _special.sin, _special.cos, _special.sigmoid
erf, erfc, softplus = _special.erf, _special.erfc, _special.softplus


def round(x):
    return _mx.round(x)


def exp2(x):
    return _mx.power(_mx.array(2, x.dtype), x)


def log2(x):
    # The gradient of MLX's log2 has the digits of float32.
    return _mx.log(x) / _mx.array(_math.log(2), x.dtype) if x.dtype == float64 else _mx.log2(x)


def sign(x):
    if not _is_float(x):
        return _mx.sign(x)
    return _mx.where((x != x) | (x == 0), _mx.stop_gradient(x), _mx.sign(x))


def where(cond, x, y):
    return _special.where(cond, *_pair(x, y))


@_mx.custom_function
def _quotient(x, y):
    return _mx.divide(x, y)


@_quotient.vjp
def _quotient_vjp(operands, cotangent, out):
    slope = _quotient(cotangent, operands[1])
    return slope, -(out * slope)  # MLX takes y ** 2, which may be 0 or inf


def divide(x, y):
    x, y = _alike(x, y)
    if not _is_float(x):
        return _mx.divide(x, y)
    return _quotient(_as_compute(x), _as_compute(y)).astype(x.dtype)


@_mx.custom_function
def _minimum(x, y):
    return _mx.where((x == 0) & (y == 0), -(-x - y), _mx.minimum(x, y))  # -0 below 0


@_mx.custom_function
def _maximum(x, y):
    return _mx.where((x == 0) & (y == 0), x + y, _mx.maximum(x, y))


def _shares(wins, ties, cotangent):
    """Ties are shared equally, where MLX gives all to one operand."""
    return _mx.where(wins, cotangent, _mx.where(ties, 0.5 * cotangent, 0))


@_minimum.vjp
def _minimum_vjp(operands, cotangent, _):
    x, y = operands
    return _shares(x < y, x == y, cotangent), _shares(y < x, x == y, cotangent)


@_maximum.vjp
def _maximum_vjp(operands, cotangent, _):
    x, y = operands
    return _shares(x > y, x == y, cotangent), _shares(y > x, x == y, cotangent)


def minimum(x, y):
    x, y = _alike(x, y)
    return _minimum(x, y) if _is_float(x) else _mx.minimum(x, y)


def maximum(x, y):
    x, y = _alike(x, y)
    return _maximum(x, y) if _is_float(x) else _mx.maximum(x, y)


def at_least(x, bound):
    x, bound = _pair(x, bound)
    return _special.where(bound > x, bound, x)


def at_most(x, bound):
    x, bound = _pair(x, bound)
    return _special.where(bound < x, bound, x)


@_mx.custom_function
def _power(x, y):
    return _mx.power(x, y)


@_power.vjp
def _power_vjp(operands, cotangent, out):
    x, y = operands
    # x ** 0 has slope 0 also at 0, and 0 ** y in y; MLX has 0 * inf there.
    slope = y * _power(_mx.where(y == 0, 1, x), y - 1)
    growth = _mx.where(x == 0, 0, out * _mx.log(_mx.where(x == 0, 1, x)))
    return slope * cotangent, growth * cotangent


def power(x, y):
    x, y = _alike(x, y)
    return _power(_as_compute(x), _as_compute(y)).astype(x.dtype)


def integer_power(x, y):
    x, y = _alike(x, y)
    out = _mx.power(x, _mx.maximum(y, _number(0, y)))  # with less MLX does not end
    turned = _mx.where(y % 2 == 0, _number(1, x), x)
    whole = _mx.where(_mx.abs(x) == 1, turned, _number(0, x))
    return _mx.where(y < 0, whole, out)


def _integer_division(x, y):
    """The quotient rounded down and its remainder; 0 and 0 for divisors 0."""
    x, y = _pair(x, y)
    # -1 goes as well: the lowest number divided by it traps on some processors.
    zero, minus = y == 0, (y < 0) & (y + 1 == 0)
    safe = _mx.where(zero | minus, 1, y)
    quotient = _mx.floor_divide(x, safe)  # MLX rounds to 0
    rest = x - quotient * safe
    lower = (rest != 0) & ((rest < 0) != (safe < 0))
    quotient, rest = _mx.where(lower, quotient - 1, quotient), _mx.where(lower, rest + safe, rest)
    quotient = _mx.where(minus, -x, quotient)
    return _mx.where(zero, 0, quotient), _mx.where(zero | minus, 0, rest)


def floor_divide(x, y):
    x, y = _pair(x, y)
    if not (_is_float(x) or _is_float(y)):
        return _integer_division(x, y)[0]
    dtype = _mx.result_type(x, y)
    x, y = _as_compute(x), _as_compute(y)
    exact = x / y
    quotient = _mx.round((x - _mx.remainder(x, y)) / y)
    quotient = _mx.where(quotient == 0, quotient * 0, quotient)
    beyond = _mx.where((exact == 0) & (x != 0) & ((x < 0) != (y < 0)), -1, exact)
    quotient = _mx.where(_mx.isinf(y), beyond, quotient)
    return _mx.where(y == 0, exact, quotient).astype(dtype)


def remainder(x, y):
    x, y = _pair(x, y)
    if not (_is_float(x) or _is_float(y)):
        return _integer_division(x, y)[1]
    dtype = _mx.result_type(x, y)
    x, y = _as_compute(x), _as_compute(y)
    turned = _mx.where(y < 0, _number(-1, y), _number(1, y))  # a rest of 0 has the divisor's sign
    return (turned * (_mx.remainder(turned * x, turned * y) + _number(0, y))).astype(dtype)


def fma(x, y, z):
    return add(multiply(x, y), z)


def fms(x, y, z):
    return subtract(multiply(x, y), z)


def fnma(x, y, z):
    return subtract(z, multiply(x, y))


def scale(x, exponent):
    x, exponent = _pair(x, exponent)
    half = _mx.floor(exponent.astype(x.dtype) * 0.5)  # 2 ** exponent alone may overflow
    return x * exp2(half) * exp2(exponent - half)


def _bits(x):
    return x.dtype.size * 8


def shift_left(x, count):
    x, count = _pair(x, count)
    valid = (count >= 0) & (count < _bits(x))
    return _mx.where(valid, _mx.left_shift(x, _mx.where(valid, count, 0)), 0)


def shift_right(x, count):
    x, count = _pair(x, count)
    beyond = (count < 0) | (count >= _bits(x))
    return _mx.right_shift(x, _mx.where(beyond, _bits(x) - 1, count))


def shift_right_logical(x, count):
    x, count = _pair(x, count)
    unsigned = _UNSIGNED[x.dtype.size]
    valid = (count >= 0) & (count < _bits(x))
    count = _mx.where(valid, count, 0).astype(unsigned)
    shifted = _mx.right_shift(x.view(unsigned), count).view(x.dtype)
    return _mx.where(valid, shifted, 0)


def astype(x, dtype):
    x = x if isinstance(x, _Array) else _mx.array(x)
    if not _is_float(x) or _mx.issubdtype(dtype, _mx.floating):
        return x.astype(dtype)
    x = _mx.stop_gradient(x)  # MLX's gradients would pass through integers
    return x.astype(dtype) if dtype == bool_ else _saturate(x, dtype)


def _saturate(x, dtype):
    info = _np.iinfo(str(dtype).rpartition(".")[2])
    # Both bounds are powers of two (or 0), so the comparisons are exact.
    above = x >= float(info.max) + (info.bits < 53)
    below = x <= float(info.min)
    inside = _mx.where(above | below | (x != x), 0, x).astype(dtype)
    lowest, highest = _mx.array(info.min, dtype), _mx.array(info.max, dtype)
    return _mx.where(above, highest, _mx.where(below, lowest, inside))


def bitcast(x, dtype):
    return _mx.stop_gradient(x).view(dtype)


def threefry(key0, key1, counter, word):
    high = (counter >> (32 if counter.dtype == int64 else 31)).astype(int32)
    return _threefry_block(key0, key1, counter.astype(int32), high)[word]


def _number(value, x):
    return _mx.array(value, x.dtype)


_SATURATED = 100.0  # where sigmoid(-x) and erfc(x) are 0 beside 1, but for sigmoid in float64


def _identity_above(function):
    """Computes in float32 or wider; infinities times 0 are no numbers."""

    def call(input):
        x, bound = _as_compute(input), _number(_SATURATED, _as_compute(input))
        return _special.where(x > bound, x, function(_mx.clip(x, -bound, bound))).astype(
            input.dtype
        )

    return call


@_identity_above
def gelu(x):
    return 0.5 * x * erfc(x * _number(-_math.sqrt(0.5), x))


@_identity_above
def gelu_tanh(x):
    cubic = x + _number(0.044715, x) * (x * x * x)
    return x * sigmoid(_number(2 * _math.sqrt(2 / _math.pi), x) * cubic)


def silu(x):
    wide = _as_compute(x)
    bounded = _mx.maximum(wide, _number(-10 * _SATURATED, wide))
    return (bounded * sigmoid(bounded)).astype(x.dtype)


def _reduced(function, x, axis, keepdim, identity):
    """Reduces; empty arrays are handled here, since MLX fails on them or ends the process."""
    axes = _axes(x, axis)
    if x.size == 0:
        return full(_kept_shape(x, axes, keepdim), identity, x.dtype)
    return function(x, axes, keepdims=keepdim) if axes else x


def reduce_sum(x, axis, keepdim):
    wide = _as_compute(x)
    result = _reduced(_scans.total, wide, axis, keepdim, 0)
    return result if result.dtype == x.dtype else result.astype(x.dtype)


def reduce_prod(x, axis, keepdim):
    return _reduced(_mx.prod, _as_compute(x), axis, keepdim, 1).astype(x.dtype)


def _bounds(dtype):
    if _mx.issubdtype(dtype, _mx.floating):
        return -_math.inf, _math.inf
    if dtype == bool_:
        return False, True
    info = _mx.iinfo(dtype)
    return info.min, info.max


def _kept_shape(x, axes, keepdim):
    sizes = [1 if i in axes else n for i, n in enumerate(x.shape)]
    return sizes if keepdim else [n for i, n in enumerate(sizes) if i not in axes]


def reduce_max(x, axis, keepdim):
    return _reduced(_mx.max, x, axis, keepdim, _bounds(x.dtype)[0])


def reduce_min(x, axis, keepdim):
    return _reduced(_mx.min, x, axis, keepdim, _bounds(x.dtype)[1])


def _arg_reduce(function, x, axis, keepdim):
    axes = sorted(_axes(x, axis))
    kept = [a for a in range(x.ndim) if a not in axes]
    rows = _mx.transpose(x, kept + axes)
    shape = rows.shape[: len(kept)]
    rows = rows.reshape(*shape, _math.prod(rows.shape[len(kept) :]))
    out = _first_place(function, rows) if 0 not in rows.shape else _mx.zeros(shape)
    return (_mx.expand_dims(out, axes) if keepdim else out).astype(int64)


def _first_place(function, rows):
    """MLX passes NaNs over, of which the first one should win."""
    place = function(rows, -1)
    if not _is_float(rows):
        return place
    nan = rows != rows
    return _mx.where(_mx.any(nan, -1), _mx.argmax(nan, -1), place)


def reduce_argmax(x, axis, keepdim):
    return _arg_reduce(_mx.argmax, x, axis, keepdim)


def reduce_argmin(x, axis, keepdim):
    return _arg_reduce(_mx.argmin, x, axis, keepdim)


def reduce_any(x, axis, keepdim):
    return _reduced(_mx.any, x != 0, axis, keepdim, False)


def reduce_all(x, axis, keepdim):
    return _reduced(_mx.all, x != 0, axis, keepdim, True)


def cumsum(input, axis=0):
    if input.size == 0:  # MLX divides by 0, which ends the process
        return input
    return _scans.cumsum(_as_compute(input), axis).astype(input.dtype)


linear_scan, cumprod = _scans.linear_scan, _scans.cumprod
scan, cond, while_loop = _scans.scan, _scans.cond, _scans.while_loop
argsort, last_writers = _scans.argsort, _scans.last_writers
true_places, nonzero = _scans.true_places, _scans.nonzero
dft, rdft = _fourier.dft, _fourier.rdft
cholesky, solve_triangular = _linalg.cholesky, _linalg.solve_triangular
solve, det, eigh = _linalg.solve, _linalg.det, _linalg.eigh
cofactor, scaled_det = _linalg.cofactor, _linalg.scaled_det
qr, svd = _linalg.qr, _linalg.svd
pinv, lstsq = _linalg.pinv, _linalg.lstsq


# ------------------------------------------------------------------- ops: activations, softmax


asin, acos, atan = _mx.arcsin, _mx.arccos, _special.in_wide(_mx.arctan)


@_mx.custom_function
def _angle(y, x):
    return _mx.arctan2(y, x)


@_angle.vjp
def _angle_vjp(operands, cotangent, _):
    y, x = operands
    # Squares of numbers at most 1: else they may be too large, or all 0.
    unit = _mx.stop_gradient(_mx.maximum(_mx.abs(x), _mx.abs(y)))
    a, b = x / unit, y / unit
    scaled = cotangent / (a * a + b * b) / unit
    return a * scaled, -(b * scaled)


def atan2(y, x):
    y, x = _alike(y, x)
    return _angle(_as_compute(y), _as_compute(x)).astype(x.dtype)


@_mx.custom_function
def _relu(input):
    return _mx.maximum(input, 0)


@_relu.vjp
def _relu_vjp(input, cotangent, _):
    return _mx.where(input <= 0, 0, cotangent)  # a NaN's goes through


def relu(input):
    return _relu(input) if _is_float(input) else _mx.maximum(input, 0)


stop_gradient = _mx.stop_gradient


def after(input, token):
    return _mx.depends([input], [token])[0]


softmax = _scans.softmax


def log_softmax(input, axis=-1):
    if input.size == 0:
        return input
    x = _as_compute(input)
    x = x - stop_gradient(reduce_max(x, axis, True))
    return (x - _mx.log(reduce_sum(exp(x), axis, True))).astype(input.dtype)


# ----------------------------------------------------------------------------- ops: reductions


def sum(input, axis=None, keepdim=False):
    return reduce_sum(input, axis, keepdim)


def prod(input, axis=None, keepdim=False):
    return reduce_prod(input, axis, keepdim)


@_special.in_wide  # for the gradient, which counts ties
def max(input, axis=None, keepdim=False):
    return reduce_max(input, axis, keepdim)


@_special.in_wide  # for the gradient, which counts ties
def min(input, axis=None, keepdim=False):
    return reduce_min(input, axis, keepdim)


def any(input, axis=None, keepdim=False):
    return reduce_any(input, axis, keepdim)


def all(input, axis=None, keepdim=False):
    return reduce_all(input, axis, keepdim)


def argmax(input, axis=None, keepdim=False):
    return reduce_argmax(input, axis, keepdim)


def argmin(input, axis=None, keepdim=False):
    return reduce_argmin(input, axis, keepdim)


def mean(input, axis=None, keepdim=False):
    count = _math.prod([input.shape[a] for a in _axes(input, axis)])
    x = _as_compute(input)
    result = reduce_sum(x, axis, keepdim) / _special.constant(count, x.dtype)
    return result if x is input else result.astype(input.dtype)


def sum_to(input, like):
    """Sums what broadcasting has repeated, so that the result has the shape of `like`."""
    if input.shape == like.shape:
        return input
    extra = input.ndim - like.ndim
    ones = [i + extra for i, n in enumerate(like.shape) if n == 1 and input.shape[i + extra] != 1]
    return reduce_sum(input, (*range(extra), *ones), True).reshape(like.shape)


# ------------------------------------------------------------------------------ ops: products


def matmul(left, right):
    if _is_float(left) and left.size > 0 and right.size > 0:
        return _mx.matmul(left, right)
    return _sum_of_products(left, right)


def _sum_of_products(left, right):
    """A matrix product column by column: MLX multiplies matrices of floats with elements only."""
    rows = left[None] if left.ndim == 1 else left
    columns = right[:, None] if right.ndim == 1 else right
    shape = (*_mx.broadcast_shapes(rows.shape[:-2], columns.shape[:-2]),
             rows.shape[-2], columns.shape[-1])  # fmt: skip
    out = _mx.zeros(shape, left.dtype)
    for k in range(rows.shape[-1] if out.size > 0 else 0):
        out = out + rows[..., :, k : k + 1] * columns[..., k : k + 1, :]
    out = out[..., 0] if right.ndim == 1 else out
    axis = -1 if right.ndim == 1 else -2
    return _mx.squeeze(out, axis) if left.ndim == 1 else out


plain_attention = _attention.plain_attention


def linear(weight, input, bias=None, dimension=None, use_bias=True):
    # On the CPU `addmm` takes longer, and hides its sum from MLX's compiler.
    if bias is None:
        return matmul(input, _mx.swapaxes(weight, -1, -2))
    product = matmul(_as_compute(input), _mx.swapaxes(_as_compute(weight), -1, -2))
    return (product + bias).astype(input.dtype)


# ------------------------------------------------------------------------------- ops: windows

conv2d, conv2d_dx, conv2d_dw = _windows.conv2d, _windows.conv2d_dx, _windows.conv2d_dw
conv2d_channels_last = _windows.conv2d_channels_last
max_pool2d_channels_last = _windows.max_pool2d_channels_last
avg_pool2d_channels_last = _windows.avg_pool2d_channels_last
max_pool2d, max_pool2d_grad = _windows.max_pool2d, _windows.max_pool2d_grad
max_pool2d_pick = _windows.max_pool2d_pick
avg_pool2d, avg_pool2d_grad = _windows.avg_pool2d, _windows.avg_pool2d_grad


# ------------------------------------------------------------------------------ ops: movement


def transpose(input, axes=None):
    return _mx.transpose(input, axes or None)


def swapaxes(input, axis1, axis2):
    return _mx.swapaxes(input, axis1, axis2)


def reshape(input, shape):
    return _mx.reshape(input, _whole_shape(shape, input.shape))


def flatten(input, start_dim=0, end_dim=-1):
    shape = input.shape
    if not shape:
        return _mx.reshape(input, (1,))
    first, last = _counted_axes((start_dim, end_dim), len(shape))
    joined = _math.prod(shape[first : last + 1])
    return _mx.reshape(input, (*shape[:first], joined, *shape[last + 1 :]))


def squeeze(input, axis=None):
    return _mx.squeeze(input, axis)


def expand_dims(input, axis):
    return _mx.expand_dims(input, axis)


def broadcast_to(input, shape):
    if 0 in shape and tuple(input.shape) != tuple(shape):
        return _mx.broadcast_to(stop_gradient(input), shape)  # see special.spread
    return _special.repeated(input, shape)


def broadcast_like(input, like):
    return broadcast_to(input, like.shape)


def concat(input, axis=0):
    return _mx.concatenate(list(input), axis)  # None joins them flattened


def split_with_sizes(input, sizes, axis):
    return _mx.split(input, list(_itertools.accumulate(sizes[:-1])), axis)


def pad(input, pad_width, mode="constant", value=0.0):
    return _mx.pad(input, pad_width)


# ------------------------------------------------------------------------- ops: host and index


def shape(input):
    return tuple(input.shape)


def size(input, dim=None):
    if dim is None:
        return input.size
    return input.shape[dim] if isinstance(dim, int) else tuple(input.shape[d] for d in dim)


def length(input):
    return len(input)


def item(input):
    return input.item()


def buffer(input):
    return input


def tensor_to_list(input):
    return input.tolist()


def to_tensor(input, dtype):
    return input.astype(dtype) if isinstance(input, _Array) else _mx.array(input, dtype)


def index(input, items=(), /, *, index=None):
    return _indexed(input, _entries(items, index))


def _indexed(input, entries):
    if _differs(entries):
        plan = _plan_index(entries, input.ndim)
        rows = _indexed(input, plan.basic)
        arrays = _as_arrays(plan.arrays)
        rows = _indexed(rows.transpose(plan.arrays_first(rows.ndim)), arrays)
        rank = _builtins.max(a.ndim for a in arrays)
        return rows.transpose(plan.into_place(rank, rows.ndim))
    entries = _index(input, entries)
    empty = _empty(input, entries)
    if empty is not None:
        return empty
    as_list = entries if isinstance(entries, tuple) else (entries,)
    if not _builtins.any(isinstance(e, _Array) and _repeats(input, e) for e in as_list):
        return input[entries]
    return _as_compute(input)[entries].astype(input.dtype)


def _repeats(input, indices):
    """Tells whether the gradient of a look-up may sum more than two halves: done in float32."""
    return input.dtype in (float16, bfloat16) and indices.size > 2


def index_add(input, value, items=(), /, *, index=None):
    """A copy of `input` with `value` added where the index points; repeated places add up."""
    entries = _entries(items, index)
    if _differs(entries):
        return _add_at_places(input, value, _indexed(_places_of(input), entries))
    entries = _index(input, entries)
    if value.size == 0 or _empty(input, entries) is not None:
        return input
    return _add_at(_as_compute(input), _as_compute(value), entries).astype(input.dtype)


def _add_at(input, value, entries):
    if not (isinstance(entries, tuple) and _builtins.any(isinstance(e, _Array) for e in entries)):
        return input.at[entries].add(value)
    # MLX orders the axes of values beside arrays and slices in its own way.
    return _add_flat(input, value, _places_of(input)[entries])


def _add_at_places(input, value, places):
    if value.size == 0 or places.size == 0:
        return input
    return _add_flat(_as_compute(input), _as_compute(value), places).astype(input.dtype)


def _places_of(input):
    return _mx.arange(input.size, dtype=int64).reshape(input.shape)


def _add_flat(input, value, places):
    values = _mx.broadcast_to(value, places.shape).reshape(-1)
    flat = input.reshape(-1).at[places.reshape(-1)].add(values)
    return flat.reshape(input.shape)


def _entries(items, index):
    if len(items) > 0:
        index = items[0] if len(items) == 1 else tuple(items)
    entries = index if isinstance(index, tuple) else (index,)
    return _without_masks(entries) if _builtins.any(map(_is_mask, entries)) else entries


def _differs(entries):
    """Tells whether NumPy reads an index in a way that MLX does not: lists of bools, an
    ellipsis beside several arrays or integers."""
    if _builtins.any(map(_is_list_mask, entries)):
        return True
    arrays = [isinstance(e, list | _Array) for e in entries]
    ints = [isinstance(e, int) for e in entries]
    return Ellipsis in [e for e in entries if not isinstance(e, _Array)] and (
        _builtins.any(arrays) and _builtins.sum(arrays) + _builtins.sum(ints) > 1
    )


def _as_arrays(entries):
    return tuple(e if isinstance(e, _Array) else _mx.array(e, dtype=int64) for e in entries)


def _index(input, entries):
    """Converts an index to one that MLX takes: numbers in bounds, lists as arrays."""
    if not _builtins.any(isinstance(entry, int | list | slice | _Array) for entry in entries):
        return entries
    named = _builtins.sum(entry is not None and entry is not Ellipsis for entry in entries)
    axis, checked = 0, []
    for entry in entries:
        if entry is Ellipsis:
            axis += input.ndim - named
        elif entry is not None:
            entry = _in_bounds(entry, input.shape[axis])
            axis += 1
        checked.append(entry)
    return tuple(checked)


def _is_mask(entry):
    return isinstance(entry, _Array) and entry.dtype == _mx.bool_


def _without_masks(entries):
    """Replaces bools, which MLX would read as numbers, by the places that are true."""
    out = []
    for entry in entries:
        found = _np.nonzero(_np.array(entry)) if _is_mask(entry) else (entry,)
        out += [_mx.array(x) if isinstance(x, _np.ndarray) else x for x in found]
    return tuple(out)


def _empty(input, entries):
    """Returns the result of an index that picks nothing, which may crash MLX; else None."""
    as_list = entries if isinstance(entries, tuple) else (entries,)
    if input.size > 0 and not _builtins.any(isinstance(e, _Array) and e.size == 0 for e in as_list):
        return None
    places = tuple(_np.zeros(e.shape, int) if isinstance(e, _Array) else e for e in as_list)
    return _mx.zeros(_np.broadcast_to(0, input.shape)[places].shape, input.dtype)


def _in_bounds(entry, size):
    if isinstance(entry, int) and not -size <= entry < size:
        raise IndexError(f"index {entry} is out of bounds for a size of {size}")
    if isinstance(entry, slice):
        taken = range(*entry.indices(size))
        # MLX's gradients of one element and of none are wrong where the step is not 1.
        if taken.step == 1 or len(taken) > 1:
            return entry
        return slice(taken[0], taken[0] + 1) if taken else slice(0, 0)
    if isinstance(entry, list):
        entry = _mx.array(entry, int64) if entry else _mx.zeros((0,), int64)
    return _places(entry, size) if isinstance(entry, _Array) else entry


def _places(indices, size):
    return _mx.clip(indices.astype(int64), -size, size - 1)


def gather(input, indices):
    return index(input, (indices,))


def embedding(input, weight, num_embeddings=None, dim=None):
    return gather(weight, input)


def embedding_grad(value, indices, shape):
    """Returns zeros with the values added to their rows, in the order of the indices."""
    return index_add(_mx.zeros(shape, value.dtype), value, (indices,))


# ------------------------------------------------------------------------------ ops: creation


def full(shape, value, dtype):
    return _mx.full(shape, astype(value, dtype) if isinstance(value, _Array) else
                    _mx.array(value, dtype), dtype)  # fmt: skip


def zeros(shape, dtype):
    return _mx.zeros(shape, dtype)


def ones(shape, dtype):
    return _mx.ones(shape, dtype)


def zeros_like(input):
    return _mx.zeros_like(input)


def ones_like(input):
    return _mx.ones_like(input)


def arange(start=0, stop=None, step=1, dtype=None):
    values = _np.arange(start, stop, step)  # MLX counts in float32
    return _mx.array(values, dtype)


def eye(N, M=None, dtype=None):
    return _mx.array(_np.eye(N, M), dtype)  # MLX has none of size 0
