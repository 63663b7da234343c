"""The functions that emitted text calls on PyTorch tensors.

Three kinds: instructions of tile programs (`add` … `reduce_all`), ops that have a function here of
their own name, and what the text itself needs (`scalar`, `drop_axes`, dtypes). Operands of
pointwise functions may be Python numbers where another operand is a tensor. Values and, where
PyTorch differentiates, gradients at kinks are those of `docs/numerics.md`.
"""

from __future__ import annotations

import builtins as _builtins
import math as _math
import operator as _operator

import torch as _torch

from mithril.execution.random import threefry_block as _threefry_block

from ...indexing import counted_axes as _counted_axes
from ...indexing import plan_index as _plan_index
from ...indexing import reduced_axes as _axes
from ...indexing import whole_shape as _whole_shape
from . import attention as _attention
from . import fourier as _fourier
from . import linalg as _linalg
from . import scans as _scans
from . import windows as _windows

bool_ = _torch.bool
uint8, int8, int16 = _torch.uint8, _torch.int8, _torch.int16
int32, int64 = _torch.int32, _torch.int64
float16, bfloat16 = _torch.float16, _torch.bfloat16
float32, float64 = _torch.float32, _torch.float64

_functional = _torch.nn.functional
_as_compute = _scans.as_compute
_Tensor = _torch.Tensor


# ---------------------------------------------------------------------------- what text needs


def scalar(value, dtype):
    return _torch.tensor(value, dtype=dtype)


def drop_axes(x, axis):
    return _torch.squeeze(x, _axes(x, axis))


def position(shape):
    """Returns the row-major index of each element."""
    return _torch.arange(_math.prod(shape)).reshape(shape)


def _like(value, other):
    """Converts a number to a tensor of rank 0 like `other`."""
    if isinstance(value, _Tensor):
        return value
    return _torch.tensor(value, dtype=other.dtype, device=other.device)


def _both(x, y):
    return (_like(x, y), y) if isinstance(y, _Tensor) else (x, _like(y, x))


# ------------------------------------------------------------------------ tile instructions

add, subtract, multiply = _operator.add, _operator.sub, _operator.mul
negate, abs, sqrt = _torch.neg, _torch.abs, _torch.sqrt
floor, ceil, round, trunc, isnan = (
    _torch.floor, _torch.ceil, _torch.round, _torch.trunc, _torch.isnan
)  # fmt: skip
equal, not_equal, less, less_equal = _operator.eq, _operator.ne, _operator.lt, _operator.le
greater, greater_equal = _operator.gt, _operator.ge
bitwise_and, bitwise_or, bitwise_xor = _operator.and_, _operator.or_, _operator.xor
bitwise_not = _torch.bitwise_not
where = _torch.where
exp, expm1, exp2 = _torch.exp, _torch.expm1, _torch.exp2
log, log1p = _torch.log, _torch.log1p
sin, cos, erfc = _torch.sin, _torch.cos, _torch.erfc


def power(x, y):
    x, y = _both(x, y)
    dtype = _torch.result_type(x, y)
    wide = _as_compute(x) if isinstance(x, _Tensor) else x
    return _torch.pow(wide, _as_compute(y)).to(dtype)  # its gradient has a smaller exponent


def log2(x):
    return _torch.log2(_as_compute(x)).to(x.dtype)  # its gradient has the constant ln 2


def tanh(x):
    return _torch.tanh(_as_compute(x)).to(x.dtype)  # its gradient is that of the result, rounded


def sigmoid(x):
    return _torch.sigmoid(_as_compute(x)).to(x.dtype)  # its gradient is that of the result, too


def rsqrt(x):
    return _torch.rsqrt(_as_compute(x)).to(x.dtype)  # its gradient has a cube


def erf(x):
    return _torch.erf(_as_compute(x)).to(x.dtype)  # of halves PyTorch's is off by 5 ULP


def divide(x, y):
    # A number divided by a tensor would be a product with the reciprocal: two roundings.
    return _torch.true_divide(x if isinstance(x, _Tensor) else _like(x, y), y)


def _integer_division(x, y):
    """Operands without the divisors 0 and -1, which trap on some processors, and their masks."""
    x, y = _both(x, y)
    zero, minus = y == 0, y == -1
    return x, _torch.where(zero | minus, 1, y), zero, minus


def _is_integral(x):
    return not x.dtype.is_floating_point if isinstance(x, _Tensor) else isinstance(x, int)


def floor_divide(x, y):
    if _is_integral(x) and _is_integral(y):
        x, safe, zero, minus = _integer_division(x, y)
        quotient = _torch.where(minus, -x, _torch.div(x, safe, rounding_mode="floor"))
        return _torch.where(zero, 0, quotient)
    return _torch.div(*_both(x, y), rounding_mode="floor")


def integer_power(x, y):
    return _torch.pow(*_both(x, y))  # of tensors: PyTorch refuses negative numbers


def remainder(x, y):
    if _is_integral(x) and _is_integral(y):
        x, safe, zero, minus = _integer_division(x, y)
        return _torch.where(zero | minus, 0, _torch.remainder(x, safe))
    x, y = _both(x, y)
    turned = _torch.where(y < 0, -1, 1).to(y.dtype)  # a rest of 0 has the divisor's sign
    return turned * (_torch.remainder(turned * x, turned * y) + 0.0)


def minimum(x, y):
    x, y = _both(x, y)
    out = _torch.minimum(x, y)
    if not out.is_floating_point():
        return out
    return _torch.where(_both_zero(x, y), -(-0.5 * x - 0.5 * y), out)


def maximum(x, y):
    x, y = _both(x, y)
    out = _torch.maximum(x, y)
    if not out.is_floating_point():
        return out
    return _torch.where(_both_zero(x, y), 0.5 * x + 0.5 * y, out)


def _both_zero(x, y):
    """Returns where both are 0: there PyTorch may keep the sign of either operand."""
    return (x == 0) & (y == 0)


def at_least(x, bound):
    return _torch.where(bound > x, bound, x)


def at_most(x, bound):
    return _torch.where(bound < x, bound, x)


def sign(x):
    if not x.is_floating_point():
        return _torch.sign(x)
    return _torch.where((x != x) | (x == 0), x.detach(), _torch.sign(x))


def fma(x, y, z):
    return x * y + z


def fms(x, y, z):
    return x * y - z


def fnma(x, y, z):
    return z - x * y


def scale(x, exponent):
    return _torch.ldexp(*_both(x, exponent))


def _bits(x):
    return x.element_size() * 8


def _shift(function, x, count, beyond):
    x, count = _both(x, count)
    valid = (count >= 0) & (count < _bits(x))
    return _torch.where(valid, function(x, _torch.where(valid, count, 0)), beyond(x))


def shift_left(x, count):
    return _shift(_torch.bitwise_left_shift, x, count, lambda x: 0)


def shift_right(x, count):
    shift = _torch.bitwise_right_shift
    return _shift(shift, x, count, lambda x: shift(x, _bits(x) - 1))


def shift_right_logical(x, count):
    ones = _torch.full((), -2, dtype=x.dtype)
    copies = shift_left(ones, _bits(x) - 1 - count)  # where the sign was copied in
    return _torch.where(_like(count, x) >= _bits(x), 0, shift_right(x, count) & ~copies)


def astype(x, dtype):
    if not isinstance(x, _Tensor):
        return _torch.tensor(x, dtype=dtype)
    if x.is_floating_point() and not (dtype.is_floating_point or dtype == _torch.bool):
        return _saturate(x, dtype)
    return x.to(dtype)


def _saturate(x, dtype):
    info = _torch.iinfo(dtype)
    # Both bounds are powers of two (or 0), so the comparisons are exact.
    above = x >= float(info.max) + (info.bits < 53)
    below = x <= float(info.min)
    inside = _torch.where(above | below | (x != x), 0, x).to(dtype)
    return _torch.where(above, info.max, _torch.where(below, info.min, inside))


def bitcast(x, dtype):
    return x.view(dtype)


def threefry(key0, key1, counter, word):
    wide = counter.dtype == _torch.int64
    high = (counter >> 32).to(_torch.int32) if wide else _torch.zeros_like(counter)
    low = (counter << 32 >> 32).to(_torch.int32) if wide else counter
    return _threefry_block(key0, key1, low, high)[word]


_SATURATED = 100.0  # where sigmoid(-x) and erfc(x) are 0 beside 1, but for sigmoid in float64


def gelu(x):
    return _identity_above(_functional.gelu, x)


def gelu_tanh(x):
    return _identity_above(_gelu_tanh, x)


def _gelu_tanh(x):
    return _functional.gelu(x, approximate="tanh")


def _identity_above(function, x):
    """PyTorch multiplies infinities by 0."""
    return _torch.where(x > _SATURATED, x, function(x.clamp(-_SATURATED, _SATURATED)))


def silu(x):
    return _functional.silu(x.clamp(-10 * _SATURATED))


def softplus(x):
    return _functional.softplus(x, 1.0, 50.0)  # its default threshold, 20, would show in float64


def reduce_sum(x, axis, keepdim):
    axes = _axes(x, axis)
    return _torch.sum(x, axes, keepdim=keepdim, dtype=x.dtype) if axes else x


def reduce_prod(x, axis, keepdim):
    out = _as_compute(x)
    for a in sorted(_axes(x, axis), reverse=True):
        out = _torch.prod(out, a, keepdim=keepdim, dtype=out.dtype)
    return out.to(x.dtype)


def _extremum(function, x, axis, keepdim, identity):
    axes = _axes(x, axis)
    if not axes:
        return x
    if _is_empty(x, axes):
        shape = [1 if i in axes else n for i, n in enumerate(x.shape)]
        out = x.new_full(shape, identity)
        return out if keepdim else _torch.squeeze(out, axes)
    return function(x, axes, keepdim=keepdim)


def _is_empty(x, axes):
    return x.numel() == 0 and 0 in (x.shape[a] for a in axes)


def _lowest(dtype):
    return -_math.inf if dtype.is_floating_point else _bounds(dtype)[0]


def _highest(dtype):
    return _math.inf if dtype.is_floating_point else _bounds(dtype)[1]


def _bounds(dtype):
    if dtype == _torch.bool:
        return False, True
    info = _torch.iinfo(dtype)
    return info.min, info.max


def reduce_max(x, axis, keepdim):
    return _extremum(_torch.amax, x, axis, keepdim, _lowest(x.dtype))


def reduce_min(x, axis, keepdim):
    return _extremum(_torch.amin, x, axis, keepdim, _highest(x.dtype))


def _arg_reduce(function, x, axis, keepdim):
    axes = sorted(_axes(x, axis))
    kept = [a for a in range(x.ndim) if a not in axes]
    rows = x.permute((*kept, *axes))
    shape = rows.shape[: len(kept)]
    rows = rows.reshape(*shape, _math.prod(rows.shape[len(kept) :]))
    if rows.dtype == _torch.bool:
        rows = rows.to(_torch.uint8)
    out = function(rows, -1) if rows.shape[-1] else rows.new_zeros(shape, dtype=_torch.int64)
    for a in axes if keepdim else ():
        out = out.unsqueeze(a)
    return out


def reduce_argmax(x, axis, keepdim):
    return _arg_reduce(_torch.argmax, x, axis, keepdim)


def reduce_argmin(x, axis, keepdim):
    return _arg_reduce(_torch.argmin, x, axis, keepdim)


def reduce_any(x, axis, keepdim):
    axes = _axes(x, axis)
    return _torch.any(x != 0, axes, keepdim=keepdim) if axes else x != 0  # uint8 stays itself


def reduce_all(x, axis, keepdim):
    axes = _axes(x, axis)
    return _torch.all(x != 0, axes, keepdim=keepdim) if axes else x != 0


def cumsum(input, axis=0):
    return _torch.cumsum(_as_compute(input), axis).to(input.dtype)


linear_scan, cumprod = _scans.linear_scan, _scans.cumprod
scan, cond, while_loop = _scans.scan, _scans.cond, _scans.while_loop
argsort, last_writers = _scans.argsort, _scans.last_writers
true_places, nonzero = _scans.true_places, _scans.nonzero


# ------------------------------------------------------------------- ops: activations, softmax

relu, stop_gradient = _torch.relu, _torch.detach


def after(input, token):
    return input


asin, acos = _torch.asin, _torch.acos


def atan(x):
    return _torch.atan(_as_compute(x)).to(x.dtype)  # its gradient has a square


def atan2(y, x):
    y, x = _both(y, x)
    dtype = _torch.result_type(y, x)
    y, x = _as_compute(y), _as_compute(x)
    angle = _torch.atan2(y, x).detach()
    # The gradient is that of equal angles whose squares neither overflow nor vanish.
    most = 60 if x.dtype == float32 else 500
    size = _torch.maximum(x.abs(), y.abs()).detach()
    factor = _torch.ones_like(size).masked_fill(size > 2.0**most, 2.0 ** -(most + 20))
    factor = factor.masked_fill(size < 2.0**-most, 2.0 ** (most + 40))
    near = _torch.atan2(y * factor, x * factor)
    # A sum would lose the sign of an angle that is -0.
    return _torch.where(angle == 0, near, angle + (near - near.detach())).to(dtype)


def _along(function, input, axis):
    if axis is None:
        return function(input.reshape(-1), 0).reshape(input.shape)
    if isinstance(axis, int):
        return function(input, axis)
    axes = list(_counted_axes(axis, input.ndim))
    if not axes:
        return function(input[..., None], -1)[..., 0]
    order = [a for a in range(input.ndim) if a not in axes] + axes
    rows = input.permute(order)
    out = function(rows.flatten(-len(axes)), -1).reshape(rows.shape)
    return out.permute([order.index(a) for a in range(input.ndim)])


def softmax(input, axis=-1):
    return _along(_torch.softmax, input, axis)


def log_softmax(input, axis=-1):
    # Of halves PyTorch's sums up in halves on the CPU: of 100,000 zeros it is infinite.
    return _along(_torch.log_softmax, _as_compute(input), axis).to(input.dtype)


def squared_error(input, target, safe_shapes=True, reduction=None):
    if _alike(input, target):
        wide = _as_compute(input), _as_compute(target)
        return _functional.mse_loss(*wide, reduction=reduction or "none").to(input.dtype)
    if bool_ in [getattr(x, "dtype", None) for x in (input, target)]:
        return input ^ target
    dtype = _torch.result_type(input, target)
    input, target = (_as_compute(x) if isinstance(x, _Tensor) else x for x in (input, target))
    difference = input - target
    squares = difference * difference
    return (squares if reduction in (None, "none") else getattr(_torch, reduction)(squares)).to(
        dtype
    )


def _alike(input, target):
    """Tells whether both are float tensors of one shape: PyTorch's losses warn of others."""
    if not (isinstance(input, _Tensor) and isinstance(target, _Tensor)):
        return False
    return input.is_floating_point() and input.dtype is target.dtype and input.shape == target.shape


plain_attention = _attention.plain_attention


def layer_norm(input, eps=1e-5, weight=None, bias=None, use_scale=True, use_bias=True):
    if not isinstance(eps, _Tensor):
        return _functional.layer_norm(input, input.shape[-1:], weight, bias, eps)
    x = _as_compute(input)
    centred = x - _torch.mean(x, -1, keepdim=True)
    out = centred * _torch.rsqrt(_torch.mean(centred * centred, -1, keepdim=True) + eps)
    out = out if weight is None else out * weight
    return (out if bias is None else out + bias).to(input.dtype)


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
    axes = _axes(input, axis)
    return _torch.mean(input, axes, keepdim=keepdim) if axes else input


def sum_to(input, like):
    """Sums what broadcasting has repeated, so that the result has the shape of `like`."""
    return input.sum_to_size(like.shape)


# ------------------------------------------------------------------------------ ops: products

matmul = _torch.matmul


cholesky = _linalg.cholesky
solve_triangular = _linalg.solve_triangular
solve = _linalg.solve
det, scaled_det, cofactor = _linalg.det, _linalg.scaled_det, _linalg.cofactor
eigh = _linalg.eigh
qr, svd = _linalg.qr, _linalg.svd
pinv, lstsq = _linalg.pinv, _linalg.lstsq
dft, rdft = _fourier.dft, _fourier.rdft


def linear(weight, input, bias=None, dimension=None, use_bias=True):
    return _functional.linear(input, weight, bias)


# ------------------------------------------------------------------------------- ops: windows

conv2d, conv2d_dx, conv2d_dw = _windows.conv2d, _windows.conv2d_dx, _windows.conv2d_dw
max_pool2d, max_pool2d_grad = _windows.max_pool2d, _windows.max_pool2d_grad
max_pool2d_pick = _windows.max_pool2d_pick
avg_pool2d, avg_pool2d_grad = _windows.avg_pool2d, _windows.avg_pool2d_grad


# ------------------------------------------------------------------------------ ops: movement


def reshape(input, shape):
    return _torch.reshape(input, _whole_shape(shape, input.shape))


def swapaxes(input, axis1, axis2):
    return _torch.swapaxes(input, axis1, axis2)


def transpose(input, axes=None):
    return input.permute(axes or tuple(range(input.ndim))[::-1])


def flatten(input, start_dim=0, end_dim=-1):
    return _torch.flatten(input, start_dim, end_dim)


def squeeze(input, axis=None):
    if axis is None:
        return _torch.squeeze(input)
    axes = _axes(input, axis)
    for a in axes:  # PyTorch leaves an axis of another size
        if input.shape[a] != 1:
            raise ValueError(f"axis {a} of size {input.shape[a]} cannot be squeezed")
    return _torch.squeeze(input, axes)


def expand_dims(input, axis):
    axes = (axis,) if isinstance(axis, int) else axis
    rank = input.ndim + len(axes)
    for a in sorted(_counted_axes(axes, rank)):
        input = input.unsqueeze(a)
    return input


def broadcast_to(input, shape):
    return _torch.broadcast_to(input, shape)


def broadcast_like(input, like):
    return _torch.broadcast_to(input, like.shape)


def concat(input, axis=0):
    if axis is None:
        return _torch.cat([x.reshape(-1) for x in input])
    return _torch.cat(input, axis)


split_with_sizes = _torch.split_with_sizes


def pad(input, pad_width, mode="constant", value=0.0):
    is_pair = len(pad_width) == 2 and isinstance(pad_width[0], int)
    pairs = [pad_width] * input.ndim if is_pair else pad_width
    return _functional.pad(input, [side for sides in reversed(pairs) for side in sides])


# ------------------------------------------------------------------------- ops: host and index


def shape(input):
    return tuple(input.shape)


def size(input, dim=None):
    if dim is None:
        return input.numel()
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
    return _torch.tensor(input, dtype=dtype)


def index(input, items=(), /, *, index=None):
    key = _index(items, index)
    entries = key if isinstance(key, tuple) else (key,)
    if not _builtins.any(isinstance(e, _Tensor) and _repeats(input, e) for e in entries):
        return _indexed(input, key)
    return _indexed(_as_compute(input), key).to(input.dtype)


def _repeats(input, indices):
    """Tells whether the gradient of a look-up may sum more than two halves: done in float32."""
    return input.requires_grad and indices.numel() > 2 and input.dtype in (float16, bfloat16)


def index_add(input, value, items=(), /, *, index=None):
    """A copy of `input` with `value` added where the index points; repeated places add up."""
    places = _torch.arange(input.numel(), device=input.device).reshape(input.shape)
    places = _indexed(places, _index(items, index))
    flat = _as_compute(input).reshape(-1)
    values = _as_compute(_torch.broadcast_to(value, places.shape).reshape(-1))
    return flat.index_add(0, places.reshape(-1), values).reshape(input.shape).to(input.dtype)


def _index(items, index):
    if len(items) == 0:
        return index
    return items[0] if len(items) == 1 else tuple(items)


def _is_advanced(item):
    return isinstance(item, list | _Tensor | bool)


def _indexed(x, index):
    """Indexes by NumPy's rules where PyTorch's differ."""
    items = index if isinstance(index, tuple) else (index,)
    if not _builtins.any(map(_is_advanced, items)):
        return _basic_part(x, items)
    plan = _plan_index(_without_masks(items), x.ndim)
    x = _basic_part(x, plan.basic).movedim(plan.axes, tuple(range(len(plan.axes))))
    arrays = [_places(a, x.device) for a in plan.arrays]
    rank = _builtins.max(a.ndim for a in arrays)
    out = x[tuple(arrays)]
    return out.movedim(tuple(range(rank)), tuple(range(plan.place, plan.place + rank)))


def _without_masks(items):
    for item in items:
        if isinstance(item, _Tensor) and item.dtype == bool_:
            yield from item.nonzero(as_tuple=True)
        else:
            yield item


def _places(item, device):
    return _torch.as_tensor(item, dtype=int64, device=device)  # PyTorch reads uint8 as a mask


def _basic_part(x, items):
    if _builtins.any(isinstance(i, slice) and (i.step or 1) < 0 for i in items):
        x, items = _turned(x, list(items))
    return x[tuple(items)]


def _turned(x, items):
    """Applies slices with negative steps, which PyTorch lacks, and leaves `:` in their place."""
    named = _builtins.sum(i is not None and i is not Ellipsis for i in items)
    axis = 0
    for k, item in enumerate(items):
        if item is None:
            continue
        if item is Ellipsis:
            axis += x.ndim - named
            continue
        if isinstance(item, slice) and (item.step or 1) < 0:
            places = _torch.tensor(range(x.shape[axis])[item], dtype=_torch.int64, device=x.device)
            x, items[k] = x.index_select(axis, places), slice(None)
        axis += 1
    return x, items


def gather(input, indices):
    indices = indices.to(_torch.int64)
    if _repeats(input, indices):
        return _as_compute(input)[indices].to(input.dtype)
    return input[indices]


def embedding(input, weight, num_embeddings=None, dim=None):
    return gather(weight, input)


def embedding_grad(value, indices, shape):
    """Returns zeros with the values added to their rows, in the order of the indices."""
    wide = _as_compute(value)
    out = wide.new_zeros(shape)
    return out.index_put((indices.to(_torch.int64),), wide, accumulate=True).to(value.dtype)


# ------------------------------------------------------------------------------ ops: creation


def full(shape, value, dtype):
    return _torch.full((shape,) if isinstance(shape, int) else shape, value, dtype=dtype)


def zeros(shape, dtype):
    return _torch.zeros(shape, dtype=dtype)


def ones(shape, dtype):
    return _torch.ones(shape, dtype=dtype)


zeros_like, ones_like = _torch.zeros_like, _torch.ones_like


def arange(start=0, stop=None, step=1, dtype=None):
    if stop is None:
        start, stop = 0, start
    count = _builtins.max(0, -((start - stop) // step))
    return (start + step * _torch.arange(int(count), dtype=_wide(dtype))).to(dtype)


def _wide(dtype):
    return _torch.float64 if dtype.is_floating_point else _torch.int64


def eye(N, M=None, dtype=None):
    return _torch.eye(N, N if M is None else M, dtype=dtype)
