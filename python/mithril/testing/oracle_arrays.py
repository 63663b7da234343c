"""Reference ops that move, sort, gather and scatter elements; see `oracle_ops.py`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np


def summable(x: Any) -> np.ndarray:
    return np.asarray(x, np.float64 if np.asarray(x).dtype.kind == "f" else np.int64)


# --- rearranged ----------------------------------------------------------------------------------


def stack(axis=0, *input):
    return np.stack(input, axis)


def chunk(input, chunks, axis=0):
    size = -(-input.shape[axis] // chunks)
    return np.split(input, [size * i for i in range(1, chunks)], axis)


def diagonal(input, offset=0, axis1=0, axis2=1):
    """Returns the diagonal; it is empty where the offset leaves the matrix."""
    rows, columns = input.shape[axis1], input.shape[axis2]
    pairs = [(i, i + offset) for i in range(rows) if 0 <= i + offset < columns]
    matrices = np.moveaxis(input, (axis1, axis2), (-2, -1))
    index = np.array(pairs, int).reshape(-1, 2)
    return matrices[..., index[:, 0], index[:, 1]]


def diag(input, diagonal=0):
    return np.diag(input, diagonal)


def positional_encoding(input, hidden_dim, max_len=5000):
    """Written for pairs of columns, as in the paper."""
    x = np.asarray(input, np.float64)
    table = np.zeros((x.shape[-2], hidden_dim + hidden_dim % 2))
    for i in range(0, hidden_dim, 2):
        angle = np.arange(x.shape[-2]) / 10000.0 ** (i / hidden_dim)
        table[:, i], table[:, i + 1] = np.sin(angle), np.cos(angle)
    return x + table[:, :hidden_dim]


# --- recurrences, orders -------------------------------------------------------------------------


def linear_scan(factor, input, axis=-1, reverse=False):
    a, x = np.moveaxis(factor, axis, 0), np.moveaxis(input, axis, 0)
    y = np.zeros(x.shape, np.result_type(a, x))
    state = None
    for i in reversed(range(len(x))) if reverse else range(len(x)):
        state = x[i] if state is None else a[i] * state + x[i]
        y[i] = state
    return np.moveaxis(y, 0, axis)


def argsort(input, axis=-1, descending=False, stable=True):
    """Returns the indices that sort an axis, by Python's sort, which is stable."""
    rows = np.moveaxis(np.asarray(input), axis, -1)
    out = np.zeros(rows.shape, np.int64)
    for at in np.ndindex(rows.shape[:-1]):
        keys = [(math.isnan(v), 0 if math.isnan(v) else v) for v in rows[at].tolist()]
        out[at] = sorted(range(len(keys)), key=keys.__getitem__)
        if descending:  # reverse=True keeps the order of equal elements
            out[at] = sorted(range(len(keys)), key=keys.__getitem__, reverse=True)
    return np.moveaxis(out, -1, axis)


def sort(input, axis=-1, descending=False, stable=True):
    return np.take_along_axis(np.asarray(input), argsort(input, axis, descending), axis)


def topk(input, k, axis=-1, largest=True):
    order = argsort(input, axis, largest)
    first = np.take(order, range(k), axis)
    return np.take_along_axis(np.asarray(input), first, axis), first


# --- picked and put ------------------------------------------------------------------------------


def put_along(input, indices, value, axis, put: Callable[[Any, Any, Any], None]):
    """Calls `put(row, places, values)` for each row along the axis, in place."""
    out = np.array(np.moveaxis(input, axis, -1), np.result_type(input, value))
    places, values = np.moveaxis(indices, axis, -1), np.moveaxis(value, axis, -1)
    for at in np.ndindex(out.shape[:-1]):
        put(out[at], places[at], values[at])
    return np.moveaxis(out, -1, axis)


def put_each(row, places, values):
    for place, value in zip(places, values, strict=True):
        row[place] = value


def scatter(input, value, indices, axis=-1):
    return put_along(input, indices, value, axis, put_each)


def scatter_add(input, value, indices, axis=-1):
    return put_along(input, indices, value, axis, np.add.at)


def last_writers(indices, size):
    out = np.full(size, -1, np.int64)
    put_each(out, np.reshape(indices, -1), range(np.size(indices)))
    return out


def nonzero(input):
    return np.argwhere(input)


def true_places(input, sizes=None):
    return np.flatnonzero(input)


def masked_fill(input, mask, value):
    return np.where(mask, value, input)


def embedding_bag(input, weight, num_embeddings=None, dim=None, reduction="mean"):
    return getattr(np, reduction)(weight[input], axis=-2)


# --- factors -------------------------------------------------------------------------------------


def qr(input):
    """The diagonal of r is not negative."""
    q, r = np.linalg.qr(input)
    signs = np.where(np.diagonal(r, axis1=-2, axis2=-1) < 0, -1.0, 1.0)
    return q * signs[..., None, :], r * signs[..., None]


def svd(input):
    """The largest component of each left vector is positive."""
    u, values, vt = np.linalg.svd(input, full_matrices=False)
    highest, lowest = (f(u, axis=-2, initial=0) for f in (np.max, np.min))
    signs = np.where(-lowest > highest, -1.0, 1.0)
    return u * signs[..., None, :], values, vt * signs[..., None]


def eigvalsh(K_term, L=None, threshold="EPSILON", *, epsilon):  # noqa: N803
    if L is not None:
        return np.diag(L)[:, None]
    bound = epsilon if isinstance(threshold, str) else threshold
    return np.maximum(np.linalg.eigvalsh((K_term + K_term.T) / 2), bound)[:, None]


ARRAYS: dict[str, Callable[..., Any]] = {
    "stack": stack,
    "chunk": chunk,
    "moveaxis": lambda input, source, destination: np.moveaxis(input, source, destination),
    "roll": lambda input, shift, axis=None: np.roll(input, shift, axis),
    "flip": lambda input, axis=None: np.flip(input, axis),
    "permute_tensor": lambda input, indices: np.take(input, indices, 0),
    "tile": lambda input, reps: np.tile(input, reps),
    "repeat_interleave": lambda input, repeats, axis=None: np.repeat(input, repeats, axis),
    "tril": lambda input, diagonal=0: np.tril(input, diagonal),
    "triu": lambda input, diagonal=0: np.triu(input, diagonal),
    "diagonal": diagonal,
    "diag": diag,
    "positional_encoding": positional_encoding,
    "linear_scan": linear_scan,
    "cumprod": lambda input, axis=-1: np.cumprod(summable(input), axis),
    "argsort": argsort,
    "sort": sort,
    "topk": topk,
    "take_along_axis": lambda input, indices, axis=-1: np.take_along_axis(input, indices, axis),
    "qr": qr,
    "svd": svd,
    "scatter": scatter,
    "scatter_add": scatter_add,
    "last_writers": last_writers,
    "nonzero": nonzero,
    "true_places": true_places,
    "masked_fill": masked_fill,
    "embedding_bag": embedding_bag,
}
