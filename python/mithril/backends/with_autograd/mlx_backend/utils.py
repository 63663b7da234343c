"""`mx.compile` for functions with Python values among arguments and results, where it works."""

from __future__ import annotations

import collections
import contextlib
import contextvars
import functools
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from mithril.errors import OutOfMemoryError

# Whether models compute their results before they return them, in this thread or task.
waits: contextvars.ContextVar[bool] = contextvars.ContextVar("waits", default=True)
MOST_SIGNATURES = 64  # of one compiled function; the one used longest ago goes
_TRACING = "[eval] Attempting to eval an array during function transformations"


def evaluated(mx: Any, arrays: Any) -> bool:
    """Computes arrays; returns whether it did: MLX cannot while it traces."""
    try:
        mx.eval(arrays)
    except ValueError as error:
        if not str(error).startswith(_TRACING):
            raise
        return False
    return True


@contextlib.contextmanager
def without_waiting() -> Iterator[None]:
    """A context in which models return lazy arrays."""
    before = waits.set(False)
    try:
        yield
    finally:
        waits.reset(before)


@functools.cache
def _memory() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def check_memory(arrays: Sequence[Any]) -> None:
    """Refuses arrays that memory cannot hold before they are computed: MLX would end the process.

    Raises
    ------
    OutOfMemoryError
    """
    total = sum(array.nbytes for array in arrays)
    if total > _memory():
        raise OutOfMemoryError(
            f"memory: results take {total / 1e9:.1f} GB, and this machine has "
            f"{_memory() / 1e9:.1f} GB"
        )


def vjp(
    mx: Any, function: Callable[..., list[Any]], leaves: Sequence[Any], cotangents: Sequence[Any]
) -> list[Any]:
    """Gradients of what a function of `leaves` returns, for a cotangent of each result.

    Of an array that is returned twice MLX 0.32 takes one cotangent; here they are added.
    """
    results: list[Any] = []

    def noted(*arguments: Any) -> list[Any]:
        results[:] = function(*arguments)
        return list(results)

    gradients = mx.vjp(noted, leaves, cotangents)[1]
    sums: dict[int, Any] = {}  # by where a result stands first
    for result, cotangent in zip(results, cotangents, strict=True):
        place = next(i for i, other in enumerate(results) if other is result)
        sums[place] = sums[place] + cotangent if place in sums else cotangent
    if len(sums) < len(results):
        distinct = lambda *arguments: [function(*arguments)[place] for place in sums]  # noqa: E731
        gradients = mx.vjp(distinct, leaves, list(sums.values()))[1]
    return list(gradients)


@functools.cache
def missing_compiler() -> str | None:
    """Says why `mx.compile` cannot run here, or None: on CPUs it calls g++ at the first run."""
    import mlx.core as mx

    if mx.default_device().type != mx.DeviceType.cpu:
        return None
    if shutil.which("g++") is None:
        return "MLX compiles with g++, which is not here"
    try:
        mx.eval(mx.compile(lambda x: mx.abs(x) + x)(mx.array(1.0)))
    except RuntimeError as error:
        return f"MLX's compiler does not work here ({str(error).splitlines()[0][:120]})"
    return None


class CompiledArrays:
    """`function` compiled for its arrays; other arguments are part of the program.

    MLX keeps the arrays of a program only, so results that are no arrays are those of the trace,
    which is why there is a program for each signature.
    """

    def __init__(self, mx: Any, function: Callable[..., Any], options: dict[str, Any]) -> None:
        self._mx, self._function, self._options = mx, function, options
        self._programs: collections.OrderedDict[Any, Any] = collections.OrderedDict()

    def __call__(self, *arguments: Any) -> Any:
        return self.program(arguments)(*arguments)

    def program(self, arguments: Sequence[Any]) -> _Program:
        """Returns the program for arguments like these; compiles it if there is none yet."""
        array, programs = self._mx.array, self._programs
        signature = tuple(
            (x.dtype, *x.shape) if isinstance(x, array) else repr(x) for x in arguments
        )
        program = programs.get(signature)
        if program is None:
            program = _Program(self._mx, self._function, arguments, self._options)
            programs[signature] = program
            while len(programs) > MOST_SIGNATURES:
                programs.popitem(last=False)
        return program


class _Program:
    """A function compiled for arguments of one signature."""

    def __init__(
        self, mx: Any, function: Callable[..., Any], sample: Sequence[Any], options: Any
    ) -> None:
        self._array = mx.array
        self._is_array = [isinstance(x, mx.array) for x in sample]
        self._template: Any = None

        def on_arrays(*arrays: Any) -> list[Any]:
            given = iter(arrays)
            merged = (next(given) if is_array else x for is_array, x in fixed)
            leaves: list[Any] = []
            self._template = _without_arrays(mx.array, function(*merged), leaves)
            return leaves

        fixed = [(b, None if b else x) for b, x in zip(self._is_array, sample, strict=True)]
        self._compiled = mx.compile(on_arrays, **options)

    def __call__(self, *arguments: Any) -> Any:
        arrays = (x for x, is_array in zip(arguments, self._is_array, strict=True) if is_array)
        leaves = self._compiled(*arrays)  # the first time it makes the template
        return _with_arrays(self._template, iter(leaves))

    def of_arrays(self) -> Callable[..., Sequence[Any]]:
        """Returns a faster function for arguments like the sample, once this one was called: the
        compiled one where all arguments and results are arrays, else this object."""
        only_arrays = all(self._is_array) and all(x is _HOLE for x in self._template)
        return self._compiled if only_arrays else self


class _Hole:
    """A marker for the place of an array in a template."""


_HOLE = _Hole()


def _without_arrays(array: type, value: Any, leaves: list[Any]) -> Any:
    """A tuple, list or leaf with holes for the arrays, which go to `leaves`."""
    if isinstance(value, tuple | list):
        return type(value)(_without_arrays(array, item, leaves) for item in value)
    if not isinstance(value, array):
        return value
    leaves.append(value)
    return _HOLE


def _with_arrays(template: Any, leaves: Any) -> Any:
    if isinstance(template, tuple | list):
        return type(template)(_with_arrays(item, leaves) for item in template)
    return next(leaves) if template is _HOLE else template
