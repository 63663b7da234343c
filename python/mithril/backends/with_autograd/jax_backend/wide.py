"""Support of float16 and bfloat16 for functions that JAX has for wider floats only."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import jax
import jax.numpy as jnp


def in_wide(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a function so that 16-bit floats are computed in float32 and rounded once."""

    @wraps(function)
    def call(*operands: Any, **options: Any) -> Any:
        dtype = next(x.dtype for x in operands if hasattr(x, "dtype"))
        if not jnp.issubdtype(dtype, jnp.floating) or dtype.itemsize > 2:
            return function(*operands, **options)
        arrays = (x.astype(jnp.float32) if hasattr(x, "dtype") else x for x in operands)
        return jax.tree.map(lambda y: y.astype(dtype), function(*arrays, **options))

    return call
