"""`jax.jit` for functions of which some arguments are Python values."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

MOST_VALUES = 16  # of Python, that a function is compiled for


@functools.cache
def _allow_holders(jax: Any) -> None:
    """Lets compiled functions return values that are not arrays."""
    jax.tree_util.register_static(_Held)


class NotAdmittedError(Exception):
    """Arrays of shapes or dtypes that nobody has checked yet."""


class _Held:
    """A result that is no array, as part of a program."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Held) and repr(self.value) == repr(other.value)

    def __hash__(self) -> int:
        return hash(repr(self.value))


class ArrayJit:
    """A function compiled for its arrays, NumPy's too; other arguments are part of the program.

    For more than `MOST_VALUES` of these others it runs line by line: a program each would take more
    time and memory than it saves. Results that are no arrays come back as they were.

    The context of `scope` counts while JAX traces it, so that calls need not enter one.
    """

    def __init__(
        self,
        jax: Any,
        function: Callable[..., Any],
        options: dict[str, Any],
        scope: Callable[[], Any],
    ) -> None:
        _allow_holders(jax)
        self._jax = jax
        self._function = function
        self._options = options
        self._scope = scope
        self._holds = False  # whether there are results that are no arrays
        self._values: set[str] = set()  # other arguments that there are programs for
        self._plain = type(jax.device_put(0.0))  # `isinstance` with jax.Array takes a microsecond
        self._compiled: dict[tuple[int, ...], Callable[..., Any]] = {}
        self._admitted: set[tuple] = set()
        self.quick = jax.jit(self._checked, **options)

    def __call__(self, *arguments: Any) -> Any:
        static = tuple([i for i, x in enumerate(arguments) if self._is_static(x)])
        if not static:
            self._admitted.add(self._signature(arguments))
            return self._taken_out(self.quick(*arguments))
        if not self._keeps(static, arguments):
            return self._traced(*arguments, hold=False)
        if static not in self._compiled:
            self._compiled[static] = self._jax.jit(
                self._traced, static_argnums=static, **self._options
            )
        return self._taken_out(self._compiled[static](*arguments))

    def _keeps(self, static: tuple[int, ...], arguments: tuple[Any, ...]) -> bool:
        """Tells whether a program for these Python values exists or may still be compiled."""
        values = repr([(i, arguments[i]) for i in static])
        if values not in self._values and len(self._values) < MOST_VALUES:
            self._values.add(values)
        return values in self._values

    def _taken_out(self, results: Any) -> Any:
        return _without_holders(results) if self._holds else results

    def takes_quickly(self, *arguments: Any) -> bool:
        """Tells whether all arguments are JAX arrays, so that `quick` takes them: JAX looks up the
        program, and `quick` raises `NotAdmittedError` for new shapes or dtypes."""
        plain = self._plain
        if self._holds:
            return False
        for x in arguments:  # noqa: SIM110 - `all` takes three times as long
            if x.__class__ is not plain:
                return False
        return True

    def _traced(self, *arguments: Any, hold: bool = True) -> Any:
        with self._scope():
            results = self._function(*arguments)
        return self._held(results) if hold else results

    def _held(self, results: Any) -> Any:
        """Wraps results that are not arrays, so that they become part of the program."""
        if isinstance(results, tuple | list):
            return type(results)(self._held(item) for item in results)
        if results is None or isinstance(results, self._jax.Array | np.ndarray):
            return results
        self._holds = True
        return _Held(results)

    def _checked(self, *arguments: Any) -> Any:
        if self._signature(arguments) not in self._admitted:
            raise NotAdmittedError
        return self._traced(*arguments)

    def _signature(self, arguments: tuple[Any, ...]) -> tuple:
        narrow = self._jax.dtypes.canonicalize_dtype
        return tuple([(narrow(x.dtype), x.shape) for x in arguments])

    def _is_static(self, x: Any) -> bool:
        return x.__class__ is not self._plain and not isinstance(x, np.ndarray | self._jax.Array)


def _without_holders(results: Any) -> Any:
    if isinstance(results, tuple | list):
        return type(results)(map(_without_holders, results))
    return results.value if isinstance(results, _Held) else results
