"""Runs emitted source: the one road from a graph's text to arrays of frameworks.

What lives here is the loading of the text and the cache of gradient functions; how a framework
differentiates and compiles is in its `Backend` subclass (`_call`, `_make_vjp`, `_jit`).

For a physical model::

    forward = EmittedExecutable(backend, text, constants, jit=False, file_path=None)
    outputs = forward.run(inputs)                                  # list → list

`text` defines ``evaluate(v0, v1, …) -> tuple``: one parameter for each input of the graph and one
item for each output, both in graph order. Names do not occur in it; the caller keeps its own tuple
of keys and turns dictionaries into lists. `constants` are the values that the text calls ``C[i]``:
NumPy arrays or strings. `inputs` are arrays of the backend in the dtypes of the graph (host inputs
are Python values).

``autodiff="framework"``: compile the forward graph, and ask the framework::

    outputs, gradients = forward.run_vjp(inputs, cotangents, wrt)

`wrt` are positions of inputs; `gradients` has one array for each, zeros where nothing depends on
it. `cotangents` has an entry for each output: an array of its shape and dtype, or None where no
gradient flows from; or it is a function from the list of outputs to such a list. Outputs are
detached, plain arrays.

``autodiff="engine"``: emit the gradient graph, make a second executable of it and `run` that; its
cotangents are ordinary inputs and its gradients ordinary outputs.

`forward.function` is the pure function ``function(*inputs) -> tuple`` for `pm.as_function()`: the
framework can trace, compile and differentiate it. Executables may be used by many threads.
"""

from __future__ import annotations

import itertools
import linecache
import math
import re
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from mithril import _core
from mithril.base.files import write_text
from mithril.base.numpy import np
from mithril.errors import DataIndexError, DataOverflowError, MithrilError, OutOfMemoryError
from mithril.execution import host
from mithril.execution.primitives import Kept, OpTable, uses_primitives
from mithril.execution.profile import profiled

from . import own_ops
from .constant_lines import folded

__all__ = ["EmittedExecutable", "load_source"]

MOST_VJPS = 16  # gradient functions that one executable keeps; the oldest one goes

# What frameworks say where memory is refused, and NumPy and PyTorch of indices.
_OF_MEMORY = ("allocate memory", "out of memory", "RESOURCE_EXHAUSTED", "[malloc")
_OUT_OF_BOUNDS = re.compile(
    r"index (-?\d+) is out of bounds for (?:axis|dimension) \d+ with size (\d+)"
)

_serial = itertools.count(1)
_free_names: list[str] = []  # of texts that nothing shows any more


def _take_name() -> str:
    try:
        return _free_names.pop()
    except IndexError:
        return f"mithril_emitted_{next(_serial)}.py"


def _show_lines(function: Callable[..., Any], name: str, text: str) -> None:
    """Lets tracebacks, debuggers and `inspect.getsource` show text that is in no file, as long as
    its function lives."""
    # Without a time of change `linecache` keeps what it cannot find on disk.
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    weakref.finalize(function, _free, name).atexit = False


def _free(name: str) -> None:
    """Empties the text and frees its name. The entry stays: this runs whenever memory is
    collected, maybe while `linecache` walks through its entries, which one that is gone ends."""
    if name in linecache.cache:
        linecache.cache[name] = (0, None, [], name)
    _free_names.append(name)


def _globals(backend: Any, text: str, constants: Sequence[Any]) -> dict[str, Any]:
    """The scope of emitted text. It has no `__name__`, for it is no module: compilers that look a
    module up (torch.compile) take such a scope as it is, and keep nothing of it."""
    values = tuple(_constant(backend, c) for c in constants)
    table = profiled(backend) if _core.is_profiling() else backend.ops
    if uses_primitives(text) or own_ops.names(backend)[0]:
        table = OpTable(backend)
    return {
        "ops": table,
        "host": host,
        "C": backend._constants(values),
        "inf": math.inf,
        "nan": math.nan,
        "broadcast": host.broadcast_size,
    }


def _constant(backend: Any, value: Any) -> Any:
    """A constant as emitted text takes it: made by the class's own `tensor`, where it has one."""
    if isinstance(value, Kept):
        return value
    if isinstance(value, str) or not backend.is_manualgrad or not own_ops.makes_arrays(backend):
        return backend._constant(value)
    return np.asarray(backend.to_numpy(backend._from_host(value)), value.dtype)


def load_source(
    backend: Any, text: str, constants: Sequence[Any] = (), file_path: str | None = None
) -> Callable[..., tuple[Any, ...]]:
    """Executes `text` and returns its function `evaluate`.

    With `file_path` (a name that ends in ``.py``) the text is written there first and runs as that
    file, so that debuggers can step through it.
    """
    return _loaded(text, _globals(backend, text, constants), file_path)


def _loaded(text: str, bound: dict[str, Any], file_path: str | None) -> Callable[..., Any]:
    if file_path is None:
        name = _take_name()
        exec(compile(text, name, "exec"), bound)
        _show_lines(bound["evaluate"], name, text)
        return bound["evaluate"]
    path = Path(file_path)
    if path.suffix != ".py":
        raise ValueError(f"file_path: a name that ends in .py is required, got {path.name!r}")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"folder of file_path does not exist: {path.parent}")
    write_text("compile: file_path", path, text)
    exec(compile(text, str(path), "exec"), bound)
    return bound["evaluate"]


def _of_data(error: Exception) -> Exception:
    """A framework's exception for an index out of bounds, or for memory, as ours; others as they
    are."""
    if isinstance(error, MithrilError):
        return error
    if isinstance(error, MemoryError) or any(text in str(error) for text in _OF_MEMORY):
        return OutOfMemoryError(f"memory: {error}")
    if isinstance(error, OverflowError):
        return DataOverflowError(f"evaluate: {error}")
    found = _OUT_OF_BOUNDS.search(str(error))
    if found is None:
        return error
    return DataIndexError(f"index {found[1]} is out of bounds for an axis of size {found[2]}")


class EmittedExecutable:
    """One emitted function on one backend; the head of this file says how it is used."""

    def __init__(
        self,
        backend: Any,
        source: str,
        constants: Sequence[Any] = (),
        *,
        jit: bool = False,
        jit_options: dict[str, Any] | None = None,
        file_path: str | None = None,
        checkpoints: bool = False,
        folds: bool = False,
    ) -> None:
        self.backend = backend
        scope = _globals(backend, source, constants)
        if folds:
            source, values = folded(backend, source, scope)
            scope["C"] = backend._constants((*scope["C"], *values))
        self.source = source
        self.jit = jit
        self.function = _loaded(source, scope, file_path)
        self._jit_options = jit_options or {}
        self.compiled = self._compiled(self.function)
        # What gradients of the framework are taken of, and the same compiled.
        self.primal = backend._checkpointed(source, self.function) if checkpoints else self.function
        self.differentiated = self._compiled(self.primal) if checkpoints else self.compiled
        self._vjps: dict[tuple[tuple[int, ...], tuple[bool, ...]], Callable[..., Any]] = {}

    def _compiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return self.backend._jit(function, **self._jit_options) if self.jit else function

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """The outputs, as plain arrays that share no memory with `inputs`."""
        try:
            return self.backend._call(self.compiled, inputs)
        except (IndexError, RuntimeError, MemoryError, OverflowError) as error:
            raise _of_data(error) from None

    def run_vjp(
        self,
        inputs: Sequence[Any],
        cotangents: Sequence[Any] | Callable[[list[Any]], Sequence[Any]],
        wrt: Sequence[int],
    ) -> tuple[list[Any], list[Any]]:
        """The outputs, and the gradient of each input whose position is in `wrt`."""
        if callable(cotangents):
            cotangents = cotangents(self.run(inputs))
        key = (tuple(wrt), tuple(c is not None for c in cotangents))
        vjp = self._vjps.get(key)
        if vjp is None:
            vjp = self.backend._make_vjp(self, *key)
            while len(self._vjps) >= MOST_VJPS:
                self._vjps.pop(next(iter(self._vjps)), None)
            self._vjps[key] = vjp
        try:
            return vjp(inputs, [c for c in cotangents if c is not None])
        except (IndexError, RuntimeError, MemoryError, OverflowError) as error:
            raise _of_data(error) from None
