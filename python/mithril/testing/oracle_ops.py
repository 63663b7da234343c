"""Reference implementations of ops in NumPy and float64, written from their definitions.

A function's parameters are the op's inputs in declared order, then its attributes; several results
come as a tuple. Floats are float64, whatever the graph's type; integers keep theirs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np

from mithril.testing import oracle_attention, oracle_windows
from mithril.testing.oracle_arrays import ARRAYS, eigvalsh
from mithril.testing.oracle_fourier import FOURIER
from mithril.testing.oracle_functions import FUNCTIONS, functions_for
from mithril.testing.oracle_losses import LOSSES, kl_divergence, reducible

DTYPES = {"int": "int64", "float": "float64"}  # names that are none of NumPy's

SMALLEST_NORMAL = {
    "float64": 2.2250738585072014e-308, "float32": 1.1754943508222875e-38, "float16": 6.104e-05,
    "bfloat16": 1.1754943508222875e-38,
}  # fmt: skip
EPSILON = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}


def tensor(value: Any, dtype: str) -> np.ndarray:
    """An array of a type as the oracle holds it: narrow floats are rounded, but kept in float64."""
    name = DTYPES.get(dtype, dtype)
    array = np.asarray(value)
    if name == "bfloat16":
        bits = array.astype(np.float32).view(np.uint32)
        rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
        wide = rounded.astype(np.uint32).view(np.float32).astype(np.float64)
        return np.where(np.isfinite(array), wide, array.astype(np.float64))
    with np.errstate(all="ignore"):
        out = array.astype(name)
    return out.astype(np.float64) if name.startswith("float") else out


def dtype_of(input, float_dtype: str) -> str:
    """Floats are held in float64, whatever the graph's type."""
    return float_dtype if input.dtype.kind == "f" else input.dtype.name


def real(x: Any) -> np.ndarray:
    return np.asarray(x, np.float64)


def is_bool(*operands: Any) -> bool:
    return all(np.asarray(x).dtype == np.bool_ for x in operands)


def number(x: Any) -> Any:
    """Converts bools to integers, because NumPy has no such arithmetic of bools."""
    return np.asarray(x).astype(np.int64) if is_bool(x) else x


def integral(*operands: Any) -> bool:
    return all(np.asarray(x).dtype.kind in "iu" for x in operands)


def summable(x: Any) -> np.ndarray:
    """Sums and products of bools and integers are taken in the default integer."""
    return np.asarray(x, np.float64 if np.asarray(x).dtype.kind == "f" else np.int64)


def axes_tuple(axis: Any, rank: int) -> tuple[int, ...]:
    if axis is None:
        return tuple(range(rank))
    axes = (axis,) if isinstance(axis, int | np.integer) else tuple(axis)
    return tuple(a % rank for a in axes) if rank else ()


# --- arithmetic ----------------------------------------------------------------------------------


def add(left, right):
    return np.logical_or(left, right) if is_bool(left, right) else np.add(left, right)


def subtract(left, right):
    return np.logical_xor(left, right) if is_bool(left, right) else np.subtract(left, right)


def floor_divide(numerator, denominator):
    n, d = number(numerator), number(denominator)
    quotient = np.floor_divide(n, d)
    return np.where(np.equal(d, 0), 0, quotient) if integral(n, d) else quotient


def mod(numerator, denominator):
    n, d = number(numerator), number(denominator)
    rest = np.mod(n, d)
    return np.where(np.equal(d, 0), 0, rest) if integral(n, d) else rest


def power(base, exponent):
    b, e = number(base), number(exponent)
    if not integral(b, e):
        return np.power(real(b), real(e))
    dtype = np.result_type(b, e)
    whole = [int(x) ** max(int(y), 0) if y >= 0 else {1: 1, -1: 1 - 2 * (int(y) % 2)}.get(int(x), 0)
             for x, y in np.broadcast(b, e)]  # fmt: skip
    bits = 8 * dtype.itemsize
    wrapped = np.array([x % 2**bits for x in whole], np.uint64).astype(f"u{dtype.itemsize}")
    return wrapped.view(dtype).reshape(np.broadcast_shapes(np.shape(b), np.shape(e)))


def cholesky(input, upper=False):
    lower = np.linalg.cholesky(symmetric(input))
    return np.swapaxes(lower, -1, -2) if upper else lower


def cofactor(input):
    """Computes the cofactor matrix by minors."""
    x = real(input)
    out, rows = np.empty_like(x), range(x.shape[-1])
    for i, j in np.ndindex(x.shape[-2:]):
        minor = x[..., [r for r in rows if r != i], :][..., [c for c in rows if c != j]]
        out[..., i, j] = (-1) ** (i + j) * np.linalg.det(minor)
    return out


def scaled_det(input):
    fraction, exponent = np.frexp(np.linalg.det(real(input)))
    return fraction, exponent.astype(fraction.dtype)


def matrix_exp(input):
    """Sums the series of a scaled-down matrix, then squares the result repeatedly."""
    x = real(input)
    squarings = 8
    term = out = np.broadcast_to(np.eye(x.shape[-1]), x.shape)
    for k in range(1, 30):
        term = term @ (x / 2.0**squarings) / k
        out = out + term
    for _ in range(squarings):
        out = out @ out
    return out


def pinv(input, rtol=None):
    bound = max(input.shape[-2:]) * np.finfo(np.float64).eps if rtol is None else rtol
    x = real(input)
    return np.linalg.pinv(x, rcond=bound) if x.size else np.swapaxes(x, -1, -2)


def clamp(input, min_val=None, max_val=None):
    x = np.asarray(input)
    if min_val is not None:
        x = np.where(x < min_val, np.asarray(min_val).astype(x.dtype), x)
    if max_val is not None:
        x = np.where(x > max_val, np.asarray(max_val).astype(x.dtype), x)
    return x


def shift_left(input, shift):
    x, s = number(input), number(shift)
    width = np.asarray(x).dtype.itemsize * 8
    valid = np.logical_and(np.greater_equal(s, 0), np.less(s, width))
    return np.where(valid, np.left_shift(x, np.where(valid, s, 0)), 0)


def shift_right(input, shift):
    x, s = number(input), number(shift)
    last = np.asarray(x).dtype.itemsize * 8 - 1
    valid = np.logical_and(np.greater_equal(s, 0), np.less_equal(s, last))
    return np.right_shift(x, np.where(valid, s, last))


def cast(input, dtype):
    """Float to integer truncates and saturates; NaN gives 0."""
    x = np.asarray(input)
    if dtype.startswith(("float", "bfloat", "bool")) or x.dtype.kind != "f":
        return tensor(x, dtype)
    limits = np.iinfo(dtype)
    whole = np.trunc(np.nan_to_num(x, nan=0.0, posinf=np.inf, neginf=-np.inf))
    inside = np.clip(whole, float(limits.min), float(limits.max))
    out = np.where(inside >= float(limits.max), limits.max, 0).astype(dtype)
    return np.where(inside < float(limits.max), inside, 0).astype(dtype) + out


# --- functions of one operand --------------------------------------------------------------------

erf = np.vectorize(math.erf, otypes=[np.float64])


def sigmoid(input):
    x = real(input)
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0, e) / (1.0 + e)


def softplus(input, beta=1.0):
    z = real(input) * beta
    return (np.maximum(z, 0.0) + np.log1p(np.exp(-np.abs(z)))) / beta


def leaky_relu(input, slope=0.01):
    x = real(input)
    return np.where(x > 0, x, x * slope)


def gelu(input, approximate=False):
    x = real(input)
    if approximate:
        return 0.5 * x * (1.0 + np.tanh(np.sqrt(2.0 / np.pi) * (x + 0.044715 * x**3)))
    return x * 0.5 * (1.0 + erf(x / np.sqrt(2.0)))


def log_softmax(input, axis=-1):
    x = real(input)
    axes = axes_tuple(axis, x.ndim)
    if x.size == 0:
        return x
    z = x - x.max(axes, keepdims=True)
    return z - np.log(np.exp(z).sum(axes, keepdims=True))


def softmax(input, axis=-1):
    return np.exp(log_softmax(input, axis))


# --- reductions ----------------------------------------------------------------------------------


def reduction(function: Callable[..., Any], prepare: Callable[[Any], Any]) -> Callable[..., Any]:
    def reduce(input, axis=None, keepdim=False):
        x = prepare(input)
        return np.asarray(function(x, axis=axes_tuple(axis, x.ndim), keepdims=bool(keepdim)))

    return reduce


def variance(input, axis=None, keepdim=False, correction=0.0):
    x = real(input)
    axes = axes_tuple(axis, x.ndim)
    count = math.prod(x.shape[a] for a in axes)
    centred = x - x.mean(axes, keepdims=True)
    return np.asarray((centred**2).sum(axes, keepdims=bool(keepdim)) / (count - correction))


def position(function: Callable[..., Any]) -> Callable[..., Any]:
    """Row-major position among the axes reduced; the first one, NaN first of all."""

    def find(input, axis=None, keepdim=False):
        x = np.asarray(input)
        axes = sorted(axes_tuple(axis, x.ndim))
        kept = [a for a in range(x.ndim) if a not in axes]
        count = math.prod(x.shape[a] for a in axes)
        flat = x.transpose(kept + axes).reshape([x.shape[a] for a in kept] + [count])
        found = np.asarray(function(flat, axis=-1)).astype(np.int64)
        return np.expand_dims(found, tuple(axes)) if keepdim else found

    return find


# --- matrix products, convolution, pooling -------------------------------------------------------


def linear(weight, input, bias=None, dimension=None, use_bias=True):
    y = real(input) @ real(weight).T
    return y if bias is None else y + bias


def zero_pad(x: np.ndarray, padding: Any, value: float = 0.0) -> np.ndarray:
    return np.pad(x, [(0, 0)] * (x.ndim - 2) + [tuple(p) for p in padding], constant_values=value)


def taps(size, stride, dilation, shape):
    """(place in the window, where it falls on the padded operand), for windows shaped so."""
    for r in range(size[0]):
        for c in range(size[1]):
            at = (r * dilation[0], c * dilation[1])
            spans = tuple(
                slice(at[i], at[i] + (shape[i] - 1) * stride[i] + 1, stride[i]) for i in (0, 1)
            )
            yield (
                (r, c),
                (..., *(s if n else slice(0, 0) for s, n in zip(spans, shape, strict=True))),
            )


def window_count(x: np.ndarray, size, stride, dilation) -> tuple[int, int]:
    rows, columns = (
        (x.shape[i - 2] - dilation[i] * (size[i] - 1) - 1) // stride[i] + 1 for i in (0, 1)
    )
    return rows, columns


NO_PADDING = ((0, 0), (0, 0))


def conv2d(input, weight, stride=(1, 1), padding=NO_PADDING, dilation=(1, 1), groups=1):
    x, w = zero_pad(real(input), padding), real(weight)
    outputs, per_group, *size = w.shape
    n = x.shape[0]
    rows, columns = window_count(x, size, stride, dilation)
    x = x.reshape(n, groups, per_group, *x.shape[2:])
    w = w.reshape(groups, outputs // groups, per_group, *size)
    out = np.zeros((n, groups, outputs // groups, rows, columns))
    for (r, c), where in taps(size, stride, dilation, (rows, columns)):
        out += np.einsum("ngcij,goc->ngoij", x[where], w[..., r, c])
    return out.reshape(n, outputs, rows, columns)


def conv2d_dx(cotangent, weight, shape, stride=(1, 1), padding=NO_PADDING, dilation=(1, 1),
              groups=1):  # fmt: skip
    """The adjoint of conv2d in its input: every product goes back to where it came from."""
    dy, w = real(cotangent), real(weight)
    outputs, per_group, *size = w.shape
    dx = zero_pad(np.zeros(shape), padding)
    full = dx.reshape(shape[0], groups, per_group, *dx.shape[2:])
    dy = dy.reshape(shape[0], groups, outputs // groups, *dy.shape[2:])
    w = w.reshape(groups, outputs // groups, per_group, *size)
    for (r, c), where in taps(size, stride, dilation, dy.shape[-2:]):
        full[where] += np.einsum("ngoij,goc->ngcij", dy, w[..., r, c])
    return unpadded(full.reshape(dx.shape), padding)


def unpadded(x: np.ndarray, padding: Any) -> np.ndarray:
    (top, bottom), (left, right) = padding
    return x[..., top : x.shape[-2] - bottom, left : x.shape[-1] - right]


def conv2d_dw(input, cotangent, shape, stride=(1, 1), padding=NO_PADDING, dilation=(1, 1),
              groups=1):  # fmt: skip
    x, dy = zero_pad(real(input), padding), real(cotangent)
    outputs, per_group, *size = shape
    x = x.reshape(x.shape[0], groups, per_group, *x.shape[2:])
    dy = dy.reshape(dy.shape[0], groups, outputs // groups, *dy.shape[2:])
    dw = np.zeros((groups, outputs // groups, per_group, *size))
    for (r, c), where in taps(size, stride, dilation, dy.shape[-2:]):
        dw[..., r, c] = np.einsum("ngcij,ngoij->goc", x[where], dy)
    return dw.reshape(shape)


def symmetric(x):
    return (x + np.swapaxes(x, -1, -2)) / 2


def solve_triangular(matrix, right, lower=True, transposed=False):
    half = np.tril(matrix) if lower else np.triu(matrix)
    return np.linalg.solve(np.swapaxes(half, -1, -2) if transposed else half, right)


def eigh(input):
    """The largest component of each vector is positive."""
    values, vectors = np.linalg.eigh(symmetric(input))
    highest, lowest = (f(vectors, axis=-2, keepdims=True, initial=0) for f in (np.max, np.min))
    return values, np.where(-lowest > highest, -vectors, vectors)


def windows(x, kernel_size, stride, padding, dilation, fill):
    """[taps, ..., rows, columns], in row-major order of the window."""
    padded = zero_pad(real(x), padding, fill)
    shape = window_count(padded, kernel_size, stride, dilation)
    return np.stack([padded[where] for _, where in taps(kernel_size, stride, dilation, shape)])


def max_pool2d(input, kernel_size, stride, padding=NO_PADDING, dilation=(1, 1)):
    return windows(input, kernel_size, stride, padding, dilation, -np.inf).max(0)


def first_maxima(x, kernel_size, stride, padding, dilation):
    return windows(x, kernel_size, stride, padding, dilation, -np.inf).argmax(0)


def max_pool2d_grad(input, cotangent, kernel_size, stride, padding=NO_PADDING, dilation=(1, 1)):
    chosen = first_maxima(input, kernel_size, stride, padding, dilation)
    dx = zero_pad(np.zeros(input.shape), padding)
    places = taps(kernel_size, stride, dilation, cotangent.shape[-2:])
    for tap, (_, where) in enumerate(places):
        dx[where] += np.where(chosen == tap, cotangent, 0.0)
    return unpadded(dx, padding)


def max_pool2d_pick(input, value, like, kernel_size, stride, padding=NO_PADDING, dilation=(1, 1)):
    chosen = first_maxima(input, kernel_size, stride, padding, dilation)
    values = windows(value, kernel_size, stride, padding, dilation, 0.0)
    return np.take_along_axis(values, chosen[None], 0)[0]


def avg_pool2d(input, kernel_size, stride, padding=NO_PADDING, dilation=(1, 1)):
    return windows(input, kernel_size, stride, padding, dilation, 0.0).mean(0)


def avg_pool2d_grad(cotangent, shape, kernel_size, stride, padding=NO_PADDING, dilation=(1, 1)):
    dx = zero_pad(np.zeros(shape), padding)
    for _, where in taps(kernel_size, stride, dilation, cotangent.shape[-2:]):
        dx[where] += cotangent / (kernel_size[0] * kernel_size[1])
    return unpadded(dx, padding)


def channels_last(function):
    """Converts a function on images [n, c, h, w] to one on images [n, h, w, c]."""

    def call(input, **attributes):
        result = function(np.moveaxis(input, -1, 1), **attributes)
        return np.moveaxis(result, 1, -1)

    return call


# --- norms, attention ----------------------------------------------------------------------------


def layer_norm(input, eps=1e-5, weight=None, bias=None, use_scale=True, use_bias=True):
    x = real(input)
    centred = x - x.mean(-1, keepdims=True)
    y = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + eps)
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def scaled_dot_product_attention(query, key, value, dropout_p=0.0, attn_mask=None, is_causal=True,
                                 scale=None, use_attn_mask=False, enable_gqa=False,
                                 broadcast=False):  # fmt: skip
    q, k, v = real(query), real(key), real(value)
    if enable_gqa:
        k, v = (np.repeat(x, q.shape[-3] // x.shape[-3], -3) for x in (k, v))
    scores = q @ k.swapaxes(-1, -2) * (1.0 / np.sqrt(q.shape[-1]) if scale is None else scale)
    if is_causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf)
    if attn_mask is not None:
        allowed = np.where(attn_mask, scores, -np.inf) if is_bool(attn_mask) else scores + attn_mask
        scores = allowed
    return softmax(scores, -1) @ v


# --- losses --------------------------------------------------------------------------------------


@reducible
def squared_error(input, target, safe_shapes=True):
    if is_bool(input, target):
        return np.logical_xor(input, target)
    difference = np.subtract(input, target)
    return difference * difference


@reducible
def absolute_error(input, target, safe_shapes=True):
    if is_bool(input, target):
        return np.logical_xor(input, target)
    return np.abs(np.subtract(input, target))


def thresholded_log(x, robust, threshold, smallest):
    """Returns ln x; if robust, ln |x|, continued below the threshold by its tangent there."""
    if not robust:
        return np.log(x)
    limit = smallest if isinstance(threshold, str) else threshold
    size = np.abs(x)
    tangent = np.log(limit) + size / limit - 1.0
    return np.where(size < limit, tangent, np.log(np.maximum(size, limit)))


def class_weights(weights, shares: np.ndarray) -> Any:
    if weights is True or (isinstance(weights, str) and weights == "auto"):
        others = tuple(i for i in range(shares.ndim) if i != 1)
        count = shares.sum(others, keepdims=True)
        samples = shares.size // shares.shape[1]
        return samples / (shares.shape[1] * np.where(count == 0, 1.0, count))
    if weights is None or isinstance(weights, bool | str):
        return 1.0
    return np.reshape(weights, (-1,) + (1,) * (shares.ndim - 2))


def cross_entropy(input, target, weights=False, categorical=True, threshold="MIN_POSITIVE_NORMAL",
                  robust=False, input_type="logits", safe_shapes=True, label_smoothing=0.0,
                  ignore_index=None, reduction="none", *, smallest):  # fmt: skip
    x = real(input)
    if input_type == "logits":
        logarithm = log_softmax(x, 1)
    elif input_type == "probs":
        logarithm = thresholded_log(x, robust, threshold, smallest)
    else:
        logarithm = x
    shares, kept = real(target), np.True_
    if categorical:
        number = np.expand_dims(target, 1)
        kept = np.True_ if ignore_index is None else number != ignore_index
        classes = np.arange(x.shape[1]).reshape((-1,) + (1,) * (x.ndim - 2))
        shares = np.where(kept, number == classes, False).astype(np.float64)
    weight = class_weights(weights, shares)
    counts = (shares * weight).sum(1) if categorical else np.ones(shares.sum(1).shape)
    shares = np.where(kept, shares * (1.0 - label_smoothing) + label_smoothing / x.shape[1], 0.0)
    if categorical:
        logarithm = np.where(shares == 0, 0.0, logarithm)
    each = -(shares * weight * logarithm).sum(1)
    if reduction == "none":
        return each
    return np.asarray(each.sum() / (counts.sum() if reduction == "mean" else 1.0))


def nll_loss(input, target, weights=False, ignore_index=None, reduction="none", *, smallest):
    """Like `cross_entropy` of log-probabilities, computed by picking each sample's class."""
    x, count = real(input), np.shape(input)[1]
    if isinstance(weights, bool | str):
        each = {"weights": weights, "ignore_index": ignore_index, "reduction": reduction}
        return cross_entropy(x, target, input_type="log_probs", smallest=smallest, **each)
    places = np.expand_dims(np.asarray(target) % count, 1)
    weight = np.asarray(weights)[places[:, 0]] * (np.asarray(target) != ignore_index)
    each = -weight * np.take_along_axis(x, places, 1)[:, 0]
    if reduction == "none":
        return each
    return np.asarray(each.sum() / (weight.sum() if reduction == "mean" else 1.0))


@reducible
def binary_cross_entropy(input, target, pos_weight=1.0, threshold="MIN_POSITIVE_NORMAL",
                         robust=False, input_type="logits", safe_shapes=True, *,
                         smallest):  # fmt: skip
    x, t = real(input), real(target)
    p = (1.0 - t.mean()) / t.mean() if isinstance(pos_weight, str) else pos_weight
    if input_type == "logits":
        return p * t * softplus(-x) + (1.0 - t) * softplus(x)
    log = partial(thresholded_log, robust=robust, threshold=threshold, smallest=smallest)
    return -p * t * log(x) - (1.0 - t) * log(1.0 - x)


# --- movement, indexing, creation ----------------------------------------------------------------


def flatten(input, start_dim=1, end_dim=-1):
    shape = input.shape
    start, end = start_dim % len(shape), end_dim % len(shape)
    return input.reshape(*shape[:start], math.prod(shape[start : end + 1]), *shape[end + 1 :])


def sum_to(input, like):
    extra = input.ndim - like.ndim
    repeated = [
        i + extra for i, n in enumerate(like.shape) if n == 1 and input.shape[i + extra] != 1
    ]
    total = input.sum((*range(extra), *repeated), keepdims=True)
    return total.reshape(like.shape).astype(input.dtype)


def concat(axis=0, *input):
    operands = [np.reshape(x, -1) for x in input] if axis is None else input
    return np.concatenate(operands, 0 if axis is None else axis)


def selection(index: Any) -> Any:
    return np.asarray(index, np.int64) if isinstance(index, list) else index


def index(input, index):
    """Indexes a tensor, tuple or list."""
    if isinstance(input, tuple | list):
        return input[index]
    return np.asarray(input[selection(index)])


def index_add(input, value, index):
    out = np.array(np.broadcast_arrays(input)[0], np.result_type(input, value))
    np.add.at(out, selection(index), value)
    return out


def embedding_grad(value, indices, shape):
    out = np.zeros(shape, value.dtype)
    np.add.at(out, indices, value)
    return out


def typed(value: Any, dtype: str | None, otherwise: str | None = "float64") -> np.ndarray:
    """A tensor of a type; none: the default one, or that of the value."""
    if dtype is not None:
        return cast(np.asarray(value), dtype)
    return np.asarray(value) if otherwise is None else tensor(value, otherwise)


def eye(N, M=None, dtype=None):  # noqa: N803
    return typed(np.eye(N, M), dtype)


def size(input, dim=None):
    if dim is None:
        return int(input.size)
    return input.shape[dim] if isinstance(dim, int) else tuple(input.shape[d] for d in dim)


# --- random numbers ------------------------------------------------------------------------------


def threefry(key0: Any, key1: Any, counter: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Threefry-2x32 of 20 rounds (Salmon et al., 2011): both words of the block of each counter."""
    with np.errstate(over="ignore"):
        words = [np.asarray(k).astype(np.int64).astype(np.uint32) for k in (key0, key1)]
        keys = (*words, words[0] ^ words[1] ^ np.uint32(0x1BD11BDA))
        unsigned = np.asarray(counter, np.int64).astype(np.uint64)
        x = (unsigned & np.uint64(0xFFFFFFFF)).astype(np.uint32) + keys[0]
        y = (unsigned >> np.uint64(32)).astype(np.uint32) + keys[1]
        for step in range(5):
            for left in ((13, 15, 26, 6), (17, 29, 16, 24))[step % 2]:
                x = x + y
                y = (y << np.uint32(left) | y >> np.uint32(32 - left)) ^ x
            x = x + keys[(step + 1) % 3]
            y = y + keys[(step + 2) % 3] + np.uint32(step + 1)
    return x, y


def uniform_at(key0, key1, counter, dtype: str) -> np.ndarray:
    first, second = threefry(key0, key1, counter)
    if dtype == "float64":
        return ((first >> 5).astype(np.float64) * 2.0**26 + (second >> 6)) * 2.0**-53
    bits = {"float32": 24, "float16": 11, "bfloat16": 8}[dtype]
    return (first >> np.uint32(32 - bits)).astype(np.float64) * 2.0**-bits


def uniform(key0, key1, shape, dtype):
    return uniform_at(key0, key1, np.arange(math.prod(shape)), dtype).reshape(shape)


def normal(key0, key1, shape, dtype):
    """Box and Muller's transformation of two uniform numbers."""
    wide = "float64" if dtype == "float64" else "float32"
    first = 2 * np.arange(math.prod(shape))
    u, v = uniform_at(key0, key1, first, wide), uniform_at(key0, key1, first + 1, wide)
    return (np.sqrt(-2.0 * np.log(1.0 - u)) * np.cos(2.0 * np.pi * v)).reshape(shape)


def bernoulli(key0, key1, shape, p=0.5):
    return uniform(key0, key1, shape, "float32") < np.float32(p)


def integers(key0, key1, shape, low, high, dtype=None):
    """The upper half of 64 random bits times the count of integers, by Python's long integers."""
    first, second = threefry(key0, key1, np.arange(math.prod(shape)))
    words = zip(first.tolist(), second.tolist(), strict=True)
    drawn = [low + ((((u << 32) | v) * (high - low)) >> 64) for u, v in words]
    return np.array(drawn, dtype or "int64").reshape(shape)


def next_key(key0, key1):
    return np.array(threefry(key0, key1, np.int64(-1))).astype(np.int64)


def words_of(key: Any) -> tuple[Any, Any]:
    key = np.asarray(key, np.int64)
    return (key[0], key[1]) if key.ndim else (key & 0xFFFFFFFF, key >> 32)


def drawn(draw: Callable[..., Any], float_dtype: str) -> dict[str, Callable[..., Any]]:
    """The three forms of a draw: from two words, from a key, and from a key that moves on."""

    def from_words(key0, key1, shape, dtype=None):
        return draw(key0, key1, shape, dtype or float_dtype)

    def from_key(shape, key, dtype=None):
        return draw(*words_of(key), shape, dtype or float_dtype)

    def stateful(shape, dtype=None, rng_key=None):
        return from_key(shape, rng_key, dtype), next_key(*words_of(rng_key))

    return {"words": from_words, "key": from_key, "state": stateful}


def randint(shape, key, low, high, dtype=None):
    return integers(*words_of(key), shape, low, high, dtype)


def draw_randint(shape, low, high, dtype=None, rng_key=None):
    words = words_of(rng_key)
    return integers(*words, shape, low, high, dtype), next_key(*words)


def dropout(input, rng_key=None, p=0.5, mode=None):
    if mode != "train" or rng_key is None:
        return real(input), np.zeros(2, np.int64)
    kept = bernoulli(*words_of(rng_key), np.shape(input), 1.0 - p)
    scale = 1.0 / (1.0 - p) if p < 1.0 else 0.0
    return real(input) * kept * scale, next_key(*words_of(rng_key))


def dropout_attention(query, key, value, attn_mask=None, bias=None, offset=0, rng_key=None, p=0.5,
                      mode=None, **how):  # fmt: skip
    def thinned(weights):
        return dropout(weights, rng_key, p, mode)[0]

    found = oracle_attention.attention(
        query, key, value, attn_mask, bias, offset, **how, thinned=thinned
    )
    return found, dropout(np.zeros(0), rng_key, p, mode)[1]


# --- optimizers ----------------------------------------------------------------------------------


def sgd(param, grad, lr=0.01, weight_decay=0.0):
    return param - lr * (grad + weight_decay * param)


def momentum(param, grad, v, lr=0.01, momentum=0.9, weight_decay=0.0, nesterov=False):
    g = grad + weight_decay * param
    new_v = momentum * v + g
    return param - lr * (g + momentum * new_v if nesterov else new_v), new_v


def adam(param, grad, m, v, t, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.0):
    g = grad + weight_decay * param
    m = beta1 * m + (1.0 - beta1) * g
    v = beta2 * v + (1.0 - beta2) * g * g
    direction = (m / (1.0 - beta1**t)) / (np.sqrt(v / (1.0 - beta2**t)) + eps)
    return param - lr * direction, m, v


def adamw(param, grad, m, v, t, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.01):
    return adam(param * (1.0 - lr * weight_decay), grad, m, v, t, lr, beta1, beta2, eps)


# --- the table -----------------------------------------------------------------------------------


SIMPLE: dict[str, Callable[..., Any]] = (
    {
        "add": add,
        "subtract": subtract,
        "multiply": lambda left, right: np.multiply(left, right),
        "divide": lambda numerator, denominator: np.divide(real(numerator), real(denominator)),
        "floor_divide": floor_divide,
        "mod": mod,
        "power": power,
        "maximum": lambda left, right: np.maximum(left, right),
        "minimum": lambda left, right: np.minimum(left, right),
        "clamp": clamp,
        "equal": lambda left, right: np.equal(left, right),
        "not_equal": lambda left, right: np.not_equal(left, right),
        "less": lambda left, right: np.less(left, right),
        "less_equal": lambda left, right: np.less_equal(left, right),
        "greater": lambda left, right: np.greater(left, right),
        "greater_equal": lambda left, right: np.greater_equal(left, right),
        "logical_and": lambda left, right: np.bitwise_and(left, right),
        "logical_or": lambda left, right: np.bitwise_or(left, right),
        "logical_xor": lambda left, right: np.bitwise_xor(left, right),
        "logical_not": lambda input: np.invert(input),
        "shift_left": shift_left,
        "shift_right": shift_right,
        "cond_join": lambda input, other, predicate, **_: input if predicate else other,
        "where": lambda cond, input1, input2: np.where(cond, input1, input2),
        "isnan": lambda input: np.isnan(real(input)),
        "negate": lambda input: np.negative(input),
        "abs": lambda input: np.abs(input),
        "sign": lambda input: np.sign(input),
        "stop_gradient": lambda input: np.asarray(input),
        "after": lambda input, token: np.asarray(input),
        "square": lambda input: real(input) ** 2,
        "exp": lambda input: np.exp(real(input)),
        "expm1": lambda input: np.expm1(real(input)),
        "log": lambda input: np.log(real(input)),
        "log1p": lambda input: np.log1p(real(input)),
        "sqrt": lambda input: np.sqrt(real(input)),
        "rsqrt": lambda input: 1.0 / np.sqrt(real(input)),
        "sin": lambda input: np.sin(real(input)),
        "cos": lambda input: np.cos(real(input)),
        "erf": lambda input: np.asarray(erf(real(input))) if np.size(input) else real(input),
        "floor": lambda input: cast(np.floor(real(input)), "int64"),
        "cast": cast,
        "sigmoid": sigmoid,
        "tanh": lambda input: np.tanh(real(input)),
        "softplus": softplus,
        "silu": lambda input: real(input) * sigmoid(input),
        "relu": lambda input: np.maximum(input, np.zeros_like(input)),
        "leaky_relu": leaky_relu,
        "gelu": gelu,
        "softmax": softmax,
        "log_softmax": log_softmax,
        "sum": reduction(np.sum, summable),
        "mean": reduction(np.mean, real),
        "prod": reduction(np.prod, summable),
        "max": reduction(np.max, np.asarray),
        "min": reduction(np.min, np.asarray),
        "any": reduction(np.any, np.asarray),
        "all": reduction(np.all, np.asarray),
        "variance": variance,
        "argmax": position(np.argmax),
        "argmin": position(np.argmin),
        "cumsum": lambda input, axis=-1: np.cumsum(summable(input), axis),
        "matmul": lambda left, right: np.asarray(np.matmul(left, right)),
        "linear": linear,
        "cholesky": cholesky,
        "solve_triangular": solve_triangular,
        "solve": lambda matrix, right: np.linalg.solve(matrix, right),
        "inverse": lambda input: np.linalg.inv(input),
        "cofactor": cofactor,
        "scaled_det": scaled_det,
        "slogdet": lambda input: tuple(np.asarray(y) for y in np.linalg.slogdet(input)),
        "trace": lambda input: np.asarray(np.trace(summable(input), axis1=-2, axis2=-1)),
        "matrix_power": lambda input, n: np.linalg.matrix_power(input, n),
        "matrix_exp": matrix_exp,
        "pinv": pinv,
        "lstsq": lambda matrix, right, rtol=None: pinv(matrix, rtol) @ right,
        "det": lambda input: np.asarray(np.linalg.det(input)),
        "eigh": eigh,
        "gpr_alpha": lambda label_mu_diff, L, K_term: np.linalg.solve(
            np.tril(L) @ np.tril(L).T, label_mu_diff
        ),
        "gpr_v_outer": lambda K, K_term, L: K.T @ np.linalg.solve(np.tril(L) @ np.tril(L).T, K),
        "conv2d": conv2d,
        "conv2d_dx": conv2d_dx,
        "conv2d_dw": conv2d_dw,
        "max_pool2d": max_pool2d,
        "max_pool2d_grad": max_pool2d_grad,
        "max_pool2d_pick": max_pool2d_pick,
        "avg_pool2d": avg_pool2d,
        "avg_pool2d_grad": avg_pool2d_grad,
        "conv2d_channels_last": channels_last(conv2d),
        "max_pool2d_channels_last": channels_last(max_pool2d),
        "avg_pool2d_channels_last": channels_last(avg_pool2d),
        "layer_norm": layer_norm,
        **oracle_windows.TABLE,
        **oracle_attention.TABLE,
        "dropout_attention": dropout_attention,
        "scaled_dot_product_attention": scaled_dot_product_attention,
        "squared_error": squared_error,
        "absolute_error": absolute_error,
        "transpose": lambda input, axes=None: np.transpose(input, axes),
        "swapaxes": lambda input, axis1, axis2: np.swapaxes(input, axis1, axis2),
        "reshape": lambda input, shape: np.reshape(input, tuple(shape)),
        "flatten": flatten,
        "squeeze": lambda input, axis=None: np.squeeze(input, axis),
        "expand_dims": lambda input, axis: np.expand_dims(input, axis),
        "broadcast_to": lambda input, shape: np.broadcast_to(input, tuple(shape)),
        # Of values that have nothing to do with each other; the oracle refuses others.
        "gradient": lambda of, wrt: np.zeros_like(wrt),
        "known_sizes": lambda input, sizes, wire="": input,
        "broadcast_like": lambda input, like: np.broadcast_to(input, like.shape),
        "sum_to": sum_to,
        "concat": concat,
        "split": lambda input, split_size, axis=0: np.split(input, split_size, axis),
        "pad": oracle_windows.pad,
        "index": index,
        "index_add": index_add,
        "gather": lambda input, indices: np.take(input, indices, 0),
        "embedding_grad": embedding_grad,
        "embedding": lambda input, weight, num_embeddings=None, dim=None: np.take(weight, input, 0),
        "constant": lambda value, dtype=None: typed(value, dtype, None),
        "full": lambda shape, value=0.0, dtype=None: typed(np.full(shape, value), dtype),
        "zeros": lambda shape, dtype=None: typed(np.zeros(shape), dtype),
        "ones": lambda shape, dtype=None: typed(np.ones(shape), dtype),
        "zeros_like": lambda input: np.zeros_like(input),
        "ones_like": lambda input: np.ones_like(input),
        "arange": lambda start=0, stop=None, step=1, dtype=None: typed(
            np.arange(start, stop, step), dtype, None
        ),
        "eye": eye,
        "one_hot": lambda input, num_classes, dtype=None: typed(
            np.asarray(input)[..., None] == np.arange(num_classes), dtype
        ),
        "shape": lambda input: tuple(int(n) for n in input.shape),
        "size": size,
        "length": lambda input: int(input.shape[0]),
        "to_tuple": lambda *input, n=None: tuple(input),
        "to_list": lambda *input, n=None: list(input),
        "union": lambda *input, n=None: sum(
            (tuple(x) if isinstance(x, tuple | list) else (x,) for x in input), ()
        ),
        "slice": lambda start=None, stop=None, step=None: slice(start, stop, step),
        "buffer": lambda input: input,
        "item": lambda input: input.reshape(()).item(),
        "tensor_to_list": lambda input: input.tolist(),
        "to_tensor": lambda input, dtype=None: typed(input, dtype, None),
        "threefry_bernoulli": bernoulli,
        "threefry_integers": integers,
        "randint": randint,
        "draw_randint": draw_randint,
        "next_key": next_key,
        "dropout": dropout,
        "sgd": sgd,
        "momentum": momentum,
        "adam": adam,
        "adamw": adamw,
    }
    | FUNCTIONS
    | ARRAYS
    | FOURIER
    | LOSSES
)


@cache
def ops_for(float_dtype: str = "float64") -> dict[str, Callable[..., Any]]:
    """Name -> function, where random numbers and thresholds are those of a float type."""
    smallest = SMALLEST_NORMAL[float_dtype]
    uniforms, normals = drawn(uniform, float_dtype), drawn(normal, float_dtype)
    return (
        SIMPLE
        | functions_for(float_dtype, SMALLEST_NORMAL)
        | {
            "cross_entropy": partial(cross_entropy, smallest=smallest),
            "nll_loss": partial(nll_loss, smallest=smallest),
            "kl_divergence": partial(kl_divergence, smallest=smallest),
            "dtype": partial(dtype_of, float_dtype=float_dtype),
            "eigvalsh": partial(eigvalsh, epsilon=EPSILON[float_dtype]),
            "binary_cross_entropy": partial(binary_cross_entropy, smallest=smallest),
            "threefry_uniform": uniforms["words"],
            "threefry_normal": normals["words"],
            "rand": uniforms["key"],
            "randn": normals["key"],
            "draw_rand": uniforms["state"],
            "draw_randn": normals["state"],
        }
    )


__all__ = ["SIMPLE", "ops_for"]
