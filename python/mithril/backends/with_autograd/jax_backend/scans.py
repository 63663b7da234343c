"""Functions along one axis that emitted programs call: recurrences, sorts and loops."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from .wide import in_wide

_INT = jnp.int32


@in_wide
def linear_scan(factor, input, axis=-1, reverse=False):
    """y[i] = factor[i] * y[i - 1] + input[i], from y[0] = input[0] on."""
    if input.shape[axis] == 0:
        return input
    a, x = (jnp.moveaxis(operand, axis, 0) for operand in (factor, input))
    a, x = (jnp.flip(operand, 0) if reverse else operand for operand in (a, x))

    def step(before, at):
        y = at[0] * before + at[1]
        return y, y

    _, rest = jax.lax.scan(step, x[0], (a[1:], x[1:]))
    y = jnp.concatenate([x[:1], rest])
    return jnp.moveaxis(jnp.flip(y, 0) if reverse else y, 0, axis)


@in_wide
def cumprod(input, axis=-1):
    return jnp.cumprod(input, axis, dtype=input.dtype)


def argsort(input, axis=-1, descending=False, stable=True):
    """Returns the indices that sort an axis; stable, with NaN as the largest value."""
    if not descending:
        return jnp.argsort(input, axis, stable=True)
    # Backwards, so that equal elements come out in their order when the result is turned around.
    places = jnp.flip(jnp.argsort(jnp.flip(input, axis), axis, stable=True), axis)
    return input.shape[axis] - 1 - places


def last_writers(indices, size):
    """Returns for each place the position of the last index that names it, or -1."""
    flat = indices.reshape(-1)
    return jnp.full(size, -1, _INT).at[flat].max(jnp.arange(flat.size, dtype=_INT))


def true_places(input, sizes=None):
    """Returns the row-major places where a mask is true."""
    return jnp.flatnonzero(input).astype(_INT)


def nonzero(input):
    """Returns the places of the elements that are not 0, as an array [count, rank]."""
    return jnp.argwhere(input).astype(_INT)


def scan(step, carries, xs, constants, ys, length, reverse):
    """Returns the last carries and the stacked outputs of `step(*carries, *places, *constants)`."""
    count = len(carries)

    def one(state, places):
        results = step(*state, *places, *constants)
        return tuple(results[:count]), tuple(results[count:])

    start = tuple(jnp.asarray(carry) for carry in carries)
    last, kept = jax.lax.scan(one, start, tuple(xs), length=length, reverse=reverse)
    return (*last, *kept)


def cond(taken, other, constants, predicate):
    """Returns the result of `taken` where the predicate holds, else that of `other`."""
    if not isinstance(predicate, jax.core.Tracer):
        return (taken if bool(predicate) else other)(*constants)
    operands = tuple(jnp.asarray(x) for x in constants)
    return jax.lax.cond(
        predicate, lambda *x: tuple(taken(*x)), lambda *x: tuple(other(*x)), *operands
    )


def while_loop(condition, step, carries, constants):
    """Runs `step` while the condition holds; returns the carries for which it does not."""
    start = tuple(jnp.asarray(carry) for carry in carries)
    return jax.lax.while_loop(
        lambda state: condition(*state, *constants)[0],
        lambda state: tuple(step(*state, *constants)),
        start,
    )
