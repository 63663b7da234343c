"""`jax.jit` for functions of which some arguments are Python values."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from mithril.types import Dtype


@functools.cache
def _allow_dtypes(jax: Any) -> None:
    """Functions that are compiled may return dtypes."""
    jax.tree_util.register_static(Dtype)


class NotAdmittedError(Exception):
    """Arrays of shapes or dtypes that nobody has checked yet."""


class ArrayJit:
    """A function compiled for its arrays, NumPy's too; other arguments are part of the program.

    The context of `scope` counts while JAX traces it, so that calls need not enter one.
    """

    def __init__(
        self,
        jax: Any,
        function: Callable[..., Any],
        options: dict[str, Any],
        scope: Callable[[], Any],
    ) -> None:
        _allow_dtypes(jax)
        self._jax = jax
        self._function = function
        self._options = options
        self._scope = scope
        self._plain = type(jax.device_put(0.0))  # `isinstance` with jax.Array takes a microsecond
        self._compiled: dict[tuple[int, ...], Callable[..., Any]] = {}
        self._admitted: set[tuple] = set()
        self.quick = jax.jit(self._checked, **options)

    def __call__(self, *arguments: Any) -> Any:
        static = tuple([i for i, x in enumerate(arguments) if self._is_static(x)])
        if not static:
            self._admitted.add(self._signature(arguments))
            return self.quick(*arguments)
        if static not in self._compiled:
            self._compiled[static] = self._jax.jit(
                self._traced, static_argnums=static, **self._options
            )
        return self._compiled[static](*arguments)

    def takes_quickly(self, *arguments: Any) -> bool:
        """Whether these are arguments for `quick`, which lets JAX look for the program: it raises
        `NotAdmittedError` while tracing for arrays unlike all that came by the other way."""
        plain = self._plain
        for x in arguments:  # noqa: SIM110 - `all` takes three times as long
            if x.__class__ is not plain:
                return False
        return True

    def _traced(self, *arguments: Any) -> Any:
        with self._scope():
            return self._function(*arguments)

    def _checked(self, *arguments: Any) -> Any:
        if self._signature(arguments) not in self._admitted:
            raise NotAdmittedError
        return self._traced(*arguments)

    def _signature(self, arguments: tuple[Any, ...]) -> tuple:
        narrow = self._jax.dtypes.canonicalize_dtype
        return tuple([(narrow(x.dtype), x.shape) for x in arguments])

    def _is_static(self, x: Any) -> bool:
        return x.__class__ is not self._plain and not isinstance(x, np.ndarray | self._jax.Array)
