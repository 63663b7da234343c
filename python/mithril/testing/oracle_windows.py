"""Reference convolutions, pooling and norms in NumPy and float64, over any number of axes.

Part of the table of `oracle_ops.py`, whose conventions hold here.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np


def real(x: Any) -> np.ndarray:
    return np.asarray(x, np.float64)


def each(value: Any, axes: int) -> tuple:
    return tuple(value) if isinstance(value, tuple | list) else (value,) * axes


def pairs(padding: Any, size: tuple, dilation: Any = 1) -> tuple:
    """Returns the padding as (low, high) for each axis."""
    if isinstance(padding, str):
        reach = [(k - 1) * d for k, d in zip(size, each(dilation, len(size)), strict=True)]
        return tuple((n // 2, n - n // 2) if padding.lower() == "same" else (0, 0) for n in reach)
    if len(size) == 1 and isinstance(padding, tuple | list) and len(padding) == 2:
        return (tuple(padding),)
    return tuple(each(p, 2) for p in each(padding, len(size)))


def padded(x: np.ndarray, padding: tuple, value: float = 0.0) -> np.ndarray:
    return np.pad(
        x, [(0, 0)] * (x.ndim - len(padding)) + [tuple(p) for p in padding], constant_values=value
    )


def taps(x: np.ndarray, size: tuple, stride: tuple, dilation: tuple) -> Iterator[tuple]:
    """Yields (place in the window, index of the elements there) in row-major order; x is padded."""
    sizes = x.shape[x.ndim - len(size) :]
    counts = [
        (n - d * (k - 1) - 1) // s + 1
        for n, k, s, d in zip(sizes, size, stride, dilation, strict=True)
    ]
    for place in itertools.product(*map(range, size)):
        spans = [
            slice(p * d, p * d + (n - 1) * s + 1, s)
            for p, d, s, n in zip(place, dilation, stride, counts, strict=True)
        ]
        yield place, (..., *spans)


# --- convolution ----------------------------------------------------------------------------------


def conv(x, w, stride, padding, dilation, groups) -> np.ndarray:
    size = w.shape[2:]
    x, w = padded(real(x), pairs(padding, size, dilation)), real(w)
    per_group = w.shape[1]
    total: Any = 0.0
    for place, where in taps(x, size, each(stride, len(size)), each(dilation, len(size))):
        met = x[where]
        met = met.reshape(met.shape[0], groups, per_group, *met.shape[2:])
        filters = w[(slice(None), slice(None), *place)].reshape(groups, -1, per_group)
        part = np.einsum("ngc...,goc->ngo...", met, filters)
        total = total + part.reshape(part.shape[0], len(w), *part.shape[3:])
    return total


def convolution(weight, padding=0, stride=1, dilation=1, input=None, bias=None, groups=1,
                kernel_size=None, out_channels=None, use_bias=True):  # fmt: skip
    y = conv(input, weight, stride, padding, dilation, groups)
    return y if bias is None else y + bias


def convolution1d(weight, padding=0, stride=1, dilation=1, input=None, bias=None,
                  kernel_size=None, out_channels=None, use_bias=True, groups=1):  # fmt: skip
    return convolution(weight, padding, stride, dilation, input, bias, groups)


def primitive_convolution1d(input, weight, stride, padding, dilation, bias=None, use_bias=True,
                            groups=1):  # fmt: skip
    return convolution(weight, padding, stride, dilation, input, bias, groups)


def primitive_convolution2d(input, weight, stride, padding, dilation, groups, bias=None,
                            use_bias=True):  # fmt: skip
    return convolution(weight, padding, stride, dilation, input, bias, groups)


def conv_transpose(weight, input, bias=None, kernel_size=None, out_channels=None, stride=1,
                   padding=0, output_padding=0, dilation=1, groups=1, use_bias=True):  # fmt: skip
    """Each element of the input, times the filters, added where its window lies."""
    x, w = real(input), real(weight)
    size, axes = w.shape[2:], w.ndim - 2
    step, gap, more = each(stride, axes), each(dilation, axes), each(output_padding, axes)
    sides = same_sides(size, step, gap) if padding == "same" else pairs(padding, size)
    per_group = x.shape[1] // groups
    full = [
        (n - 1) * s + d * (k - 1) + 1 + m
        for n, s, d, k, m in zip(x.shape[2:], step, gap, size, more, strict=True)
    ]
    out = np.zeros((x.shape[0], w.shape[1] * groups, *full))
    x = x.reshape(x.shape[0], groups, per_group, *x.shape[2:])
    w = w.reshape(groups, per_group, *w.shape[1:])
    for place in itertools.product(*map(range, size)):
        spans = [
            slice(p * d, p * d + (n - 1) * s + 1 if n else p * d, s)
            for p, d, s, n in zip(place, gap, step, x.shape[3:], strict=True)
        ]
        part = np.einsum("ngc...,gco->ngo...", x, w[(..., *place)])
        out[(..., *spans)] += part.reshape(out.shape[:2] + part.shape[3:])
    for axis, (low, high) in enumerate(sides, start=2):
        out = np.moveaxis(out, axis, -1)
        count = out.shape[-1]
        out = out[..., low : count - high] if high >= 0 else padded(out, ((0, -high),))
        out = np.moveaxis(out, -1, axis)
    return out if bias is None else out + bias


def same_sides(size, step, gap):
    """Returns what "same" cuts at both ends of each axis, the larger half behind; below 0 adds."""
    beyond = [d * (k - 1) + 1 - s for k, s, d in zip(size, step, gap, strict=True)]
    return [(n // 2, n - n // 2) if n > 0 else (0, n) for n in beyond]


# --- pooling --------------------------------------------------------------------------------------


def sides_of(x, size, step, gap, padding, ceil_mode):
    """Returns the padding (low, high) of each axis, and the part of `high` due to `ceil_mode`."""
    found = []
    for n, k, s, d, (low, high) in zip(
        x.shape[x.ndim - len(size) :], size, step, gap, pairs(padding, size, gap), strict=True
    ):
        reach, beyond = (k - 1) * d + 1, 0
        if ceil_mode:
            last = math.ceil((n + low + high - reach) / s)
            last -= last * s >= n + low  # it would begin in the padding
            beyond = max(last * s + reach - (n + low + high), 0)
        found.append((low, high + beyond, beyond))
    return tuple((low, high) for low, high, _ in found), tuple(b for _, _, b in found)


def pool(x, kernel_size, stride, padding, dilation, axes, fill, reduce, ceil_mode=False):
    size, gap = each(kernel_size, axes), each(dilation, axes)
    step = size if stride is None else each(stride, axes)
    sides, _ = sides_of(np.asarray(x), size, step, gap, padding, ceil_mode)
    whole = padded(np.asarray(x), sides, fill)
    met = [whole[where] for _, where in taps(whole, size, step, gap)]
    return reduce(np.stack(met), 0)


def mean_pool(x, kernel_size, stride, padding, dilation, axes, ceil_mode, include, divisor):
    size, gap = each(kernel_size, axes), each(dilation, axes)
    step = size if stride is None else each(stride, axes)
    sides, beyond = sides_of(x, size, step, gap, padding, ceil_mode)
    given = np.ones(x.shape[x.ndim - axes :])
    if include:
        own = tuple((low, high - b) for (low, high), b in zip(sides, beyond, strict=True))
        given = padded(padded(given, own, 1.0), tuple((0, b) for b in beyond))
    else:
        given = padded(given, sides)
    whole, places = padded(x, sides), list(taps(padded(x, sides), size, step, gap))
    total = sum(whole[where] for _, where in places)
    return total / (divisor or sum(given[where] for _, where in places))


def pooling(axes: int, kind: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Returns the layer, and the primitive with the same arguments in another order."""

    def apply(x, kernel_size, stride, padding, dilation, ceil=False, include=True, divisor=None):
        if kind == "mean":
            return mean_pool(
                real(x), kernel_size, stride, padding, dilation, axes, ceil, include, divisor
            )
        x = np.asarray(x)
        info = np.iinfo(x.dtype) if x.dtype.kind in "iu" else None
        low, high = (-np.inf, np.inf) if info is None else (info.min, info.max)
        fill, reduce = (low, np.max) if kind == "max" else (high, np.min)
        return pool(x, kernel_size, stride, padding, dilation, axes, fill, reduce, ceil)

    def layer(kernel_size, stride=None, padding=0, input=None, dilation=1, ceil_mode=False,
              count_include_pad=True, divisor_override=None):  # fmt: skip
        return apply(input, kernel_size, stride, padding, dilation, ceil_mode, count_include_pad,
                     divisor_override)  # fmt: skip

    def primitive(input, kernel_size, stride, padding, dilation):
        return apply(input, kernel_size, stride, padding, dilation)

    return layer, primitive


def adaptive(axes: int, reduce: Callable[..., Any]) -> Callable[..., Any]:
    def layer(input, output_size):
        x = np.asarray(input)
        lead, sizes = x.shape[: x.ndim - axes], x.shape[x.ndim - axes :]
        wanted = [
            n if m is None else m for n, m in zip(sizes, each(output_size, axes), strict=True)
        ]
        out = np.zeros((*lead, *wanted), np.float64 if reduce is np.mean else x.dtype)
        over = tuple(range(-axes, 0))
        for place in itertools.product(*map(range, wanted)):
            part = tuple(
                slice(math.floor(i * n / m), math.ceil((i + 1) * n / m))
                for i, n, m in zip(place, sizes, wanted, strict=True)
            )
            out[(..., *place)] = reduce(x[(..., *part)], over)
        return out

    return layer


def over_space(reduce: Callable[..., Any]) -> Callable[..., Any]:
    return lambda input: reduce(input, axis=tuple(range(2, input.ndim)), keepdims=True)


# --- norms ----------------------------------------------------------------------------------------


def scaled(y, weight, bias):
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def group_norm(input, eps=1e-5, weight=None, bias=None, num_groups=32, use_scale=True,
               use_bias=True):  # fmt: skip
    x = real(input)
    parts = x.reshape(x.shape[0], num_groups, x.size // max(x.shape[0] * num_groups, 1))
    y = (parts - parts.mean(-1, keepdims=True)) / np.sqrt(parts.var(-1, keepdims=True) + eps)
    return scaled(y.reshape(x.shape), weight, bias)


def instance_norm(input, eps=1e-5, weight=None, bias=None, use_scale=True, use_bias=True):
    x, space = real(input), tuple(range(2, np.ndim(input)))
    y = (x - x.mean(space, keepdims=True)) / np.sqrt(x.var(space, keepdims=True) + eps)
    return scaled(y, weight, bias)


def rms_norm(input, eps=1e-6, weight=None, use_scale=True):
    x = real(input)
    return scaled(x / np.sqrt((x * x).mean(-1, keepdims=True) + eps), weight, None)


def batch_norm(input, running_mean, running_var, weight=None, bias=None, num_features=None,
               use_scale=True, use_bias=True, eps=1e-5, momentum=0.1, mode=None):  # fmt: skip
    x = real(input)
    mean, var = running_mean, running_var
    new_mean, new_var = running_mean, running_var
    if mode == "train":
        n = x.size // x.shape[1]
        axes = (0, *range(2, x.ndim))
        mean, var = x.mean(axes), x.var(axes)
        new_mean = (1.0 - momentum) * running_mean + momentum * mean
        new_var = (1.0 - momentum) * running_var + momentum * var * n / (n - 1)
    shape = (-1, *(1,) * (x.ndim - 2))
    y = (x - np.reshape(mean, shape)) / np.sqrt(np.reshape(var, shape) + eps)
    return scaled(y, weight, bias), new_mean, new_var


# --- padding, resizing ----------------------------------------------------------------------------


def pad_with(mode: str) -> Callable[..., Any]:
    def pad(input, pad_width):
        return np.pad(input, of_each_axis(pad_width, input.ndim), mode=mode)

    return pad


NAMES_OF_MODES = {"replicate": "edge", "circular": "wrap"}  # NumPy's


def pad(input, pad_width, mode="constant", value=0.0):
    if mode == "constant":
        return np.pad(input, pad_width, constant_values=value)
    return np.pad(input, pad_width, mode=NAMES_OF_MODES.get(mode, mode))


def constant_pad(input, pad_width, value=0.0):
    return np.pad(input, of_each_axis(pad_width, input.ndim), constant_values=value)


def of_each_axis(pad_width, ndim: int) -> list[tuple[int, int]]:
    """One pair is that of the last axis."""
    pairs = np.reshape(pad_width, (-1, 2)).tolist()
    if np.ndim(pad_width) == 1:
        pairs = [(0, 0)] * (ndim - 1) + pairs
    return [(low, high) for low, high in pairs]


def cubic_weight(x: np.ndarray) -> np.ndarray:
    """The kernel of Keys (1981) with a = -0.75."""
    a, x = -0.75, np.abs(x)
    near = (a + 2) * x**3 - (a + 3) * x**2 + 1
    far = a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0.0))


def weights(n: int, m: int, scale: float | None, mode: str, align_corners: bool) -> np.ndarray:
    """Returns the matrix that interpolates m elements from n."""
    i = np.arange(m)
    step = n / m if scale is None else 1 / scale
    if mode.startswith("nearest"):
        shift = 0.5 if mode == "nearest-exact" else 0.0
        place = (i + shift) * n / m if scale is None else (i + shift) * step
        return np.eye(n)[np.minimum(np.floor(place).astype(int), n - 1)]
    at = (i + 0.5) * step - 0.5
    if align_corners:
        at = i * ((n - 1) / (m - 1) if m > 1 else 0.0)
    if mode != "bicubic":
        at = np.clip(at, 0, n - 1)
        return np.maximum(0.0, 1 - np.abs(at[:, None] - np.arange(n)))
    out = np.zeros((m, n))
    for tap in range(-1, 3):
        place = np.floor(at) + tap
        np.add.at(out, (i, np.clip(place, 0, n - 1).astype(int)), cubic_weight(at - place))
    return out


def interpolate(input, size=None, scale_factor=None, align_corners=False, mode="nearest"):
    x = real(input)
    axes = x.ndim - 2
    scales = (None,) * axes if scale_factor is None else each(scale_factor, axes)
    for axis in range(axes):
        n, scale = x.shape[axis + 2], scales[axis]
        m = each(size, axes)[axis] if scale is None else math.floor(n * scale)
        matrix = weights(n, m, scale, mode, align_corners)
        x = np.moveaxis(np.tensordot(matrix, x, (1, axis + 2)), 0, axis + 2)
    return x


# --- arguments ------------------------------------------------------------------------------------


def padding_converter(axes: int) -> Callable[..., Any]:
    def convert(input, kernel_size):
        found = pairs(input, each(kernel_size, axes))
        return found[0] if axes == 1 else found

    return convert


TABLE: dict[str, Callable[..., Any]] = {
    "convolution1d": convolution1d,
    "convolution2d": convolution,
    "convolution3d": convolution,
    "primitive_convolution1d": primitive_convolution1d,
    "primitive_convolution2d": primitive_convolution2d,
    **{f"convtranspose{n}d": conv_transpose for n in (1, 2, 3)},
    **{
        f"{name}_pooling{n}d": pooling(n, kind)[0]
        for n in (1, 2, 3)
        for name, kind in (("max", "max"), ("min", "min"), ("avg", "mean"))
    },
    "primitive_max_pooling1d": pooling(1, "max")[1],
    "primitive_max_pooling2d": pooling(2, "max")[1],
    "primitive_avg_pooling2d": pooling(2, "mean")[1],
    **{f"adaptiveavgpool{n}d": adaptive(n, np.mean) for n in (1, 2, 3)},
    **{f"adaptivemaxpool{n}d": adaptive(n, np.max) for n in (1, 2, 3)},
    "global_avg_pool": over_space(np.mean),
    "global_max_pool": over_space(np.max),
    "group_norm": group_norm,
    "instance_norm": instance_norm,
    "rms_norm": rms_norm,
    **{f"batch_norm{n}d": batch_norm for n in (1, 2, 3)},
    "interpolate": interpolate,
    "constantpad": constant_pad,
    "reflectionpad": pad_with("reflect"),
    "replicationpad": pad_with("edge"),
    "circularpad": pad_with("wrap"),
    "padding_converter_1d": padding_converter(1),
    "padding_converter_2d": padding_converter(2),
    "stride_converter": lambda input, kernel_size: kernel_size if input is None else input,
    "tuple_converter": lambda input: (input, input) if isinstance(input, int) else input,
}

__all__ = ["TABLE"]
