"""Runs models on the engine's own plans and kernels; arrays are NumPy's."""

from __future__ import annotations

from typing import Any

from mithril import _core
from mithril.backends.with_manualgrad.plan_backend import PlanBackend
from mithril.base.public import public
from mithril.types import Dtype, DTypeLike

__all__ = ["CpuBackend"]


class CpuBackend(PlanBackend):
    """The native engine on the CPU, with NumPy arrays in and out.

    Parameters
    ----------
    device : only "cpu".
    dtype : float16, bfloat16, float32 (default) or float64; what floats are stored in. Halves are
        computed in float32.
    threads : how many threads a call may use; None: those of the process (MITHRIL_THREADS).
    seed : of the backend's random numbers.
    compute_precision : the float type of mixed precision (docs/low_precision.md): a half beside
        float32 as `dtype`, or float32 beside a half; None: `dtype` alone.

    Methods such as ``backend.add`` are NumPy's; compiled models run on the engine.
    """

    backend_type = engine_target = "cpu"
    packs_weights = True

    @public
    def __init__(
        self,
        device: str = "cpu",
        dtype: DTypeLike = Dtype.float32,
        *,
        threads: int | None = None,
        seed: int = 0,
        compute_precision: DTypeLike | None = None,
    ) -> None:
        super().__init__(device, dtype, threads, seed, compute_precision)
        self._pool = None if threads is None else _core.ThreadPool(threads)

    @property
    def isa(self) -> str:
        """The instruction set whose kernels run: "generic", "avx2" or "avx512"."""
        return _core.cpu_isa()

    def _native_program(
        self, graph: Any, exact_conv: bool, canonical: bool, weights: str, **options: Any
    ) -> Any:
        return _core.CpuProgram(
            graph,
            self._pool,
            exact_conv=exact_conv,
            canonical=canonical,
            weights=weights,
            **options,
        )
