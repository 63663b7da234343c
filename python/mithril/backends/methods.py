"""Ops as methods of a backend where its `ops` has no function: each runs as a model of one op."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mithril.errors import SignatureError, UnsupportedError
from mithril.types import MISSING, TBD, Dtype

from ._recording import is_symbolic, record

MOST_PROGRAMS = 256  # that one backend keeps; the oldest one goes

# Methods whose arguments are those of a layer: ints, pairs, "same".
LAYERS = {
    "conv2d": "convolution2d",
    "max_pool2d": "max_pooling2d",
    "avg_pool2d": "avg_pooling2d",
    "batch_norm": "batch_norm2d",
}
_SYNONYMS = {"filters": "weight", "strides": "stride"}


def find(backend: Any, name: str) -> Callable[..., Any] | None:
    """The method of that name, or None where there is no such op."""
    entry = _entry(LAYERS.get(name, name))
    if entry is None or not entry["python_name"]:
        return None
    return functools.partial(_call, backend, entry)


@functools.cache
def _entry(name: str) -> dict[str, Any] | None:
    try:
        from mithril import _core
    except ImportError:  # a source tree that was not built
        return None
    return next((op for op in _core.ops() if name in (op["name"], *op["aliases"])), None)


def _call(backend: Any, entry: dict[str, Any], *operands: Any, **named: Any) -> Any:
    if any(map(is_symbolic, (*operands, *named.values()))):
        return record(entry["name"], operands, {_SYNONYMS.get(k, k): v for k, v in named.items()})
    arrays, attributes = _bind(backend, entry, operands, named)
    program = _program(backend, entry, arrays, attributes)
    values = [
        arrays[key.name]
        if backend.dtype(arrays[key.name]) is key.dtype
        else backend.cast(arrays[key.name], key.dtype)
        for key in program.inputs
    ]
    function = getattr(program.forward, "function", None)
    if function is None:
        return program.forward.run(values)[0]
    with backend._scope():  # not `run`: the result stays part of what the framework traces
        return backend._as_array(function(*values)[0])


def _bind(
    backend: Any, entry: dict[str, Any], operands: Sequence[Any], named: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Operands by name, in the order in which layers are connected: arrays, and all else."""
    inputs = {definition["name"]: definition for definition in entry["inputs"]}
    values = {_SYNONYMS.get(name, name): value for name, value in named.items()}
    order = [name for name in entry["connect_order"] if name in inputs and name not in values]
    if len(operands) > len(order):
        raise SignatureError(
            f"{entry['name']} takes {len(order)} operands ({', '.join(order)}), got {len(operands)}"
        )
    values |= dict(zip(order, operands, strict=False))
    arrays = {}
    for name, definition in inputs.items():
        if values.get(name) is not None and _is_data(backend, definition, values[name]):
            value = values.pop(name)
            arrays[name] = value if backend._is_native(value) else backend.tensor(value)
        if definition["when"]:
            values.setdefault(definition["when"], name in arrays)
    return arrays, values


def _is_data(backend: Any, definition: dict[str, Any], value: Any) -> bool:
    if definition["is_key"] or "tensor" not in definition["type"]:
        return False
    is_array = backend._is_native(value) or isinstance(value, np.ndarray | np.generic | list)
    return is_array or definition["default"] is MISSING


def _program(
    backend: Any, entry: dict[str, Any], arrays: dict[str, Any], attributes: dict[str, Any]
) -> Any:
    types = {name: (backend.shape(x), backend.dtype(x)) for name, x in arrays.items()}
    key = (entry["name"], tuple(types.items()), repr(sorted(attributes.items())))
    programs = backend.__dict__.setdefault("_op_programs", {})
    if key not in programs:
        while len(programs) >= MOST_PROGRAMS:
            programs.pop(next(iter(programs)))
        programs[key] = _compile(backend, entry, types, attributes)
    return programs[key]


def _compile(
    backend: Any,
    entry: dict[str, Any],
    types: dict[str, tuple[tuple[int, ...], Dtype]],
    attributes: dict[str, Any],
) -> Any:
    from mithril import models
    from mithril.compile import compile as compile_model

    defaults = {i["name"] for i in entry["inputs"] if i["default"] is not MISSING}
    opened = dict.fromkeys(defaults & types.keys(), TBD)  # given as arrays: no default holds
    model = getattr(models, entry["python_name"])(**attributes, **opened)
    compiled = compile_model(
        model,
        backend,
        data_keys=list(types),
        shapes={name: shape for name, (shape, _) in types.items()},
        types={name: models.Tensor[_kind(dtype)] for name, (_, dtype) in types.items()},
        inference=True,
        jit=False,
    )
    if compiled._program is None:
        raise UnsupportedError(f"{entry['name']}: its operands do not fix the ranks of its results")
    return compiled._program


def _kind(dtype: Dtype) -> type:
    if dtype is Dtype.bool:
        return bool
    return float if dtype.is_float else int
