"""Linear algebra on the last two axes, as emitted programs call it.

A compiled program cannot raise: what has no solution gives inf or NaN.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from .wide import in_wide

solve = in_wide(jnp.linalg.solve)
det = in_wide(jnp.linalg.det)


@in_wide
def scaled_det(input):
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


@in_wide
def eigh(input):
    values, vectors = jnp.linalg.eigh(input)
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
    u, values, vt = jnp.linalg.svd(input, full_matrices=False)
    if not u.size:
        return u, values, vt
    largest = jnp.argmax(jnp.abs(u), axis=-2, keepdims=True)
    signs = _signs(jnp.take_along_axis(u, largest, -2)[..., 0, :])
    return u * signs[..., None, :], values, vt * signs[..., None]


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
