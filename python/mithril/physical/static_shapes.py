"""`static_shapes=True`: the shapes of the first call hold for all."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mithril import _core
from mithril.errors import ShapeError, UnsupportedError
from mithril.physical.conversion import as_numpy
from mithril.physical.program import Program

if TYPE_CHECKING:
    from mithril.physical.compilation import Compilation


class StaticShapes:
    """Remembers the shapes of the data of the first call, and where it was made."""

    def __init__(self, compilation: Compilation):
        self._compilation = compilation
        self._first: dict[str, tuple[int, ...]] = {}
        self._where = ""
        self._lock = threading.Lock()
        self._sized: Any = None  # the program of these shapes, where it has to know them

    def check(self, data: Any) -> None:
        """Raises ShapeError for a shape that is not that of the first call."""
        if not isinstance(data, Mapping):
            return  # told by evaluate
        keys = self._compilation.by_name
        given = {n: _shape(v, n) for n, v in data.items() if n in keys and keys[n].is_tensor}
        with self._lock:
            if not self._first:
                self._first = given
                file, line = _core.user_location()
                self._where = f"{file}:{line}"
                return
        for name, shape in given.items():
            first = self._first.get(name, shape)
            if shape != first:
                raise ShapeError(
                    f"evaluate: '{name}' has shape {list(shape)}, and static_shapes=True fixed"
                    f" {list(first)} at the first call ({self._where})",
                    code="MTH108",
                )

    def program(self, general: Any) -> Any:
        """The program to run: text that computes values again is made for sizes."""
        is_open = self._first and not general.is_native
        if not (is_open and self._compilation.options.gradient_checkpointing):
            return general
        with self._lock:
            if self._sized is None:
                shapes = {name: list(shape) for name, shape in self._first.items()}
                compilation = self._compilation
                self._sized = Program(compilation.compile(shapes, {}), compilation.options)
            return self._sized


def check_checkpoints(compilation: Compilation) -> None:
    """Raises UnsupportedError where text that computes values again would be made for sizes that
    nobody said: every call for gradients would fail."""
    options = compilation.options
    needs_sizes = options.gradient_checkpointing and not options.static_shapes
    if not needs_sizes or options.inference or compilation.open_ranks is not None:
        return  # programs of open ranks may have the sizes of a call
    if compilation.runs_plans(compilation.compiled):
        return
    shapes = (shape for shape, _ in compilation.compiled.solve({}))
    tensors = [pair for pair in zip(compilation.keys, shapes, strict=True) if pair[0].is_tensor]
    found = [key for key, shape in tensors if key.role == "data" and None in (shape or ())]
    named = ", ".join(f"'{key.name}' is {key.shape_text}" for key in found)
    if named and compilation.trainable_keys:
        raise UnsupportedError(
            f"gradient_checkpointing: {type(options.backend).__name__} decides for known sizes what"
            f" to compute again, but {named}",
            hint="give the sizes in shapes=, or static_shapes=True for those of the first call; a"
            " smaller last batch is left out, or goes to a model compiled for its size",
        )


def _shape(value: Any, name: str) -> tuple[int, ...]:
    shape = getattr(value, "shape", None)
    return tuple(shape) if isinstance(shape, tuple) else as_numpy(value, name).shape
