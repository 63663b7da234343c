"""Linear algebra on the last two axes, as emitted programs call it."""

from __future__ import annotations

import numpy as np

from mithril.errors import ArgumentError


def _symmetric(x):
    return (x + np.swapaxes(x, -1, -2)) * x.dtype.type(0.5)


def cholesky(input):
    try:
        return np.linalg.cholesky(_symmetric(input))
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


def solve(matrix, right):
    try:
        return np.linalg.solve(matrix, right)
    except np.linalg.LinAlgError:
        raise ArgumentError("solve: a matrix is singular") from None


def det(input):
    return np.asarray(np.linalg.det(input))


def eigh(input):
    values, vectors = np.linalg.eigh(_symmetric(input))
    if not vectors.size:
        return values, vectors
    largest = np.argmax(np.abs(vectors), axis=-2, keepdims=True)
    return values, vectors * np.sign(np.take_along_axis(vectors, largest, -2))


def qr(input):
    q, r = np.linalg.qr(input)
    signs = np.where(np.diagonal(r, axis1=-2, axis2=-1) < 0, -1, 1).astype(input.dtype)
    return q * signs[..., None, :], r * signs[..., None]


def svd(input):
    u, values, vt = np.linalg.svd(input, full_matrices=False)
    if not u.size:
        return u, values, vt
    largest = np.argmax(np.abs(u), axis=-2, keepdims=True)
    signs = np.where(np.take_along_axis(u, largest, -2)[..., 0, :] < 0, -1, 1).astype(input.dtype)
    return u * signs[..., None, :], values, vt * signs[..., None]
