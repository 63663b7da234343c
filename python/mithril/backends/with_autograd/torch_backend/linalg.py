"""Linear algebra on the last two axes, as emitted programs call it."""

from __future__ import annotations

import math
from functools import partial, wraps

import torch

from mithril.errors import ArgumentError

from .transforms import is_transformed


def _in_wide(function):
    """PyTorch has none of it for halves: computed in float32, rounded once."""

    @wraps(function)
    def call(*tensors, **options):
        dtype = tensors[0].dtype
        if dtype.itemsize > 2:
            return function(*tensors, **options)
        results = function(*(x.float() for x in tensors), **options)
        if isinstance(results, torch.Tensor):
            return results.to(dtype)
        return tuple(x.to(dtype) for x in results)

    return call


def _symmetric(x):
    return (x + x.mT) * 0.5


@_in_wide
def cholesky(input, upper=False):
    try:
        return torch.linalg.cholesky(_symmetric(input), upper=upper)
    except torch.linalg.LinAlgError:
        raise ArgumentError("cholesky: a matrix is not positive definite") from None


@_in_wide
def solve_triangular(matrix, right, lower=True, transposed=False):
    half = matrix.mT if transposed else matrix
    return torch.linalg.solve_triangular(half, right, upper=lower == transposed)


@_in_wide
def solve(matrix, right):
    try:
        return torch.linalg.solve(matrix, right)
    except torch.linalg.LinAlgError:
        raise ArgumentError("solve: a matrix is singular") from None


class _Det(torch.autograd.Function):
    """The determinant; its slopes are the cofactors, of singular matrices, too.

    PyTorch's own rule divides by pivots: which cofactors of singular matrices it loses depends on
    its LAPACK. Compiled and under torch.func it is that rule.
    """

    @staticmethod
    def forward(input):
        return torch.linalg.det(input)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, gradient):
        (input,) = ctx.saved_tensors
        return gradient[..., None, None] * _slopes_of_det(input)


def _slopes_of_det(input):
    if not input.numel():
        return input
    shift = _exponent(input)
    scaled = _times_power_of_two(input, -shift)
    inverse, failed = torch.linalg.inv_ex(scaled)
    with torch.no_grad():
        condition = torch.linalg.matrix_norm(scaled) * torch.linalg.matrix_norm(inverse)
        is_regular = (failed == 0) & (condition < torch.finfo(input.dtype).eps ** -0.5)
    if not is_regular.all():
        return cofactor(input)
    # The determinant itself may be beyond the numbers.
    fraction, exponent = (x[..., None, None] for x in scaled_det(scaled))
    return _times_power_of_two(fraction * inverse.mT, exponent + (input.shape[-1] - 1) * shift)


def _exponent(matrices):
    """Returns whole e with 2^e <= |x| for the largest element x of each, [..., 1, 1]."""
    largest = matrices.detach().abs().amax((-2, -1), keepdim=True)
    return torch.where((largest > 0) & largest.isfinite(), largest.log2().floor(), 0)


def _times_power_of_two(x, power):
    """Multiplies by two factors: 2^power may be beyond the numbers."""
    half = (power / 2).floor()
    return x * half.exp2() * (power - half).exp2()


@_in_wide
def det(input):
    is_plain = not input.requires_grad or torch.compiler.is_compiling() or is_transformed()
    return torch.linalg.det(input) if is_plain else _Det.apply(input)


@_in_wide
def scaled_det(input):
    sign, logarithm = torch.linalg.slogdet(input)
    fixed = logarithm.detach()
    exponent = torch.where(fixed.isinf(), 0, (fixed / math.log(2)).floor() + 1).to(input.dtype)
    return sign * torch.exp(logarithm - exponent * math.log(2)), exponent


def _of_finite(function, input):
    """Results of a batch; NaN for a matrix with NaN or infinities, which LAPACK may refuse or
    compute some results of."""
    bad = ~input.isfinite().all(-1, keepdim=True).all(-2, keepdim=True)
    results = function(input.masked_fill(bad, 0))
    return [x.masked_fill(bad if x.ndim == input.ndim else bad[..., 0], torch.nan) for x in results]


@_in_wide
def eigh(input):
    values, vectors = _of_finite(torch.linalg.eigh, _symmetric(input))
    if not vectors.numel():
        return values, vectors
    fixed = vectors.detach()
    largest = fixed.abs().argmax(-2, keepdim=True)
    return values, vectors * torch.take_along_dim(fixed, largest, -2).sign()


@_in_wide
def qr(input):
    q, r = torch.linalg.qr(input)
    signs = _signs(r.detach().diagonal(dim1=-2, dim2=-1))
    return q * signs[..., None, :], r * signs[..., None]


@_in_wide
def svd(input):
    u, values, vt = _of_finite(partial(torch.linalg.svd, full_matrices=False), input)
    if not u.numel():
        return u, values, vt
    fixed = u.detach()
    largest = fixed.abs().argmax(-2, keepdim=True)
    signs = _signs(torch.take_along_dim(fixed, largest, -2)[..., 0, :])
    return u * signs[..., None, :], values, vt * signs[..., None]


@_in_wide
def pinv(input, rtol=None):
    """PyTorch's, for it has the derivatives of matrices of one rank: those of singular vectors
    divide by differences of singular values."""
    if not input.numel():
        return input.mT
    return _of_finite(lambda x: [torch.linalg.pinv(x, rtol=rtol)], input)[0]


@_in_wide
def lstsq(matrix, right, rtol=None):
    """The solution by singular values; its derivatives are those of the pseudo-inverse."""
    if not matrix.numel():
        return matrix.mT @ right
    u, s, vt = svd(matrix.detach())
    part = max(matrix.shape[-2:]) * torch.finfo(s.dtype).eps if rtol is None else rtol
    is_large = s > part * s[..., :1]
    inverted = torch.where(is_large, 1 / torch.where(is_large, s, 1), 0)
    solution = vt.mT @ (inverted[..., None] * (u.mT @ right.detach()))
    if not (matrix.requires_grad or right.requires_grad or is_transformed()):
        return solution
    product = pinv(matrix, rtol) @ right
    return solution + (product - product.detach())


def _signs(x):
    return torch.where(x < 0, -1, 1).to(x.dtype)


@_in_wide
def cofactor(input):
    """Products of all singular values but one: nothing is divided by what may be 0."""
    u, s, vt = svd(input)
    eye = torch.eye(s.shape[-1], dtype=s.dtype, device=s.device)
    others = torch.prod(eye + (1 - eye) * s[..., None, :], -1)
    sign = torch.round(det(u) * det(vt))[..., None, None]
    return sign * ((u * others[..., None, :]) @ vt)
