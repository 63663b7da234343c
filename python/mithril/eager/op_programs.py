"""Models of one op, compiled and cached, for methods whose op the backend has no function for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mithril import models
from mithril.base.arrays import is_device_array, laid_out
from mithril.errors import UnsupportedError
from mithril.execution.own_ops import paused
from mithril.logical.connection import IOKey
from mithril.logical.model import Model
from mithril.physical.compilation import compilation_of
from mithril.physical.compile import compile as compile_model
from mithril.types import Dtype

MOST_PROGRAMS = 256  # that one backend keeps; the oldest one goes


def run(
    backend: Any,
    kind: tuple[Any, ...],
    make: Callable[[], Any],
    arrays: Mapping[str, Any],
    is_data_dependent: bool = False,
) -> Any:
    """Runs the model that `make` builds on arrays by name; returns its output or a tuple of them.

    Equal kinds are equal models. `is_data_dependent`: the data say how many elements there are.
    """
    flat = {name: value for name, value in arrays.items() if not isinstance(value, list)}
    for name, value in arrays.items():
        if isinstance(value, list):
            flat |= {f"{name}_{i}": item for i, item in enumerate(value)}
    types = {name: (backend.shape(x), backend.dtype(x)) for name, x in flat.items()}
    runs_on = backend._runs_ops(flat.values(), is_data_dependent)
    program = _program(runs_on, (*kind, tuple(types.items())), make, arrays, types)
    values = [cast(backend, flat[key.name], key.dtype) for key in program.inputs]
    function = getattr(program.forward, "function", None)
    if function is None:
        results = program.forward.run(
            [
                x if is_device_array(x) else laid_out(x, key.dtype)
                for key, x in zip(program.inputs, values, strict=True)
            ]
        )
    else:
        with backend._scope_of_dtypes(dtype for _, dtype in types.values()):
            # Not `run`: results stay part of what the framework traces.
            results = [backend._as_array(x) for x in function(*values)]
    results = results[: len(program.outputs)]
    return results[0] if len(results) == 1 else tuple(results)


def cast(backend: Any, array: Any, dtype: Dtype) -> Any:
    """The array in that dtype, as part of what the framework traces."""
    if backend.dtype(array) is dtype:
        return array
    if is_device_array(array):
        return run(backend, ("cast", dtype), lambda: models.Cast(dtype), {"input": array})
    with backend._scope_of_dtypes((backend.dtype(array), dtype)):
        return backend._as_array(backend.ops.astype(array, backend._table_dtype(dtype)))


def _program(
    backend: Any,
    key: tuple[Any, ...],
    make: Callable[[], Any],
    arrays: Mapping[str, Any],
    types: Mapping[str, tuple[tuple[int, ...], Dtype]],
) -> Any:
    programs = backend.__dict__.setdefault("_op_programs", {})
    if key not in programs:
        while len(programs) >= MOST_PROGRAMS:
            programs.pop(next(iter(programs)))
        with paused(str(key[0])):
            programs[key] = _compile(backend, make(), arrays, types)
    return programs[key]


def _compile(
    backend: Any,
    model: Any,
    arrays: Mapping[str, Any],
    types: Mapping[str, tuple[tuple[int, ...], Dtype]],
) -> Any:
    wires: dict[str, Any] = {}
    for name, value in arrays.items():
        if isinstance(value, list):
            wires[name] = [IOKey(f"{name}_{i}") for i in range(len(value))]
    if wires:
        single = model
        wires |= {name: name for name in arrays if name not in wires}
        model = Model()
        model |= single.connect(**wires, output="output")
    compiled = compile_model(
        model,
        backend,
        data_keys=list(types),
        shapes={name: shape for name, (shape, _) in types.items()},
        types={name: dtype for name, (_, dtype) in types.items()},
        inference=True,
        jit=False,
    )
    program = compilation_of(compiled).program
    if program is None:
        raise UnsupportedError(
            f"{type(model).__name__}: its operands do not fix the ranks of its results"
        )
    program.output_shapes([types[key.name][0] for key in program.inputs if key.is_tensor])
    return program
