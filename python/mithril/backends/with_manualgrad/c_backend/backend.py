"""Runs models as C99 text that the system's compiler compiled; arrays are NumPy's."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from mithril import _core
from mithril.backends.with_manualgrad.c_backend.utils import Compiler
from mithril.backends.with_manualgrad.object_cache import ObjectCache
from mithril.backends.with_manualgrad.plan_backend import PlanBackend
from mithril.base.checks import checked_bool
from mithril.base.public import public
from mithril.errors import UnsupportedError
from mithril.types import Dtype, DTypeLike

__all__ = ["CBackend"]


class CBackend(PlanBackend):
    """Plans of the engine as C99 text, compiled by the system's C compiler.

    Parameters
    ----------
    device : only "cpu".
    dtype : float16, bfloat16, float32 (default) or float64; what floats are stored in. Halves are
        computed in float32.
    compiler : name or path of a C compiler; None: the first of cc, gcc and clang that is there.
    flags : what optimizes, as text or a list, instead of "-O3 -march=native". The flags that bits
        depend on (``-std=c99 -ffp-contract=off …``) are always there; others may not change
        results, the text or what comes out.
    threads : how many threads of OpenMP a call may use; results do not depend on it.
    cache : whether compiled objects are kept on disk for other processes, in ``~/.cache/mithril``
        or the folder in MITHRIL_CACHE_DIR (256 MB at most; the ones used longest ago go).
    seed : of the backend's random numbers.
    compute_precision : the float type of mixed precision (docs/low_precision.md): a half beside
        float32 as `dtype`, or float32 beside a half; None: `dtype` alone.

    A program is compiled at the first call with its sizes. Results have the bits of `CpuBackend`
    wherever both run canonical kernels (docs/numerics.md), as all are with
    ``deterministic="portable"``.
    Methods such as ``backend.add`` and ``backend.grad`` run on NumPy and the engine.

    Raises
    ------
    DeviceNotAvailable : there is no such compiler
    ArgumentError : a flag is not of those kinds
    CompilerError : it fails on a small program, or makes another one of it; a call raises it where
        it fails on the model's

    >>> import mithril as ml
    >>> pm = ml.compile(ml.Relu(), CBackend(), shapes={"input": [3]})
    >>> pm.evaluate({}, {"input": [-1.0, 0.0, 2.0]})["output"]
    array([0., 0., 2.], dtype=float32)
    """

    backend_type = engine_target = "c"
    _ops_module = "mithril.backends.with_manualgrad.c_backend.ops"
    _methods_run_on = "cpu"  # operations of other shapes each time are not worth a compiler's time
    compiles_each_program = True
    threads: int

    @public
    def __init__(
        self,
        device: str = "cpu",
        dtype: DTypeLike = Dtype.float32,
        *,
        compiler: str | os.PathLike[str] | None = None,
        flags: str | Iterable[str] | None = None,
        threads: int = 1,
        cache: bool = True,
        seed: int = 0,
        compute_precision: DTypeLike | None = None,
    ) -> None:
        super().__init__(device, dtype, threads, seed, compute_precision)
        self.cache = checked_bool("CBackend: cache", cache)
        self._compiler = Compiler.found(compiler, flags, threads)
        self._objects = ObjectCache.of_user("c") if self.cache else ObjectCache.of_process()

    @property
    def compiler(self) -> str:
        """The path of the C compiler."""
        return self._compiler.path

    @property
    def flags(self) -> tuple[str, ...]:
        """All flags that it gets."""
        return self._compiler.flags

    def _build(self, text: str, name: str) -> str:
        """The path of a shared object of a C text; the engine calls it and loads the result."""
        key = self._compiler.key_of(text)
        return self._objects.path(key, lambda: self._compiler.shared_object(text, name))

    def _native_program(
        self, graph: Any, exact_conv: bool, canonical: bool, weights: str, **options: Any
    ) -> Any:
        """Only convolutions have a kernel that is not canonical, and no weights are packed."""
        return _core.CProgram(
            graph, self._build, exact_conv=exact_conv, threads=self.threads, **options
        )


class TextOnly(CBackend):
    """Prints the C text of programs and compiles none: it needs no compiler."""

    def __init__(self, dtype: DTypeLike = Dtype.float32) -> None:
        PlanBackend.__init__(self, "cpu", dtype, 1, 0, None)

    def __repr__(self) -> str:
        return f"CBackend(dtype={str(self.default_dtype)!r})"

    def _build(self, text: str, name: str) -> str:
        raise UnsupportedError(f"{self!r} prints text: nothing can be run")
