"""The common base of backends that run plans of the engine on NumPy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mithril import _core
from mithril.backends.with_manualgrad.numpy_backend.backend import NumpyBackend
from mithril.errors import ArgumentError, DTypeError, SignatureError
from mithril.types import DTypeLike, as_dtype

__all__ = ["PlanBackend"]

_MOST_THREADS = 1024


class PlanBackend(NumpyBackend):
    """Plans, gradients and training steps are the engine's; who runs a plan is the subclass's.

    Methods such as ``backend.add`` are NumPy's.
    """

    runs_plans = True
    engine_target: str  # the engine's name for what runs them
    threads: int | None
    _pool: Any = None  # threads of the engine that belong to the backend

    def __init__(
        self,
        device: str,
        dtype: DTypeLike,
        threads: int | None,
        seed: int,
        compute_precision: DTypeLike | None,
    ) -> None:
        name, wanted = type(self).__name__, as_dtype(dtype)
        if not wanted.is_float:
            raise DTypeError(f"{name}: dtype requires a float type, got {wanted}")
        if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int)):
            raise SignatureError(f"{name}: threads requires an integer, got {threads!r}")
        if threads is not None and not 1 <= threads <= _MOST_THREADS:
            raise ArgumentError(f"{name}: threads requires 1 to {_MOST_THREADS}, got {threads}")
        super().__init__(device, wanted, seed=seed, compute_precision=compute_precision)
        self.threads = threads

    def _program(
        self,
        graph: Any,
        trace: Any = None,
        passes_off: Sequence[str] = (),
        exact_conv: bool = False,
        canonical: bool = False,
        recorder: Any = None,
        weights: str = "",
        overwrites: Sequence[tuple[str, str]] = (),
        memory_limit: int | None = None,
        rematerializes: bool = False,
    ) -> Any:
        """An executable of a graph (physical/program.py); `overwrites`: outputs, each with the
        input whose array it overwrites; `rematerializes`: less memory for a third more FLOPs."""
        if weights and not self.packs_weights:
            graph, weights = _core.dequantize_weights(graph, weights), ""
        options = {
            "trace": trace,
            "passes_off": list(passes_off),
            "recorder": recorder or _core.Recorder(),
            "memory_limit": memory_limit,
            "rematerializes": rematerializes,
        }

        def program(part: Any, overwritten: Sequence[tuple[str, str]]) -> Any:
            return self._native_program(
                part, exact_conv, canonical, weights, overwrites=list(overwritten), **options
            )

        segments = _core.cut_at_sizes(graph)
        if not segments:
            return program(graph, overwrites)
        programs = [program(segment.graph, ()) for segment in segments[:-1]]
        last = segments[-1]
        there = [(output, name) for output, name in overwrites if last.has_input(name)]
        programs.append(program(last.graph, there))
        return _core.SegmentedProgram(graph, segments, programs)

    def _native_program(
        self, graph: Any, exact_conv: bool, canonical: bool, weights: str, **options: Any
    ) -> Any:
        """The engine's object that runs the graph; `options` are those that all of them take."""
        raise NotImplementedError
