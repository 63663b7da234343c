"""`compile(check_nan=...)`: programs that count the NaN of their values, and say who made them.

The counts are one more result of the program itself, so that the check works wherever the program
runs, compiled by the framework or not.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

from mithril import _core
from mithril.errors import NotFiniteError, Place

_KINDS = {"nan": "NaN", "inf": "Inf or NaN"}


class Watch(NamedTuple):
    """A float value of a program (passes/watch_values.h)."""

    source: str  # "input", "constant", "forward", "gradient"
    name: str  # of the input, or of the op that makes it
    path: str
    file: str
    line: int
    reads: list[int]


def watched(
    program: Any, graph: Any, file_path: str | None, differentiates: bool
) -> WatchedExecutable:
    """An executable of the graph whose runs raise where an op makes the first NaN."""
    kind = program.options.check_nan
    counted, rows, ends = _core.watch_values(graph, program.outputs, kind == "inf")
    counted = program.compiled.optimize(counted)
    executable = program._plain(counted, file_path, differentiates=differentiates)
    watches = [Watch(*row) for row in rows]
    return WatchedExecutable(program, executable, watches, ends, len(graph.outputs))


class WatchedExecutable:
    """Runs as the executable in it does, and looks at the counts that it returns."""

    def __init__(
        self, program: Any, executable: Any, watches: list[Watch], ends: list[int], place: int
    ):
        self._program = program
        self._executable = executable
        self._watches = watches
        self._ends = ends
        self._place = place  # of the counts among the results
        for name in ("function", "source"):
            if hasattr(executable, name):
                setattr(self, name, getattr(executable, name))

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        return self._checked(self._executable.run(inputs))

    def run_vjp(
        self, inputs: Sequence[Any], cotangents: Sequence[Any], wrt: Sequence[int]
    ) -> tuple[list[Any], list[Any]]:
        given = list(cotangents)
        given.insert(self._place, None)
        results, gradients = self._executable.run_vjp(inputs, given, wrt)
        return self._checked(results), gradients

    def _checked(self, results: Sequence[Any]) -> list[Any]:
        rest = list(results)
        counts = self._program.options.backend.to_numpy(rest.pop(self._place))
        if counts.any():
            self._blame([int(count) for count in counts])
        return rest

    def _blame(self, counts: list[int]) -> None:
        kind = self._program.options.check_nan
        for watch, count in zip(self._watches, counts, strict=True):
            is_made = watch.source in ("forward", "gradient")
            if count and is_made and not any(counts[at] for at in watch.reads):
                raise _made(watch, count, kind)
        if not any(counts[at] for at in self._ends):
            return  # what came in does not come out
        given = ("input",) if kind == "inf" else ("input", "constant")
        for watch, count in zip(self._watches, counts, strict=True):
            if count and watch.source in given:
                raise _given(watch, count, kind)


_CURES = (
    "keep its operands where it is finite (Clamp, robust=True of losses); in training a smaller"
    " rate, or clip_norm= of the optimizer"
)


def _made(watch: Watch, count: int, kind: str) -> NotFiniteError:
    where = " in the gradient program" if watch.source == "gradient" else ""
    message = f"{watch.name}: made {count} {_KINDS[kind]}{where} of operands that have none"
    return _error(message, watch, _CURES)


def _given(watch: Watch, count: int, kind: str) -> NotFiniteError:
    what = f"input '{watch.name}'" if watch.source == "input" else "a constant"
    return _error(f"{what} holds {count} {_KINDS[kind]}, which reach the results", watch)


def _error(message: str, watch: Watch, hint: str = "") -> NotFiniteError:
    place = f"{os.path.basename(watch.file)}:{watch.line}" if watch.line else ""
    if watch.path:
        message += f"\n  in model {watch.path}" + (f" ({place})" if place else "")
    elif place:
        message += f"\n  in {place}"
    return NotFiniteError(message, hint=hint, place=Place(watch.file, watch.line, watch.path))


def check_gradients(
    program: Any, gradients: dict[str, Any], inputs: list[Any], cotangents: dict[str, Any]
) -> None:
    """Raises for NaN or inf in a framework's gradients; the engine's program finds the op."""
    from mithril.base.numpy import np

    backend, kind = program.options.backend, program.options.check_nan
    is_bad = np.isnan if kind == "nan" else lambda x: ~np.isfinite(x)
    bad = [n for n, g in gradients.items() if is_bad(backend.to_numpy(g).astype(np.float64)).any()]
    if not bad:
        return
    program.engine_gradient(inputs, cotangents, list(gradients))
    raise NotFiniteError(
        f"the gradient of '{bad[0]}' holds {_KINDS[kind]}, made by {type(backend).__name__}'s own"
        " differentiation; the engine's gradient program makes none",
        hint='compile with autodiff="engine"',
    )


__all__ = ["WatchedExecutable", "check_gradients", "watched"]
