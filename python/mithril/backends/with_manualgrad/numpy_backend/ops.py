"""The functions that emitted text calls on NumPy arrays.

Three kinds: instructions of tile programs (`add` … `reduce_all`), ops that have a function here of
their own name, and what the text itself needs (`scalar`, `drop_axes`, dtypes). Operands of
pointwise functions may be Python numbers where another operand is an array; results are arrays or
NumPy scalars of exactly the dtype of the operands. The semantics are those of `docs/numerics.md`;
floating-point warnings are the caller's to silence.
"""

from __future__ import annotations

import functools as _functools
import math as _math

import ml_dtypes as _ml_dtypes
import numpy as _np

from mithril.execution.random import threefry_block as _threefry_block

from ...indexing import counted_axes as _counted_axes
from ...indexing import reduced_axes as _reduced
from ...indexing import whole_shape as _whole_shape
from . import fourier as _fourier
from . import linalg as _linalg
from . import scans as _scans
from . import windows as _windows
from .utils import as_compute as _as_compute
from .utils import checked as _checked
from .utils import erf as _erf
from .utils import erfc as _erfc

bool_ = _np.dtype(bool)
uint8, int8, int16, int32, int64 = (_np.dtype(t) for t in ("u1", "i1", "i2", "i4", "i8"))
float16, float32, float64 = (_np.dtype(t) for t in ("f2", "f4", "f8"))
bfloat16 = _np.dtype(_ml_dtypes.bfloat16)


# ---------------------------------------------------------------------------- what text needs


def scalar(value, dtype):
    return _np.array(value, dtype)


def drop_axes(x, axis):
    return _np.squeeze(x, _reduced(x, axis))


def position(shape):
    """Row-major index of each element."""
    return _np.arange(_math.prod(shape), dtype=_np.int64).reshape(shape)


# ------------------------------------------------------------------------ tile instructions

add, subtract, multiply, divide = _np.add, _np.subtract, _np.multiply, _np.true_divide
floor_divide, remainder = _np.floor_divide, _np.remainder
negate, abs, sqrt = _np.negative, _np.absolute, _np.sqrt
floor, ceil, round, trunc, isnan = _np.floor, _np.ceil, _np.rint, _np.trunc, _np.isnan
equal, not_equal, less, less_equal = _np.equal, _np.not_equal, _np.less, _np.less_equal
greater, greater_equal = _np.greater, _np.greater_equal
bitwise_and, bitwise_or, bitwise_xor = _np.bitwise_and, _np.bitwise_or, _np.bitwise_xor
bitwise_not, shift_left, shift_right = _np.invert, _np.left_shift, _np.right_shift
where = _np.where
exp, expm1, exp2, log, log1p, log2 = _np.exp, _np.expm1, _np.exp2, _np.log, _np.log1p, _np.log2
sin, cos, tanh, power = _np.sin, _np.cos, _np.tanh, _np.power


def integer_power(x, y):
    dtype = _np.result_type(x, y)
    x, y = _np.asarray(x, dtype), _np.asarray(y, dtype)
    out = _np.power(x, _np.where(y < 0, 0, y))
    turned = _np.where(y % 2 == 0, 1, x)
    return _np.where(y < 0, _np.where(_np.abs(x) == 1, turned, 0), out).astype(dtype)


def sign(x):
    out = _np.sign(x)
    return out if out.dtype.kind in "iub" else _np.where(out == 0, x, out)


def minimum(x, y):
    out = _np.minimum(x, y)
    return _with_signed_zeros(out, x, y, lambda: -(_np.negative(x) + _np.negative(y)))


def maximum(x, y):
    return _with_signed_zeros(_np.maximum(x, y), x, y, lambda: _np.add(x, y))


def _with_signed_zeros(out, x, y, sum_of_zeros):
    """Orders -0 below +0, where NumPy keeps either."""
    if out.dtype.kind in "iub":
        return out
    zeros = (out == 0) & _np.equal(x, y)
    return _np.where(zeros, sum_of_zeros(), out).astype(out.dtype) if zeros.any() else out


def at_least(x, bound):
    return _np.where(bound > x, bound, x)


def at_most(x, bound):
    return _np.where(bound < x, bound, x)


def fma(x, y, z):
    wide = _np.float64
    exact = _np.multiply(x, y, dtype=wide) + z  # products of float32 are exact in float64
    return exact.astype(_np.result_type(x, y, z))


def fms(x, y, z):
    return fma(x, y, _np.negative(z))


def fnma(x, y, z):
    return fma(_np.negative(x), y, z)


def scale(x, exponent):
    return _np.ldexp(x, _np.asarray(exponent).astype(_np.int32))


def shift_right_logical(x, count):
    unsigned = _np.dtype(f"u{x.dtype.itemsize}")
    return _np.right_shift(x.view(unsigned), _np.asarray(count).astype(unsigned)).view(x.dtype)


def astype(x, dtype):
    x = _np.asarray(x)
    if x.dtype == dtype:
        return x
    if dtype == bool_:
        return x != 0
    if dtype.kind in "iu" and x.dtype.kind not in "iub":
        return _saturate(_as_compute(x), dtype)
    return x.astype(dtype)


def _saturate(x, dtype):
    info = _np.iinfo(dtype)
    # Both bounds are powers of two (or 0), so the comparisons are exact.
    out = _np.where(x >= float(info.max) + (info.bits < 53), info.max, x.astype(dtype))
    out = _np.where(x <= float(info.min), info.min, out)
    return _np.where(x != x, 0, out).astype(dtype)


def bitcast(x, dtype):
    return x.view(dtype)


def threefry(key0, key1, counter, word):
    counter = _np.asarray(counter)
    high = (counter >> 32).astype(_np.int32) if counter.dtype == int64 else _np.zeros_like(counter)
    return _threefry_block(key0, key1, counter.astype(_np.int32), high)[word]


def _in_float32(function):
    """Computes 16-bit floats in float32, and rounds once."""

    @_functools.wraps(function)
    def wrapper(x):
        return function(_as_compute(x)).astype(x.dtype, copy=False)

    return wrapper


@_in_float32
def sigmoid(x):
    small = _np.exp(-_np.abs(x))
    return _np.where(x >= 0, x.dtype.type(1), small) / (1 + small)


def erf(x):
    return _erf(x)


def erfc(x):
    return _erfc(x)


@_in_float32
def gelu(x):
    return 0.5 * _finite_below(x) * _erfc(x * -_math.sqrt(0.5))


@_in_float32
def gelu_tanh(x):
    return _finite_below(x) * sigmoid(2 * _math.sqrt(2 / _math.pi) * (x + 0.044715 * (x * x * x)))


@_in_float32
def silu(x):
    return _finite_below(x) * sigmoid(x)


def _finite_below(x):
    """Keeps -inf from the factor 0."""
    return _np.maximum(x, _np.finfo(x.dtype).min)


@_in_float32
def softplus(x):
    return _np.logaddexp(x, 0)


@_in_float32
def rsqrt(x):
    return 1 / _np.sqrt(x)


def reduce_sum(x, axis, keepdim):
    return _np.sum(_as_compute(x), _reduced(x, axis), keepdims=keepdim, dtype=_sum_dtype(x)).astype(
        x.dtype, copy=False
    )


def _sum_dtype(x):
    return _as_compute(x[..., :0] if x.ndim else x).dtype


def reduce_prod(x, axis, keepdim):
    out = _np.prod(_as_compute(x), _reduced(x, axis), keepdims=keepdim, dtype=_sum_dtype(x))
    return out.astype(x.dtype, copy=False)


def _lowest(dtype):
    return _np.iinfo(dtype).min if dtype.kind in "iu" else -_math.inf


def _highest(dtype):
    return _np.iinfo(dtype).max if dtype.kind in "iu" else _math.inf


def reduce_max(x, axis, keepdim):
    axis = _reduced(x, axis)
    if x.dtype == bool_:
        return _np.any(x, axis, keepdims=keepdim)
    return _np.max(x, axis, keepdims=keepdim, initial=_lowest(x.dtype))


def reduce_min(x, axis, keepdim):
    axis = _reduced(x, axis)
    if x.dtype == bool_:
        return _np.all(x, axis, keepdims=keepdim)
    return _np.min(x, axis, keepdims=keepdim, initial=_highest(x.dtype))


def _arg_reduce(function, x, axis, keepdim):
    axes = _reduced(x, axis)
    kept = [a for a in range(x.ndim) if a not in axes]
    shape = tuple(x.shape[a] for a in kept)
    count = _math.prod(x.shape[a] for a in axes)  # -1 tells nothing beside a size of 0
    out = function(_np.transpose(x, (*kept, *sorted(axes))).reshape(*shape, count), -1)
    return _np.expand_dims(out, axes) if keepdim else out


def reduce_argmax(x, axis, keepdim):
    return _arg_reduce(_np.argmax, x, axis, keepdim)


def reduce_argmin(x, axis, keepdim):
    return _arg_reduce(_np.argmin, x, axis, keepdim)


def reduce_any(x, axis, keepdim):
    return _np.any(x, _reduced(x, axis), keepdims=keepdim)


def reduce_all(x, axis, keepdim):
    return _np.all(x, _reduced(x, axis), keepdims=keepdim)


linear_scan, cumsum, cumprod = _scans.linear_scan, _scans.cumsum, _scans.cumprod
scan, cond, while_loop = _scans.scan, _scans.cond, _scans.while_loop
argsort, last_writers = _scans.argsort, _scans.last_writers
true_places, nonzero = _scans.true_places, _scans.nonzero


# ------------------------------------------------------------------- ops: activations, softmax

asin, acos, atan, atan2 = _np.arcsin, _np.arccos, _np.arctan, _np.arctan2


def relu(input):
    return _np.maximum(input, input.dtype.type(0))


def stop_gradient(input):
    return input


def after(input, token):
    return input


def softmax(input, axis=-1):
    x = _as_compute(input)
    weights = _np.exp(x - _np.max(x, axis, keepdims=True, initial=-_math.inf))
    return (weights / _np.sum(weights, axis, keepdims=True)).astype(input.dtype, copy=False)


def log_softmax(input, axis=-1):
    x = _as_compute(input)
    x = x - _np.max(x, axis, keepdims=True, initial=-_math.inf)
    return (x - _np.log(_np.sum(_np.exp(x), axis, keepdims=True))).astype(input.dtype, copy=False)


# ----------------------------------------------------------------------------- ops: reductions


def sum(input, axis=None, keepdim=False):
    return reduce_sum(input, axis, keepdim)


def prod(input, axis=None, keepdim=False):
    return reduce_prod(input, axis, keepdim)


def max(input, axis=None, keepdim=False):
    return reduce_max(input, axis, keepdim)


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
    x = _as_compute(input)
    return _np.mean(x, _reduced(x, axis), keepdims=keepdim).astype(input.dtype, copy=False)


def sum_to(input, like):
    """Sums what broadcasting has repeated, so that the result has the shape of `like`."""
    return _sum_to_shape(input, like.shape)


def _sum_to_shape(x, shape):
    if x.shape == shape:
        return x
    extra = x.ndim - len(shape)
    ones = tuple(i + extra for i, n in enumerate(shape) if n == 1 and x.shape[i + extra] != 1)
    return reduce_sum(x, tuple(range(extra)) + ones, True).reshape(shape)


# ------------------------------------------------------------------------------ ops: products


def matmul(left, right):
    out = _np.matmul(_as_compute(left), _as_compute(right))
    return out.astype(left.dtype, copy=False)


cholesky = _linalg.cholesky
solve_triangular = _linalg.solve_triangular
solve = _linalg.solve
det, scaled_det, cofactor = _linalg.det, _linalg.scaled_det, _linalg.cofactor
eigh = _linalg.eigh
qr, svd = _linalg.qr, _linalg.svd
dft, rdft = _fourier.dft, _fourier.rdft


def linear(weight, input, bias=None, dimension=None, use_bias=True):
    weight = _np.swapaxes(weight, -1, -2)
    if bias is None:
        return matmul(input, weight)
    out = _np.matmul(_as_compute(input), _as_compute(weight)) + _as_compute(bias)
    return out.astype(input.dtype, copy=False)


# ------------------------------------------------------------------------------- ops: windows

conv2d, conv2d_dx, conv2d_dw = _windows.conv2d, _windows.conv2d_dx, _windows.conv2d_dw
max_pool2d, max_pool2d_grad = _windows.max_pool2d, _windows.max_pool2d_grad
max_pool2d_pick = _windows.max_pool2d_pick
avg_pool2d, avg_pool2d_grad = _windows.avg_pool2d, _windows.avg_pool2d_grad


# ------------------------------------------------------------------------------ ops: movement


def transpose(input, axes=None):
    return _np.transpose(input, axes or None)


def swapaxes(input, axis1, axis2):
    return _np.swapaxes(input, axis1, axis2)


def reshape(input, shape):
    return _np.reshape(input, _whole_shape(shape, _np.shape(input)))


def flatten(input, start_dim=0, end_dim=-1):
    shape = _np.shape(input)
    if not shape:
        return _np.reshape(input, (1,))
    first, last = _counted_axes((start_dim, end_dim), len(shape))
    joined = _math.prod(shape[first : last + 1])
    return _np.reshape(input, shape[:first] + (joined,) + shape[last + 1 :])


def squeeze(input, axis=None):
    return _np.squeeze(input, axis)


def expand_dims(input, axis):
    return _np.expand_dims(input, axis)


def broadcast_to(input, shape):
    return _np.broadcast_to(input, shape)


def broadcast_like(input, like):
    return _np.broadcast_to(input, like.shape)


def concat(input, axis=0):
    return _np.concatenate(input, axis)  # None joins them flattened


def pad(input, pad_width, mode="constant", value=0.0):
    return _np.pad(input, pad_width) if _np.ndim(input) else input


# ------------------------------------------------------------------------- ops: host and index


def shape(input):
    return _np.shape(input)


def size(input, dim=None):
    sizes = _np.shape(input)
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
    return _np.array(input, dtype)


def index(input, items=(), /, *, index=None):
    return input[_index(items, index)]


def index_add(input, value, items=(), /, *, index=None):
    """A copy of `input` with `value` added where the index points; repeated places add up."""
    out = _np.array(_as_compute(input))
    _np.add.at(out, _index(items, index), _as_compute(value))
    return out.astype(input.dtype, copy=False)


def _index(items, index):
    if len(items) == 0:
        return index
    return items[0] if len(items) == 1 else tuple(items)


def gather(input, indices):
    return input[_checked(indices, input.shape[0])]


def embedding(input, weight, num_embeddings=None, dim=None):
    return gather(weight, input)


def embedding_grad(value, indices, shape):
    """Zeros to whose rows the values are added, in the order of the indices."""
    wide = _as_compute(value)
    out = _np.zeros(shape, wide.dtype)
    _np.add.at(out, _checked(indices, shape[0]), wide)
    return out.astype(value.dtype, copy=False)


# ------------------------------------------------------------------------------ ops: creation


def full(shape, value, dtype):
    return _np.full(shape, value, dtype)


def zeros(shape, dtype):
    return _np.zeros(shape, dtype)


def ones(shape, dtype):
    return _np.ones(shape, dtype)


def zeros_like(input):
    return _np.zeros(input.shape, input.dtype)


def ones_like(input):
    return _np.ones(input.shape, input.dtype)


def arange(start=0, stop=None, step=1, dtype=None):
    return _np.arange(start, stop, step).astype(dtype)


def eye(N, M=None, dtype=None):
    return _np.eye(N, M, dtype=dtype)
