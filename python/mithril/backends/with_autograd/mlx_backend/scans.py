"""Functions along one axis that emitted programs call: recurrences, sums, sorts and loops.

Some functions of MLX end the process when an array is empty.
"""

from __future__ import annotations

import math

import mlx.core as mx
import numpy as np

from mithril.backends.indexing import reduced_axes

from .special import exp, in_wide


@in_wide
def linear_scan(factor, input, axis=-1, reverse=False):
    """y[i] = factor[i] * y[i - 1] + input[i], from y[0] = input[0] on."""
    if input.size == 0:
        return input
    size = input.shape[axis]
    rows: list = []
    for at in range(size - 1, -1, -1) if reverse else range(size):
        a, x = (mx.take(operand, mx.array(at), axis) for operand in (factor, input))
        rows.append(a * rows[-1] + x if rows else x)
    return mx.stack(rows[::-1] if reverse else rows, axis)


_BLOCK = 64


def cumsum(x, axis):
    """Running sums in blocks, then those of what the blocks sum up to: an error grows with the
    logarithm of the size."""
    if x.shape[axis] == 1:  # MLX 0.32 leaves the result unwritten where the stride is not 1
        return x
    if x.shape[axis] <= _BLOCK or not mx.issubdtype(x.dtype, mx.floating):
        return mx.cumsum(x, axis)
    rows = mx.moveaxis(x, axis, -1)
    *outer, size = rows.shape
    blocks = -(-size // _BLOCK)
    rows = mx.pad(rows, [(0, 0)] * len(outer) + [(0, blocks * _BLOCK - size)])
    sums = mx.cumsum(rows.reshape(*outer, blocks, _BLOCK), -1)
    before = cumsum(sums[..., :-1, -1], -1)
    rest = sums[..., 1:, :] + before[..., None]
    rows = mx.concatenate([sums[..., :1, :], rest], -2).reshape(*outer, blocks * _BLOCK)
    return mx.moveaxis(rows[..., :size], -1, axis)


def total(x, axes, keepdims):
    """Sums in blocks: MLX 0.32 adds one term after the other, which is off by 1 % after 10**6."""
    count = math.prod(x.shape[a] for a in axes)
    if count <= _BLOCK or not mx.issubdtype(x.dtype, mx.floating):
        return mx.sum(x, axes, keepdims=keepdims)
    kept = [a for a in range(x.ndim) if a not in axes]
    rows = x.transpose(*kept, *axes).reshape(*(x.shape[a] for a in kept), count)
    while rows.shape[-1] > 1:
        *outer, size = rows.shape
        blocks = -(-size // _BLOCK)
        rows = mx.pad(rows, [(0, 0)] * len(outer) + [(0, blocks * _BLOCK - size)])
        rows = mx.sum(rows.reshape(*outer, blocks, _BLOCK), -1)
    shape = [1 if a in axes else n for a, n in enumerate(x.shape)]
    return rows.reshape(shape if keepdims else [x.shape[a] for a in kept])


@in_wide
def softmax(input, axis=-1):
    if input.size == 0:
        return input
    if input.dtype != mx.float64:
        return mx.softmax(input, axis, precise=True)
    axes = reduced_axes(input, axis)
    powers = exp(input - mx.stop_gradient(mx.max(input, axes, keepdims=True)))
    return powers / total(powers, axes, True)


@in_wide
def cumprod(input, axis=-1):
    first = mx.arange(input.shape[axis]) == 0
    shape = [1] * input.ndim
    shape[axis] = input.shape[axis]
    return linear_scan(input, mx.where(first.reshape(shape), input, mx.zeros_like(input)), axis)


def argsort(input, axis=-1, descending=False, stable=True):
    """Returns the indices that sort an axis; stable, with NaN as the largest value."""
    x = mx.stop_gradient(input)
    if x.size == 0:
        return mx.zeros(x.shape, mx.int64)
    if not descending:
        return mx.argsort(x, axis).astype(mx.int64)
    # Backwards, so that equal elements come out in their order when the result is turned around.
    places = _flipped(mx.argsort(_flipped(x, axis), axis), axis)
    return x.shape[axis] - 1 - places.astype(mx.int64)


def _flipped(x, axis):
    index = [slice(None)] * x.ndim
    index[axis] = slice(None, None, -1)
    return x[tuple(index)]


def last_writers(indices, size):
    """Returns for each place the position of the last index that names it, or -1."""
    places = mx.full((size,), -1, mx.int64)
    if indices.size == 0 or size == 0:
        return places
    flat = mx.clip(indices.reshape(-1).astype(mx.int64), -size, size - 1)
    return places.at[flat].maximum(mx.arange(flat.size, dtype=mx.int64))


def true_places(input, sizes=None):
    """Returns the row-major places where a mask is true."""
    return nonzero(input.reshape(-1))[:, 0]


def nonzero(input):
    """Returns the places of the elements that are not 0, as an array [count, rank]."""
    wide = input.astype(mx.float32) if input.dtype == mx.bfloat16 else input
    return mx.array(np.argwhere(np.array(wide)), mx.int64)


def scan(step, carries, xs, constants, ys, length, reverse):
    """Returns the last carries and the stacked outputs of `step(*carries, *places, *constants)`.

    `ys` has the shape, with the leading axis, and the dtype of each stacked output.
    """
    count = len(carries)
    kept: list = [[] for _ in ys]
    for at in range(length - 1, -1, -1) if reverse else range(length):
        places = (mx.take(x, mx.array(at), 0) for x in xs)
        results = step(*carries, *places, *constants)
        carries = results[:count]
        for rows, row in zip(kept, results[count:], strict=True):
            rows.append(row)
    if length == 0:
        return (*carries, *(mx.zeros(shape, dtype) for shape, dtype in ys))
    return (*carries, *(mx.stack(rows[::-1] if reverse else rows) for rows in kept))


def cond(taken, other, constants, predicate):
    """Returns the result of `taken` where the predicate holds, else that of `other`."""
    return (taken if bool(predicate) else other)(*constants)


def while_loop(condition, step, carries, constants):
    """Runs `step` while the condition holds; returns the carries for which it does not."""
    while bool(condition(*carries, *constants)[0]):
        carries = step(*carries, *constants)
    return tuple(carries)
