"""Functions along one axis that emitted programs call: recurrences, sorts and loops."""

from __future__ import annotations

import numpy as np

from .utils import as_compute, checked


def linear_scan(factor, input, axis=-1, reverse=False):
    """y[i] = factor[i] * y[i - 1] + input[i], from y[0] = input[0] on."""
    a, x = (np.moveaxis(_in_double(operand), axis, 0) for operand in (factor, input))
    y = np.array(x)
    places = range(len(y))
    for before, at in zip(places, places[1:], strict=False):
        if reverse:
            before, at = -1 - before, -1 - at
        y[at] = a[at] * y[before] + x[at]
    return np.moveaxis(y, 0, axis).astype(input.dtype, copy=False)


def cumprod(input, axis=-1):
    x = _in_double(input)
    return np.cumprod(x, axis, dtype=x.dtype).astype(input.dtype, copy=False)


def cumsum(input, axis=0):
    dtype = np.float64 if input.dtype.kind not in "iub" else input.dtype
    return np.cumsum(as_compute(input), axis, dtype=dtype).astype(input.dtype, copy=False)


def _in_double(x):
    """Converts floats to float64, because rounding errors accumulate along the axis."""
    return as_compute(x).astype(np.float64) if x.dtype.kind not in "iub" else x


def argsort(input, axis=-1, descending=False, stable=True):
    """Returns the indices that sort an axis; stable, with NaN as the largest value."""
    x = as_compute(input)
    if not descending:
        return np.argsort(x, axis, kind="stable")
    # Backwards, so that equal elements come out in their order when the result is turned around.
    places = np.flip(np.argsort(np.flip(x, axis), axis, kind="stable"), axis)
    return x.shape[axis] - 1 - places


def last_writers(indices, size):
    """Returns for each place the position of the last index that names it, or -1."""
    places = np.full(size, -1, np.int64)
    flat = checked(indices, size).reshape(-1)
    places[flat] = np.arange(flat.size)  # of repeated places the last one stays
    return places


def true_places(input, sizes=None):
    """Returns the row-major places where a mask is true."""
    return np.flatnonzero(input)


def nonzero(input):
    """Returns the places of the elements that are not 0, as an array [count, rank]."""
    return np.argwhere(input)


def scan(step, carries, xs, constants, ys, length, reverse):
    """Returns the last carries and the stacked outputs of `step(*carries, *places, *constants)`.

    `ys` has the shape, with the leading axis, and the dtype of each stacked output.
    """
    count = len(carries)
    kept = [np.empty(shape, dtype) for shape, dtype in ys]
    for at in range(length - 1, -1, -1) if reverse else range(length):
        results = step(*carries, *(x[at] for x in xs), *constants)
        carries = results[:count]
        for rows, row in zip(kept, results[count:], strict=True):
            rows[at] = row
    return (*carries, *kept)


def cond(taken, other, constants, predicate):
    """Returns the result of `taken` where the predicate holds, else that of `other`."""
    return (taken if bool(predicate) else other)(*constants)


def while_loop(condition, step, carries, constants):
    """Runs `step` while the condition holds; returns the carries for which it does not."""
    while bool(condition(*carries, *constants)[0]):
        carries = step(*carries, *constants)
    return tuple(carries)
