"""Linear algebra on the last two axes, as emitted programs call it.

A compiled program cannot raise: what has no solution gives inf or NaN.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

cholesky = jnp.linalg.cholesky  # of the symmetric part, as is eigh
solve = jnp.linalg.solve
det = jnp.linalg.det


def solve_triangular(matrix, right, lower=True, transposed=False):
    return jax.lax.linalg.triangular_solve(
        matrix, right, left_side=True, lower=lower, transpose_a=transposed
    )


def eigh(input):
    values, vectors = jnp.linalg.eigh(input)
    if not vectors.size:
        return values, vectors
    fixed = jax.lax.stop_gradient(vectors)
    largest = jnp.argmax(jnp.abs(fixed), axis=-2, keepdims=True)
    return values, vectors * jnp.sign(jnp.take_along_axis(fixed, largest, -2))
