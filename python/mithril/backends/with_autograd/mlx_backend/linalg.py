"""Linear algebra on the last two axes, as emitted programs call it.

MLX ends the process where LAPACK refuses a matrix, and where one has no elements, so none of those
reaches it: other matrices take their places, and their results are NaN. A program that runs line by
line then raises; one that MLX traces cannot. Gradients are the rules of csrc/ops/linalg.cc, for MLX
has none of them.
"""

from __future__ import annotations

import math
from functools import cache, wraps

import mlx.core as mx

from mithril.errors import ArgumentError

from .special import constant, exp
from .utils import evaluated

# ------------------------------------------------------------------------------ what all share


def _with(gradient):
    """A function with rules of its own: the gradient that is given, and what follows from it.

    Forwards moves what transposes the gradient, which is linear in cotangents. What is mapped over
    is one more axis of the batch: MLX maps inverses of triangles as those of whole matrices, and
    may end the process by it (0.32). It cannot map the factors that the others are made of.
    """

    def decorate(function):
        @mx.custom_function
        def call(*operands):
            return function(*map(mx.stop_gradient, operands))

        call.vjp(gradient)

        @call.jvp
        def moved(operands, tangents):
            outputs = call(*_listed(operands))
            along = [
                mx.zeros_like(x) if t is None else t
                for x, t in zip(_listed(operands), _listed(tangents), strict=True)
            ]

            def back(*cotangents):
                single = isinstance(outputs, mx.array)
                cotangent = cotangents[0] if single else cotangents
                return _listed(gradient(operands, cotangent, outputs))

            at = [mx.zeros_like(y) for y in _listed(outputs)]
            results = mx.vjp(back, at, along)[1]
            return results[0] if isinstance(outputs, mx.array) else tuple(results)

        @call.vmap
        def mapped(operands, axes):
            pairs = list(zip(_listed(operands), _listed(axes), strict=True))
            count = next(x.shape[axis] for x, axis in pairs if axis is not None)
            results = call(*(_axis_first(x, axis, count) for x, axis in pairs))
            return results, 0 if isinstance(results, mx.array) else (0,) * len(results)

        return call

    return decorate


def _listed(x):
    return list(x) if isinstance(x, tuple | list) else [x]


def _axis_first(x, axis, count):
    return mx.moveaxis(x, axis, 0) if axis is not None else mx.broadcast_to(x, (count, *x.shape))


def _in_wide(function):
    """Computes 16-bit floats, which LAPACK lacks, in float32 and rounds once."""

    @wraps(function)
    def call(*arrays, **options):
        dtype = arrays[0].dtype
        if dtype.size > 2:
            return function(*arrays, **options)
        results = function(*(x.astype(mx.float32) for x in arrays), **options)
        if isinstance(results, mx.array):
            return results.astype(dtype)
        return tuple(x.astype(dtype) for x in results)

    return call


def _transposed(x):
    return mx.swapaxes(x, -1, -2)


def _symmetric(x):
    return (x + _transposed(x)) * 0.5


def _diagonal(x):
    return mx.diagonal(x, axis1=-2, axis2=-1)


def _eye_like(x):
    return mx.eye(x.shape[-1], dtype=x.dtype)


def _spoiled(bad, x):
    """Returns `x` with NaN where `bad` holds."""
    return mx.where(bad, constant(math.nan, x.dtype), x)


def _not_finite(x):
    return ~mx.all(mx.isfinite(x), (-1, -2), keepdims=True)


def _refuse(bad, message):
    """Raises if any is bad, where that can be known."""
    found = mx.any(bad)
    if evaluated(mx, found) and found.item():
        raise ArgumentError(message)


def _over(x, divisor):
    """x / divisor, and 0 for 0 / 0: what asks for no gradient of vectors gets none."""
    return x / mx.where((x == 0) & (divisor == 0), 1, divisor)


# ------------------------------------------------------------------------ triangular, Cholesky


def _substituted(matrix, right, upper):
    """Solves a triangular system; a zero on the diagonal makes its row and later ones NaN."""
    zero = (_diagonal(matrix) == 0)[..., None]
    regular = mx.where(zero & (_eye_like(matrix) != 0), 1, matrix)
    y = mx.linalg.solve_triangular(regular, right, upper=upper, stream=mx.cpu)
    return _spoiled(mx.cumsum(zero.astype(mx.int32), -2, reverse=upper) > 0, y)


def _solve_lower_gradient(operands, cotangent, out):
    dright = _solve_upper(_transposed(operands[0]), cotangent)
    return mx.tril(-(dright @ _transposed(out))), dright


@_with(_solve_lower_gradient)
def _solve_lower(matrix, right):
    return _substituted(matrix, right, False)


def _solve_upper_gradient(operands, cotangent, out):
    dright = _solve_lower(_transposed(operands[0]), cotangent)
    return mx.triu(-(dright @ _transposed(out))), dright


@_with(_solve_upper_gradient)
def _solve_upper(matrix, right):
    return _substituted(matrix, right, True)


@_in_wide
def solve_triangular(matrix, right, lower=True, transposed=False):
    if right.size == 0:
        return right
    half = _transposed(matrix) if transposed else matrix
    return (_solve_lower if lower != transposed else _solve_upper)(half, right)


def _cholesky_gradient(_, cotangent, lower):
    product = _transposed(lower) @ mx.tril(cotangent)
    phi = mx.tril(product) - 0.5 * product * _eye_like(lower)
    left = _solve_upper(_transposed(lower), phi)
    return _solve_upper(_transposed(lower), _transposed(left))


@_with(_cholesky_gradient)
def _cholesky(x):
    lower = mx.linalg.cholesky(x, stream=mx.cpu)
    # LAPACK stops at the first number on the diagonal that has no root, and leaves it there.
    bad = ~mx.all(_diagonal(lower) > 0, -1)[..., None, None]
    _refuse(bad, "cholesky: a matrix is not positive definite")
    return _spoiled(bad, lower)


@_in_wide
def cholesky(input, upper=False):
    if input.size == 0:
        return input
    lower = _cholesky(_symmetric(input))
    return _transposed(lower) if upper else lower


# ---------------------------------------------------------------------- solutions, determinants


def _factored(factor, x):
    """Returns MLX's factors of matrices, and a mask of the matrices that are not finite.

    A single matrix becomes a batch of one: else MLX's factors report a wrong size (0.32).
    """
    bad = _not_finite(x)
    regular = mx.where(bad, _eye_like(x), x)
    if x.ndim > 2:
        return *factor(regular, stream=mx.cpu), bad
    return *(y[0] for y in factor(regular[None], stream=mx.cpu)), bad


def _solve_gradient(operands, cotangent, out):
    dright = _solve(_transposed(operands[0]), cotangent)
    return -(dright @ _transposed(out)), dright


@_with(_solve_gradient)
def _solve(matrix, right):
    places, lower, upper, bad = _factored(mx.linalg.lu, matrix)
    _refuse(_diagonal(upper) == 0, "solve: a matrix is singular")
    rows = mx.broadcast_to(mx.argsort(places, -1)[..., None], right.shape)
    y = _substituted(lower, mx.take_along_axis(right, rows, -2), False)
    return _spoiled(bad, _substituted(upper, y, True))


@_in_wide
def solve(matrix, right):
    return right if right.size == 0 else _solve(matrix, right)


def _cofactors(x):
    """Returns the cofactors by products of all singular values but one: no division by 0."""
    u, s, vt = svd(x)
    eye = _eye_like(x)
    others = mx.prod(eye + (1 - eye) * s[..., None, :], -1)
    sign = mx.round(_det(u) * _det(vt))[..., None, None]
    return sign * ((u * others[..., None, :]) @ vt)


def _det_gradient(x, cotangent, out):
    return cotangent[..., None, None] * _cofactors(x)


def _pivots(x):
    """The pivots of elimination, whether rows were exchanged an odd number of times, and which
    matrices have no result."""
    factors, rows, bad = _factored(mx.linalg.lu_factor, x)
    exchanges = mx.sum(rows != mx.arange(x.shape[-1]), -1)
    return _diagonal(factors), exchanges % 2 != 0, bad[..., 0, 0]


@_with(_det_gradient)
def _det(x):
    pivots, is_odd, bad = _pivots(x)
    product = mx.prod(pivots, -1)
    return _spoiled(bad, mx.where(is_odd, -product, product))


@_in_wide
def det(input):
    return mx.ones(input.shape[:-2], input.dtype) if input.size == 0 else _det(input)


def _scaled_det_gradient(x, cotangents, outputs):
    along = cotangents[0] * outputs[0]
    eye = mx.broadcast_to(_eye_like(x), x.shape)
    return along[..., None, None] * _transposed(_solve(x, eye))


@_with(_scaled_det_gradient)
def _scaled_det(x):
    pivots, is_odd, bad = _pivots(x)
    product = mx.prod(mx.sign(pivots), -1)
    sign = mx.where(is_odd, -product, product)
    logarithm = mx.sum(mx.log(mx.abs(pivots)), -1)
    log2 = constant(math.log(2), x.dtype)
    exponent = mx.where(mx.isinf(logarithm), 0, mx.floor(logarithm / log2) + 1)
    fraction = sign * exp(logarithm - exponent * log2)
    return _spoiled(bad, fraction), _spoiled(bad, exponent)


@_in_wide
def scaled_det(input):
    if input.size == 0:
        ones = mx.ones(input.shape[:-2], input.dtype)
        return ones * 0.5, ones
    return _scaled_det(input)


# ------------------------------------------------------------- eigenvalues and singular values


def _tame(x):
    """Returns x divided by a power of two, so that its largest element is about 1, and that power:
    LAPACK does not converge for some matrices of very large and very small numbers. Also returns
    which matrices are not finite; zeros take their places."""
    bad = _not_finite(x)
    x = mx.where(bad, 0, x)
    largest = mx.max(mx.abs(x), (-1, -2), keepdims=True)
    exponent = mx.floor(mx.log2(mx.where(largest == 0, 1, largest)))
    scale = mx.power(constant(2, x.dtype), exponent)
    return x / scale, scale, bad


def _signs(x):
    return mx.where(x < 0, constant(-1, x.dtype), constant(1, x.dtype))


def _signs_of_largest(vectors):
    """Returns the sign of the largest element of each column, [..., 1, n]."""
    largest = mx.argmax(mx.abs(vectors), -2, keepdims=True)
    return _signs(mx.take_along_axis(vectors, largest, -2))


def _eigh_gradient(_, cotangents, outputs):
    (dvalues, dvectors), (w, v) = cotangents, outputs
    eye = _eye_like(v)
    product = (1 - eye) * (_transposed(v) @ dvectors)
    gaps = w[..., None, :] - w[..., :, None]
    inner = dvalues[..., None, :] * eye + _over(product, gaps + eye)
    return v @ inner @ _transposed(v)


@_with(_eigh_gradient)
def _eigh(x):
    x, scale, bad = _tame(x)
    values, vectors = mx.linalg.eigh(x, stream=mx.cpu)
    vectors = vectors * _signs_of_largest(vectors)
    return _spoiled(bad[..., 0], values * scale[..., 0]), _spoiled(bad, vectors)


@_in_wide
def eigh(input):
    if input.size == 0:
        return mx.zeros(input.shape[:-1], input.dtype), input
    return _eigh(_symmetric(input))


def _svd_gradient(x, cotangents, outputs):
    (du, dvalues, dvt), (u, s, vt) = cotangents, outputs
    n, k = x.shape[-2:]
    row, column = s[..., None, :], s[..., :, None]
    of_u, of_v = _transposed(u) @ du, vt @ _transposed(dvt)
    inner = dvalues[..., None, :] * mx.eye(s.shape[-1], dtype=s.dtype)
    inner = inner + _over_gaps(of_u, s) * row + column * _over_gaps(of_v, s)
    dx = u @ inner @ vt
    if n > k:
        dx = dx + _over(du - u @ of_u, row) @ vt
    if k > n:
        dx = dx + u @ _over(dvt - _transposed(of_v) @ vt, column)
    return dx


@_with(_svd_gradient)
def _svd(x):
    x, scale, bad = _tame(x)
    u, values, vt = _thin_svd(x)
    signs = _signs_of_largest(u)
    u, vt = u * signs, vt * _transposed(signs)
    return _spoiled(bad, u), _spoiled(bad[..., 0], values * scale[..., 0]), _spoiled(bad, vt)


def _thin_svd(x):
    """Computes the thin SVD, by QR of a long matrix first: MLX has only the full one."""
    n, k = x.shape[-2:]
    if n < k:
        u, values, vt = _thin_svd(_transposed(x))
        return _transposed(vt), values, _transposed(u)
    if n == k:
        return mx.linalg.svd(x, stream=mx.cpu)
    q, r = mx.linalg.qr(x, stream=mx.cpu)
    u, values, vt = mx.linalg.svd(r, stream=mx.cpu)
    return q @ u, values, vt


def _over_gaps(x, s):
    """Returns (x - its transpose) / (s_j² - s_i²), with 0 on the diagonal."""
    gaps = (s * s)[..., None, :] - (s * s)[..., :, None]
    return _over(x - _transposed(x), gaps + _eye_like(x))


@_in_wide
def svd(input):
    if input.size == 0:
        return _empty_factors(input, lambda batch, p: (*batch, p))
    return _svd(input)


def _factors_inverted(x, rtol):
    """Returns the factors u and vt, and 1 / s; 0 instead where s counts as 0."""
    u, s, vt = _svd(x)
    part = max(x.shape[-2:]) * mx.finfo(s.dtype).eps if rtol is None else rtol
    is_large = s > constant(part, s.dtype) * s[..., :1]
    return u, mx.where(is_large, 1 / mx.where(is_large, s, 1), 0), vt


@cache
def _pinv_with(rtol):
    def gradient(x, dy, p):
        pt, dyt = _transposed(p), _transposed(dy)
        left, right = dyt @ p @ pt, pt @ p @ dyt
        return left - x @ (p @ left) + right - (right @ p) @ x - pt @ dy @ pt

    @_with(gradient)
    def call(x):
        u, inverted, vt = _factors_inverted(x, rtol)
        return (_transposed(vt) * inverted[..., None, :]) @ _transposed(u)

    return call


@_in_wide
def pinv(input, rtol=None):
    return _transposed(input) if input.size == 0 else _pinv_with(rtol)(input)


@cache
def _lstsq_with(rtol):
    def gradient(operands, dy, y):
        x, right = operands
        p = _pinv_with(rtol)(x)
        pt = _transposed(p)
        dright = pt @ dy
        dx = (right - x @ y) @ _transposed(p @ dright) - dright @ _transposed(y)
        return dx + (pt @ y) @ _transposed(dy - p @ (x @ dy)), dright

    @_with(gradient)
    def call(x, right):
        u, inverted, vt = _factors_inverted(x, rtol)
        return _transposed(vt) @ (inverted[..., None] * (_transposed(u) @ right))

    return call


@_in_wide
def lstsq(matrix, right, rtol=None):
    return _transposed(matrix) @ right if matrix.size == 0 else _lstsq_with(rtol)(matrix, right)


def _empty_factors(x, *between):
    """Returns the factors of a matrix without elements: [..., n, p], those between, [..., p, k]."""
    *batch, n, k = x.shape
    p = min(n, k)
    shapes = ((*batch, n, p), *(shape(batch, p) for shape in between), (*batch, p, k))
    return tuple(mx.zeros(shape, x.dtype) for shape in shapes)


# ------------------------------------------------------------------------------------------- QR


def _qr_gradient(x, cotangents, outputs):
    (dq, dr), (q, r) = cotangents, outputs
    n, k = x.shape[-2:]
    if k <= n:
        return _tall_qr_cotangent(q, r, dq, dr)
    # x = [x1 x2], q [r1 r2]: q comes from x1 alone, and r2 = qᵀ x2.
    (_, x2), (r1, _), (dr1, dr2) = (mx.split(y, [n], -1) for y in (x, r, dr))
    first = _tall_qr_cotangent(q, r1, dq + x2 @ _transposed(dr2), dr1)
    return mx.concatenate([first, q @ dr2], -1)


@_with(_qr_gradient)
def _qr(x):
    q, r = mx.linalg.qr(x, stream=mx.cpu)
    signs = _signs(_diagonal(r))
    return q * signs[..., None, :], r * signs[..., None]


def _tall_qr_cotangent(q, r, dq, dr):
    lower = mx.tril(r @ _transposed(mx.triu(dr)) - _transposed(dq) @ q)
    mirrored = lower + _transposed(lower) - lower * _eye_like(lower)
    return _transposed(_solve_upper(r, _transposed(dq + q @ mirrored)))


@_in_wide
def qr(input):
    return _empty_factors(input) if input.size == 0 else _qr(input)


@_in_wide
def cofactor(input):
    return input if input.size == 0 else _cofactors(input)
