"""`jax.jit` for functions of which some arguments are Python values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def jit_arrays(
    jax: Any, function: Callable[..., Any], options: dict[str, Any]
) -> Callable[..., Any]:
    """Compiles `function` for its arrays, NumPy's too; other arguments are part of the program."""
    compiled: dict[tuple[int, ...], Callable[..., Any]] = {}
    plain = type(jax.device_put(0.0))  # `isinstance` with jax.Array takes a microsecond

    def is_static(x: Any) -> bool:
        return x.__class__ is not plain and not isinstance(x, np.ndarray | jax.Array)

    def call(*arguments: Any) -> Any:
        static = tuple([i for i, x in enumerate(arguments) if is_static(x)])
        if static not in compiled:
            compiled[static] = jax.jit(function, static_argnums=static or None, **options)
        return compiled[static](*arguments)

    return call
