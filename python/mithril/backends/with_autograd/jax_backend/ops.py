"""The functions that emitted text calls on JAX arrays.

Three kinds: instructions of tile programs (`add` … `reduce_all`), ops that have a function here of
their own name, and what the text itself needs (`scalar`, `drop_axes`, dtypes). Operands of
pointwise functions may be Python numbers where another operand is an array. Values and gradients
at kinks are those of `docs/numerics.md`. Without `enable_x64` 64-bit types are 32-bit ones.
"""

from __future__ import annotations

import builtins as _builtins
import functools as _functools
import math as _math

import jax as _jax
import jax.numpy as _jnp
import numpy as _np

from mithril.execution.random import threefry_block as _threefry_block

from ...indexing import counted_axes as _counted_axes
from ...indexing import plan_index as _plan_index
from ...indexing import reduced_axes as _axes
from ...indexing import whole_shape as _whole_shape
from . import fourier as _fourier
from . import linalg as _linalg
from . import scans as _scans
from . import windows as _windows
from .wide import in_wide as _in_wide

_lax = _jax.lax

bool_ = _np.dtype(bool)
uint8, int8, int16, int32, int64 = (_np.dtype(t) for t in ("u1", "i1", "i2", "i4", "i8"))
float16, float32, float64 = (_np.dtype(t) for t in ("f2", "f4", "f8"))
bfloat16 = _np.dtype(_jnp.bfloat16)

_available = _jax.dtypes.canonicalize_dtype


# ---------------------------------------------------------------------------- what text needs


def scalar(value, dtype):
    return _jnp.asarray(value, _available(dtype))


def drop_axes(x, axis):
    return _jnp.squeeze(x, _axes(x, axis))


def position(shape):
    """Returns the row-major index of each element."""
    return _jnp.arange(_math.prod(shape), dtype=_available(int64)).reshape(shape)


def _is_narrow(x):
    return x.dtype.itemsize == 2 and _jnp.issubdtype(x.dtype, _jnp.floating)


def _as_compute(x):
    """Converts float16 and bfloat16 to float32; returns anything else unchanged."""
    return x.astype(float32) if _is_narrow(x) else x


# ------------------------------------------------------------------------ tile instructions

add, subtract, multiply = _jnp.add, _jnp.subtract, _jnp.multiply
minimum, maximum, negate, sign = _jnp.minimum, _jnp.maximum, _jnp.negative, _jnp.sign
sqrt, rsqrt = _jnp.sqrt, _in_wide(_lax.rsqrt)
floor, ceil, round, trunc, isnan = _jnp.floor, _jnp.ceil, _jnp.rint, _jnp.trunc, _jnp.isnan
equal, not_equal, less, less_equal = _jnp.equal, _jnp.not_equal, _jnp.less, _jnp.less_equal
greater, greater_equal = _jnp.greater, _jnp.greater_equal
bitwise_and, bitwise_or, bitwise_xor = _jnp.bitwise_and, _jnp.bitwise_or, _jnp.bitwise_xor
bitwise_not, where = _jnp.bitwise_not, _jnp.where
exp, log, log1p = _jnp.exp, _jnp.log, _jnp.log1p
# XLA computes these of halves in several steps, each of which it rounds.
expm1, exp2, log2 = _in_wide(_jnp.expm1), _in_wide(_jnp.exp2), _in_wide(_jnp.log2)
sin, cos = _jnp.sin, _jnp.cos
tanh, sigmoid = _in_wide(_jnp.tanh), _in_wide(_lax.logistic)
erf, erfc = _lax.erf, _lax.erfc


_ARGUMENTS = (_jax.Array, float)  # of compiled functions, as they are
# Outside of `jit` a custom_jvp inspects its function's signature at every call, which takes 0.3 ms.
_compiled = _functools.partial(_jax.jit, inline=True)


def _of_two(function):
    """A function of two operands of one type of floats, with halves computed in float32. It is
    compiled, for conversions alone take 0.1 ms each; other numbers than floats are converted
    before, since integers of more than 32 bits are no arguments of compiled functions."""

    @_compiled
    def compiled(x, y):
        dtype = _jnp.result_type(x, y)
        x, y = (_as_compute(_jnp.asarray(operand, dtype)) for operand in (x, y))
        return function(x, y).astype(dtype)

    def run(x, y):
        if not (isinstance(x, _ARGUMENTS) and isinstance(y, _ARGUMENTS)):
            dtype = _jnp.result_type(x, y)
            x, y = _jnp.asarray(x, dtype), _jnp.asarray(y, dtype)
        return compiled(x, y)

    return run


@_jax.custom_jvp
def _quotient(x, y):
    return _jnp.true_divide(x, y)


@_quotient.defjvp
def _quotient_jvp(primals, tangents):
    (x, y), (dx, dy) = primals, tangents
    out = _quotient(x, y)
    return out, _jnp.true_divide(dx - out * dy, y)  # JAX takes y ** -2, which may be 0 or inf


_divide_floats = _of_two(_quotient)


def divide(x, y):
    is_float = _jnp.issubdtype(_jnp.result_type(x, y), _jnp.floating)
    return (_divide_floats if is_float else _jnp.true_divide)(x, y)


@_jax.custom_jvp
def _magnitude(x):
    return _jnp.abs(x)


@_magnitude.defjvp
def _magnitude_jvp(primals, tangents):
    (x,), (dx,) = primals, tangents
    return _magnitude(x), _jnp.sign(x) * dx  # 0 at 0, where JAX has 1


abs = _compiled(_magnitude)


@_jax.custom_jvp
def _power(x, y):
    return _jnp.power(x, y)


@_power.defjvp
def _power_jvp(primals, tangents):
    (x, y), (dx, dy) = primals, tangents
    out = _power(x, y)
    # x ** 0 has slope 0 also at 0, and 0 ** y in y; JAX has 0 * inf there.
    slope = y * _power(_jnp.where(y == 0, 1, x), y - 1)
    growth = _jnp.where(x == 0, 0, out * _jnp.log(_jnp.where(x == 0, 1, x)))
    return out, slope * dx + growth * dy


power = _of_two(_power)


def integer_power(x, y):
    dtype = _jnp.result_type(x, y)
    x, y = _jnp.broadcast_arrays(_jnp.asarray(x, dtype), _jnp.asarray(y, dtype))

    def step(_, state):
        power, square, left = state
        return _jnp.where(left % 2 == 1, power * square, power), square * square, left // 2

    bits = _jnp.iinfo(dtype).bits
    out = _lax.fori_loop(0, bits, step, (_jnp.ones_like(x), x, _jnp.maximum(y, 0)))[0]
    turned = _jnp.where(y % 2 == 0, 1, x)
    return _jnp.where(y < 0, _jnp.where(_jnp.abs(x) == 1, turned, 0), out).astype(dtype)


def _is_integral(*operands):
    kinds = (_jnp.issubdtype(_jnp.result_type(x), _jnp.floating) for x in operands)
    return not _builtins.any(kinds)


def floor_divide(x, y):
    if _is_integral(x, y):
        zero = _jnp.equal(y, 0)
        return _jnp.where(zero, 0, _jnp.floor_divide(x, _jnp.where(zero, 1, y)))
    return _floor_divide_floats(x, y)


def _float_floor_divide(x, y):
    exact = x / y
    quotient = _jnp.rint((x - _jnp.remainder(x, y)) / y)
    quotient = _jnp.where(quotient == 0, quotient * 0, quotient)
    beyond = _jnp.where((exact == 0) & (x != 0) & (_jnp.signbit(x) != _jnp.signbit(y)), -1, exact)
    return _jnp.where(y == 0, exact, _jnp.where(_jnp.isinf(y), beyond, quotient))


_floor_divide_floats = _of_two(_float_floor_divide)


def remainder(x, y):
    if _is_integral(x, y):
        zero = _jnp.equal(y, 0)
        return _jnp.where(zero, 0, _jnp.remainder(x, _jnp.where(zero, 1, y)))
    return _remainder_of_floats(x, y)


@_jax.custom_jvp
def _remainder(x, y):
    rest = _jnp.remainder(x, y)
    return _jnp.where(rest == 0, _jnp.copysign(rest, y), rest)


@_remainder.defjvp
def _remainder_jvp(primals, tangents):
    (x, y), (dx, dy) = primals, tangents
    return _remainder(x, y), dx - _lax.stop_gradient(_float_floor_divide(x, y)) * dy


_remainder_of_floats = _of_two(_remainder)


def at_least(x, bound):
    return _jnp.where(bound > x, bound, x)


def at_most(x, bound):
    return _jnp.where(bound < x, bound, x)


def fma(x, y, z):
    return x * y + z


def fms(x, y, z):
    return x * y - z


def fnma(x, y, z):
    return z - x * y


def scale(x, exponent):
    return _jnp.ldexp(x, _jnp.asarray(exponent).astype(int32))


def _bits(x):
    return x.dtype.itemsize * 8


def shift_left(x, count):
    valid = (count >= 0) & (_jnp.asarray(count) < _bits(x))
    return _jnp.where(valid, _jnp.left_shift(x, _jnp.where(valid, count, 0)), 0)


def shift_right(x, count):
    beyond = (_jnp.asarray(count) < 0) | (_jnp.asarray(count) >= _bits(x))
    return _jnp.right_shift(x, _jnp.where(beyond, _bits(x) - 1, count))


def shift_right_logical(x, count):
    valid = (_jnp.asarray(count) >= 0) & (_jnp.asarray(count) < _bits(x))
    count = _jnp.where(valid, count, 0).astype(x.dtype)
    return _jnp.where(valid, _lax.shift_right_logical(x, _jnp.broadcast_to(count, x.shape)), 0)


def astype(x, dtype):
    x = _jnp.asarray(x)
    dtype = _available(dtype)
    if dtype.kind in "iu" and _jnp.issubdtype(x.dtype, _jnp.floating):
        return _saturate(x, dtype)
    return x.astype(dtype)


def _saturate(x, dtype):
    info = _np.iinfo(dtype)
    # Both bounds are powers of two (or 0), so the comparisons are exact.
    above = x >= float(info.max) + (info.bits < 53)
    below = x <= float(info.min)
    inside = _jnp.where(above | below | (x != x), 0, x).astype(dtype)
    lowest, highest = _jnp.asarray(info.min, dtype), _jnp.asarray(info.max, dtype)
    return _jnp.where(above, highest, _jnp.where(below, lowest, inside))


def bitcast(x, dtype):
    return _lax.bitcast_convert_type(x, dtype)


def threefry(key0, key1, counter, word):
    # Counters are int64; without 64-bit types they are int32 with the sign as the high word.
    high = (counter >> (32 if counter.dtype == int64 else 31)).astype(int32)
    return _threefry_block(key0, key1, counter.astype(int32), high)[word]


_SATURATED = 100.0  # where sigmoid(-x) and erfc(x) are 0 beside 1, but for sigmoid in float64


def _identity_above(x, function):
    """Infinities times 0 are no numbers."""
    return _jnp.where(x > _SATURATED, x, function(_jnp.clip(x, -_SATURATED, _SATURATED)))


@_in_wide
def gelu(x):
    return _identity_above(x, lambda x: 0.5 * x * _lax.erfc(x * -_math.sqrt(0.5)))


@_in_wide
def gelu_tanh(x):
    return _identity_above(x, _functools.partial(_jax.nn.gelu, approximate=True))


@_in_wide
def silu(x):
    bounded = _jnp.clip(x, -10 * _SATURATED)
    return bounded * _lax.logistic(bounded)


@_in_wide
def softplus(x):
    return _jnp.logaddexp(x, 0.0)


def reduce_sum(x, axis, keepdim):
    return _jnp.sum(_as_compute(x), _axes(x, axis), keepdims=keepdim).astype(x.dtype)


def reduce_prod(x, axis, keepdim):
    return _jnp.prod(_as_compute(x), _axes(x, axis), keepdims=keepdim).astype(x.dtype)


def _identity(x, axes, value):
    """Only where a reduced axis is empty: a starting value would take its share of gradients."""
    return {"initial": value} if 0 in (x.shape[a] for a in axes) else {}


def _bounds(dtype):
    if _jnp.issubdtype(dtype, _jnp.floating):
        return -_math.inf, _math.inf
    if dtype == bool_:
        return False, True
    return _jnp.iinfo(dtype).min, _jnp.iinfo(dtype).max


def reduce_max(x, axis, keepdim):
    axes = _axes(x, axis)
    return _jnp.max(x, axes, keepdims=keepdim, **_identity(x, axes, _bounds(x.dtype)[0]))


def reduce_min(x, axis, keepdim):
    axes = _axes(x, axis)
    return _jnp.min(x, axes, keepdims=keepdim, **_identity(x, axes, _bounds(x.dtype)[1]))


def _arg_reduce(function, x, axis, keepdim):
    axes = tuple(sorted(_axes(x, axis)))
    kept = tuple(a for a in range(x.ndim) if a not in axes)
    rows = _jnp.transpose(x, kept + axes)
    shape = rows.shape[: len(kept)]
    rows = rows.reshape(*shape, _math.prod(rows.shape[len(kept) :]))
    dtype = _available(int64)
    out = function(rows, -1) if rows.shape[-1] else _jnp.zeros(shape, dtype)
    return (_jnp.expand_dims(out, axes) if keepdim else out).astype(dtype)


def reduce_argmax(x, axis, keepdim):
    return _arg_reduce(_jnp.argmax, x, axis, keepdim)


def reduce_argmin(x, axis, keepdim):
    return _arg_reduce(_jnp.argmin, x, axis, keepdim)


def reduce_any(x, axis, keepdim):
    return _jnp.any(x, _axes(x, axis), keepdims=keepdim)


def reduce_all(x, axis, keepdim):
    return _jnp.all(x, _axes(x, axis), keepdims=keepdim)


def cumsum(input, axis=0):
    return _jnp.cumsum(_as_compute(input), axis).astype(input.dtype)


linear_scan, cumprod = _scans.linear_scan, _scans.cumprod
scan, cond, while_loop = _scans.scan, _scans.cond, _scans.while_loop
argsort, last_writers = _scans.argsort, _scans.last_writers
true_places, nonzero = _scans.true_places, _scans.nonzero


# ------------------------------------------------------------------- ops: activations, softmax


asin, acos = _in_wide(_jnp.arcsin), _in_wide(_jnp.arccos)
atan = _in_wide(_jnp.arctan)


@_jax.custom_jvp
def _angle(y, x):
    return _jnp.arctan2(y, x)


@_angle.defjvp
def _angle_jvp(primals, tangents):
    (y, x), (dy, dx) = primals, tangents
    # Squares of numbers at most 1: else they may be too large, or all 0.
    unit = _lax.stop_gradient(_jnp.maximum(_jnp.abs(x), _jnp.abs(y)))
    a, b = x / unit, y / unit
    return _angle(y, x), (a * dy - b * dx) / (a * a + b * b) / unit


atan2 = _of_two(_angle)


relu = _jax.nn.relu


def stop_gradient(input):
    return _lax.stop_gradient(input)


def after(input, token):
    return _lax.optimization_barrier((input, token))[0]


def softmax(input, axis=-1):
    out = _jax.nn.softmax(_as_compute(input), axis)
    return out if out.dtype == input.dtype else out.astype(input.dtype)


def log_softmax(input, axis=-1):
    return _jax.nn.log_softmax(_as_compute(input), axis).astype(input.dtype)


# ----------------------------------------------------------------------------- ops: reductions


def sum(input, axis=None, keepdim=False):
    return reduce_sum(input, axis, keepdim)


def prod(input, axis=None, keepdim=False):
    return reduce_prod(input, axis, keepdim)


@_in_wide  # for the gradient, which counts ties
def max(input, axis=None, keepdim=False):
    return reduce_max(input, axis, keepdim)


@_in_wide  # for the gradient, which counts ties
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
    return _jnp.mean(_as_compute(input), _axes(input, axis), keepdims=keepdim).astype(input.dtype)


def sum_to(input, like):
    """Sums what broadcasting has repeated, so that the result has the shape of `like`."""
    if input.shape == like.shape:
        return input
    extra = input.ndim - like.ndim
    ones = [i + extra for i, n in enumerate(like.shape) if n == 1 and input.shape[i + extra] != 1]
    return reduce_sum(input, (*range(extra), *ones), True).reshape(like.shape)


# ------------------------------------------------------------------------------ ops: products


def matmul(left, right):
    return _jnp.matmul(left, right)


cholesky = _linalg.cholesky
solve_triangular = _linalg.solve_triangular
solve = _linalg.solve
det, scaled_det, cofactor = _linalg.det, _linalg.scaled_det, _linalg.cofactor
eigh = _linalg.eigh
qr, svd = _linalg.qr, _linalg.svd
pinv, lstsq = _linalg.pinv, _linalg.lstsq
dft, rdft = _fourier.dft, _fourier.rdft


def linear(weight, input, bias=None, dimension=None, use_bias=True):
    weight = _jnp.swapaxes(weight, -1, -2)
    if bias is None or not _is_narrow(input):
        out = _jnp.matmul(input, weight)
        return out if bias is None else out + bias
    out = _jnp.matmul(input, weight, preferred_element_type=float32)
    return (out + bias).astype(input.dtype)


# ------------------------------------------------------------------------------- ops: windows

conv2d, conv2d_dx, conv2d_dw = _windows.conv2d, _windows.conv2d_dx, _windows.conv2d_dw
max_pool2d, max_pool2d_grad = _windows.max_pool2d, _windows.max_pool2d_grad
max_pool2d_pick = _windows.max_pool2d_pick
avg_pool2d, avg_pool2d_grad = _windows.avg_pool2d, _windows.avg_pool2d_grad


# ------------------------------------------------------------------------------ ops: movement


@_functools.lru_cache(1024)
def _mover(function, parameters):
    return _jax.jit(lambda x: function(x, *parameters), inline=True)


def _moved(x, function, *parameters):
    """`function` of x, compiled: where JAX runs operation by operation it looks that up in C++,
    within a third of the time of a call with parameters."""
    try:
        run = _mover(function, parameters)
    except TypeError:  # parameters that have no hash
        return function(x, *parameters)
    return run(x)


def transpose(input, axes=None):
    return _moved(input, _jnp.transpose, axes or None)


def swapaxes(input, axis1, axis2):
    return _jnp.swapaxes(input, axis1, axis2)


def reshape(input, shape):
    return _moved(input, _jnp.reshape, _whole_shape(shape, input.shape))


def flatten(input, start_dim=0, end_dim=-1):
    shape = _jnp.shape(input)
    if not shape:
        return _jnp.reshape(input, (1,))
    first, last = _counted_axes((start_dim, end_dim), len(shape))
    joined = _math.prod(shape[first : last + 1])
    return _jnp.reshape(input, shape[:first] + (joined,) + shape[last + 1 :])


def squeeze(input, axis=None):
    return _jnp.squeeze(input, axis)


def expand_dims(input, axis):
    return _moved(input, _jnp.expand_dims, axis)


def broadcast_to(input, shape):
    return _jnp.broadcast_to(input, shape)


def broadcast_like(input, like):
    return _jnp.broadcast_to(input, like.shape)


def concat(input, axis=0):
    return _jnp.concatenate(input, axis)  # None joins them flattened


def split_with_sizes(input, sizes, axis):
    return _moved(input, _lax.split, sizes, axis)


def pad(input, pad_width, mode="constant", value=0.0):
    return _jnp.pad(input, pad_width)


# ------------------------------------------------------------------------- ops: host and index


def shape(input):
    return _jnp.shape(input)


def size(input, dim=None):
    sizes = _jnp.shape(input)
    if dim is None:
        return _math.prod(sizes)
    return sizes[dim] if isinstance(dim, int) else tuple(sizes[d] for d in dim)


def length(input):
    return len(input)


def item(input):
    return input.item()


def buffer(input):
    return input


def tensor_to_list(input):
    return input.tolist()


def to_tensor(input, dtype):
    return _jnp.asarray(input, _available(dtype))


def index(input, items=(), /, *, index=None):
    key = _index(items, index)
    if _has_bools(key):
        return _planned(input, key)
    window = _window(key if isinstance(key, tuple) else (key,), input.shape)
    if window is not None:
        return _moved(input, _lax.slice, *window)
    entries = key if isinstance(key, tuple) else (key,)
    _check_places(entries, input.shape)
    if _builtins.any(hasattr(entry, "dtype") and _repeats(input, entry) for entry in entries):
        return _as_compute(input)[key].astype(input.dtype)
    return input[key]


def _has_bools(key):
    entries = key if isinstance(key, tuple) else (key,)
    return _builtins.any(isinstance(entry, bool) for entry in entries)


def _planned(input, key):
    """By an index without bools, which JAX puts in other places than NumPy."""
    entries: list = []
    for entry in key if isinstance(key, tuple) else (key,):
        is_data = isinstance(entry, _jax.Array) and entry.dtype == bool_
        entries += _jnp.nonzero(entry) if is_data else [entry]
    plan = _plan_index(entries, input.ndim)
    rows = index(input, plan.basic)
    arrays = tuple(_np.asarray(a, int) if isinstance(a, list) else a for a in plan.arrays)
    rows = index(rows.transpose(plan.arrays_first(rows.ndim)), arrays)
    rank = _builtins.max(_jnp.ndim(a) for a in arrays)
    return rows.transpose(plan.into_place(rank, rows.ndim))


def _repeats(input, indices):
    """Tells whether the gradient of a look-up may sum more than two halves: done in float32."""
    return _is_narrow(input) and indices.size > 2 and isinstance(input, _jax.core.Tracer)


def _window(key, shape):
    """Starts, stops and steps of slices forwards, which `lax.slice` takes without looking further;
    None for other keys."""
    if not 0 < len(key) <= len(shape):
        return None
    bounds = []
    for item, size in zip(key, shape, strict=False):
        if not isinstance(item, slice) or not _is_forward(item.start, item.stop, item.step):
            return None
        start, stop, step = item.indices(size)
        bounds.append((start, stop if stop > start else start, step))
    return tuple(zip(*bounds, *((0, size, 1) for size in shape[len(key) :]), strict=True))


def _is_forward(start, stop, step):
    return {type(start), type(stop), type(step)} <= {type(None), int} and (step is None or step > 0)


def index_add(input, value, items=(), /, *, index=None):
    """A copy of `input` with `value` added where the index points; repeated places add up."""
    key, out = _index(items, index), _as_compute(input)
    if _has_bools(key):
        places = _planned(_np.arange(input.size).reshape(input.shape), key)
        values = _jnp.broadcast_to(_as_compute(value), places.shape)
        return out.reshape(-1).at[places].add(values).reshape(input.shape).astype(input.dtype)
    return out.at[key].add(_as_compute(value)).astype(input.dtype)


def _index(items, index):
    if len(items) > 0:
        return items[0] if len(items) == 1 else tuple(items)
    if isinstance(index, tuple):
        return tuple(_np.asarray(i) if isinstance(i, list) else i for i in index)
    return _np.asarray(index) if isinstance(index, list) else index


def _check_places(entries, shape):
    """Refuses places that an axis has not, where they are known: XLA takes the nearest ones."""
    for axis, (entry, size) in enumerate(zip(entries, shape, strict=False)):
        is_mask = getattr(entry, "dtype", None) == _np.dtype("bool")
        if entry is None or entry is Ellipsis or is_mask:  # what follows is of other axes
            return
        is_known = isinstance(entry, int) or hasattr(entry, "dtype")
        if not is_known or isinstance(entry, _jax.core.Tracer):
            continue
        places = _np.asarray(entry)
        if not places.size:
            continue
        for place in (places.min(), places.max()):
            if not -size <= place < size:
                raise IndexError(f"index {place} is out of bounds for axis {axis} with size {size}")


def gather(input, indices):
    _check_places((indices,), input.shape)
    if _repeats(input, indices):
        return _as_compute(input)[indices].astype(input.dtype)
    return input[indices]


def embedding(input, weight, num_embeddings=None, dim=None):
    return gather(weight, input)


def embedding_grad(value, indices, shape):
    """Returns zeros with the values added to their rows, in the order of the indices."""
    wide = _as_compute(value)
    return _jnp.zeros(shape, wide.dtype).at[indices].add(wide).astype(value.dtype)


# ------------------------------------------------------------------------------ ops: creation


def full(shape, value, dtype):
    return _jnp.full(shape, value, _available(dtype))


def zeros(shape, dtype):
    return _jnp.zeros(shape, _available(dtype))


def ones(shape, dtype):
    return _jnp.ones(shape, _available(dtype))


def zeros_like(input):
    return _jnp.zeros_like(input)


def ones_like(input):
    return _jnp.ones_like(input)


def arange(start=0, stop=None, step=1, dtype=None):
    if dtype == bool_:  # JAX counts in numbers only
        return _jnp.arange(start, stop, step) != 0
    if type(stop) is int and stop >= 0 and start == 0 and step == 1 and dtype is not None:
        return _lax.iota(_available(dtype), stop)
    return _jnp.arange(start, stop, step, _available(dtype))


def eye(N, M=None, dtype=None):
    return _jnp.eye(N, M, dtype=_available(dtype))
