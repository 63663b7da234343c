"""Linear algebra on the last two axes, as emitted programs call it.

A compiled program cannot raise: what has no solution gives inf or NaN.
"""

from __future__ import annotations

import math
from functools import partial

import jax
import jax.numpy as jnp

from .wide import in_wide

solve = in_wide(jnp.linalg.solve)


@jax.custom_jvp
def _det(input):
    return jnp.linalg.det(input)


@_det.defjvp
def _det_jvp(operands, tangents):
    """The slopes of a determinant may be numbers where it is none: they are those of the matrix
    divided by a power of two there."""
    (input,) = operands
    value = _det(input)
    least = jnp.finfo(input.dtype).tiny / jnp.finfo(input.dtype).eps
    is_ordinary = jnp.isfinite(value) & (jnp.abs(value) > least)
    shift = jnp.where(is_ordinary[..., None, None], 0, _exponent(input))
    scaled = _times_power_of_two(input, -shift)
    _, tangent = jax.jvp(jnp.linalg.det, (scaled,), tangents)
    return value, _times_power_of_two(tangent, (input.shape[-1] - 1) * shift[..., 0, 0])


def _exponent(matrices):
    """Returns whole e with 2^e <= |x| for the largest element x of each, [..., 1, 1]."""
    largest = jnp.abs(jax.lax.stop_gradient(matrices)).max((-2, -1), keepdims=True)
    return jnp.where((largest > 0) & jnp.isfinite(largest), jnp.floor(jnp.log2(largest)), 0)


def _times_power_of_two(x, power):
    """Multiplies by two factors: 2^power may be beyond the numbers."""
    half = jnp.floor(power / 2)
    return x * jnp.exp2(half) * jnp.exp2(power - half)


# Outside of `jit` a custom_jvp inspects its function's signature at every call.
_compiled_det = jax.jit(_det)


@in_wide
def det(input):
    return _compiled_det(input) if input.size else jnp.linalg.det(input)


@in_wide
def scaled_det(input):
    if input.shape[-1] == 2:  # JAX multiplies elements there, which may overflow
        input = jnp.pad(input, [(0, 0)] * (input.ndim - 2) + [(0, 1), (0, 1)])
        input = input.at[..., 2, 2].set(1)
    sign, logarithm = jnp.linalg.slogdet(input)
    fixed = jax.lax.stop_gradient(logarithm)
    exponent = jnp.where(jnp.isinf(fixed), 0, jnp.floor(fixed / math.log(2)) + 1)
    exponent = exponent.astype(input.dtype)
    return sign * jnp.exp(logarithm - exponent * math.log(2)), exponent


@in_wide
def cholesky(input, upper=False):
    return jnp.linalg.cholesky(input, upper=upper)  # of the symmetric part, as is eigh


@in_wide
def solve_triangular(matrix, right, lower=True, transposed=False):
    return jax.lax.linalg.triangular_solve(
        matrix, right, left_side=True, lower=lower, transpose_a=transposed
    )


def _of_finite(function, input):
    """Results of a batch; NaN for a matrix with NaN or infinities."""
    bad = ~jnp.isfinite(input).all((-1, -2), keepdims=True)
    results = function(jnp.where(bad, 0, input))
    return [jnp.where(bad if x.ndim == input.ndim else bad[..., 0], jnp.nan, x) for x in results]


@in_wide
def eigh(input):
    values, vectors = _of_finite(jnp.linalg.eigh, input)
    if not vectors.size:
        return values, vectors
    fixed = jax.lax.stop_gradient(vectors)
    largest = jnp.argmax(jnp.abs(fixed), axis=-2, keepdims=True)
    return values, vectors * jnp.sign(jnp.take_along_axis(fixed, largest, -2))


@in_wide
def qr(input):
    q, r = jnp.linalg.qr(input)
    signs = _signs(jnp.diagonal(r, axis1=-2, axis2=-1))
    return q * signs[..., None, :], r * signs[..., None]


@in_wide
def svd(input):
    u, values, vt = _of_finite(partial(jnp.linalg.svd, full_matrices=False), input)
    if not u.size:
        return u, values, vt
    largest = jnp.argmax(jnp.abs(u), axis=-2, keepdims=True)
    signs = _signs(jnp.take_along_axis(u, largest, -2)[..., 0, :])
    return u * signs[..., None, :], values, vt * signs[..., None]


@in_wide
def pinv(input, rtol=None):
    """JAX's, for it has the derivatives of matrices of one rank: those of singular vectors divide
    by differences of singular values."""
    if not input.size:
        return input.mT
    return _of_finite(lambda x: [jnp.linalg.pinv(x, rtol=_rtol(x, rtol))], input)[0]


def _rtol(input, rtol):
    return max(input.shape[-2:]) * jnp.finfo(input.dtype).eps if rtol is None else rtol


@partial(jax.custom_jvp, nondiff_argnums=(2,))
def _lstsq(matrix, right, rtol):
    u, s, vt = svd(matrix)
    is_large = s > _rtol(matrix, rtol) * s[..., :1]
    inverted = jnp.where(is_large, 1 / jnp.where(is_large, s, 1), 0)
    return vt.mT @ (inverted[..., None] * (u.mT @ right))


@_lstsq.defjvp
def _lstsq_jvp(rtol, operands, tangents):
    """The derivatives are those of the pseudo-inverse, the solution is that by singular values."""
    _, tangent = jax.jvp(lambda matrix, right: pinv(matrix, rtol) @ right, operands, tangents)
    return _lstsq(*operands, rtol), tangent


_compiled_lstsq = jax.jit(_lstsq, static_argnums=2)


@in_wide
def lstsq(matrix, right, rtol=None):
    return _compiled_lstsq(matrix, right, rtol) if matrix.size else matrix.mT @ right


def _signs(x):
    return jax.lax.stop_gradient(jnp.where(x < 0, -1, 1).astype(x.dtype))


@in_wide
def cofactor(input):
    """Products of all singular values but one: nothing is divided by what may be 0."""
    u, s, vt = svd(input)
    eye = jnp.eye(s.shape[-1], dtype=s.dtype)
    others = jnp.prod(eye + (1 - eye) * s[..., None, :], -1)
    sign = jnp.round(det(u) * det(vt))[..., None, None]
    return sign * ((u * others[..., None, :]) @ vt)
