"""Linear algebra on the last two axes, as emitted programs call it."""

from __future__ import annotations

import torch

from mithril.errors import ArgumentError


def _symmetric(x):
    return (x + x.mT) * 0.5


def cholesky(input):
    try:
        return torch.linalg.cholesky(_symmetric(input))
    except torch.linalg.LinAlgError:
        raise ArgumentError("cholesky: a matrix is not positive definite") from None


def solve_triangular(matrix, right, lower=True, transposed=False):
    half = matrix.mT if transposed else matrix
    return torch.linalg.solve_triangular(half, right, upper=lower == transposed)


def solve(matrix, right):
    try:
        return torch.linalg.solve(matrix, right)
    except torch.linalg.LinAlgError:
        raise ArgumentError("solve: a matrix is singular") from None


det = torch.linalg.det


def eigh(input):
    values, vectors = torch.linalg.eigh(_symmetric(input))
    if not vectors.numel():
        return values, vectors
    fixed = vectors.detach()
    largest = fixed.abs().argmax(-2, keepdim=True)
    return values, vectors * torch.take_along_dim(fixed, largest, -2).sign()


def qr(input):
    q, r = torch.linalg.qr(input)
    signs = _signs(r.detach().diagonal(dim1=-2, dim2=-1))
    return q * signs[..., None, :], r * signs[..., None]


def svd(input):
    u, values, vt = torch.linalg.svd(input, full_matrices=False)
    if not u.numel():
        return u, values, vt
    fixed = u.detach()
    largest = fixed.abs().argmax(-2, keepdim=True)
    signs = _signs(torch.take_along_dim(fixed, largest, -2)[..., 0, :])
    return u * signs[..., None, :], values, vt * signs[..., None]


def _signs(x):
    return torch.where(x < 0, -1, 1).to(x.dtype)
