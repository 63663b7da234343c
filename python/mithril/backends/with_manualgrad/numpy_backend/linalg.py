"""Linear algebra on the last two axes, as emitted programs call it."""

from __future__ import annotations

from functools import partial, wraps

import numpy as np

from mithril.errors import ArgumentError


def _in_wide(function):
    """NumPy has none of it for halves: computed in float32, rounded once."""

    @wraps(function)
    def call(*arrays, **options):
        dtype = arrays[0].dtype
        if dtype.itemsize > 2:
            return function(*arrays, **options)
        results = function(*(x.astype(np.float32) for x in arrays), **options)
        if isinstance(results, tuple):
            return tuple(x.astype(dtype) for x in results)
        return results.astype(dtype)

    return call


def _symmetric(x):
    return (x + np.swapaxes(x, -1, -2)) * x.dtype.type(0.5)


@_in_wide
def cholesky(input, upper=False):
    try:
        lower = np.linalg.cholesky(_symmetric(input))
        return np.swapaxes(lower, -1, -2) if upper else lower
    except np.linalg.LinAlgError:
        raise ArgumentError("cholesky: a matrix is not positive definite") from None


def solve_triangular(matrix, right, lower=True, transposed=False):
    half = np.tril(matrix) if lower else np.triu(matrix)
    if transposed:
        half = np.swapaxes(half, -1, -2)
    rows = range(half.shape[-1])
    out = np.zeros_like(right)
    with np.errstate(divide="ignore", invalid="ignore"):
        for i in rows if lower != transposed else reversed(rows):
            known = (half[..., i : i + 1, :] @ out)[..., 0, :]
            out[..., i, :] = (right[..., i, :] - known) / half[..., i, i, None]
    return out


@_in_wide
def solve(matrix, right):
    try:
        return np.linalg.solve(matrix, right)
    except np.linalg.LinAlgError:
        raise ArgumentError("solve: a matrix is singular") from None


@_in_wide
def det(input):
    return np.asarray(np.linalg.det(input))


@_in_wide
def scaled_det(input):
    sign, logarithm = np.linalg.slogdet(input)
    with np.errstate(invalid="ignore"):
        exponent = np.where(np.isinf(logarithm), 0, np.floor(logarithm / np.log(2)) + 1)
    exponent = exponent.astype(input.dtype)
    rest = logarithm - exponent * np.log(input.dtype.type(2))
    return np.asarray(sign * np.exp(rest)), np.asarray(exponent)


@_in_wide
def cofactor(input):
    """Products of all singular values but one: nothing is divided by what may be 0."""
    u, s, vt = svd(input)
    eye = np.eye(s.shape[-1], dtype=s.dtype)
    others = np.prod(eye + (1 - eye) * s[..., None, :], -1)
    sign = np.round(det(u) * det(vt))[..., None, None]
    return sign * ((u * others[..., None, :]) @ vt)


def _of_finite(function, input):
    """Results of a batch; NaN for a matrix with NaN or infinities, which LAPACK may refuse."""
    bad = ~np.isfinite(input).all((-1, -2), keepdims=True)
    if not bad.any():
        return function(input)
    results = function(np.where(bad, 0, input))
    return [np.where(bad if x.ndim == input.ndim else bad[..., 0], np.nan, x) for x in results]


@_in_wide
def eigh(input):
    values, vectors = _of_finite(np.linalg.eigh, _symmetric(input))
    if not vectors.size:
        return values, vectors
    largest = np.argmax(np.abs(vectors), axis=-2, keepdims=True)
    return values, vectors * np.sign(np.take_along_axis(vectors, largest, -2))


@_in_wide
def qr(input):
    q, r = np.linalg.qr(input)
    signs = np.where(np.diagonal(r, axis1=-2, axis2=-1) < 0, -1, 1).astype(input.dtype)
    return q * signs[..., None, :], r * signs[..., None]


@_in_wide
def svd(input):
    u, values, vt = _of_finite(partial(np.linalg.svd, full_matrices=False), input)
    if not u.size:
        return u, values, vt
    largest = np.argmax(np.abs(u), axis=-2, keepdims=True)
    signs = np.where(np.take_along_axis(u, largest, -2)[..., 0, :] < 0, -1, 1).astype(input.dtype)
    return u * signs[..., None, :], values, vt * signs[..., None]
