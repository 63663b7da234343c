"""Facts of a backend that the engine needs, and facts of a graph that a backend needs."""

from __future__ import annotations

import functools
from typing import Any

from mithril import _core
from mithril.execution import own_ops
from mithril.execution.primitives import has_gradient, has_primitives, is_primitive, op_names


def calls_python(graph: Any) -> bool:
    """Tells whether a graph has ops that are Python functions: a user's or a backend class's."""
    return any(is_primitive(op) or own_ops.is_own(op) for op, *_ in graph.nodes(inner=True))


def python_ops(compiled: Any) -> list[tuple[str, str, str, int]]:
    """Lists the Python functions of a model's graph: op, path, file and line."""
    return [node for node in compiled.graph.nodes(inner=True) if is_primitive(node[0])]


def runs_natively(compiled: Any, backend: Any) -> bool:
    """Tells whether plans can run the model: no op is a Python function."""
    graphs = [compiled.graph] if has_primitives() else []
    if own_ops.are_brought(backend):
        graphs += [compiled.typed, compiled.forward]
    return not any(map(calls_python, graphs))


def brings_gradient(compiled: Any, backend: Any) -> bool:
    """Tells whether the model has an op with a gradient that the framework cannot be told: one of
    the backend's class, or, on frameworks that take none, one of the user's."""
    is_told = getattr(backend, "with_gradient", None) is not None or not has_primitives()
    if is_told and not own_ops.are_brought(backend):
        return False
    return any(
        own_ops.is_gradient(op) or (not is_told and is_primitive(op) and has_gradient(backend, op))
        for op, *_ in compiled.typed.nodes(inner=True)
    )


def dynamic_features(graph: Any) -> set[str]:
    """Returns what depends on data: "branches" that run, "masks" that choose elements."""
    found = {"branches"} if graph.has_op("cond") or graph.has_op("while_loop") else set()
    return found | {"masks"} if graph.has_data_sizes() else found


def target_of(backend: Any, native: bool = True) -> dict[str, Any]:
    """Describes a backend to the engine (ir::Target)."""
    native = native and backend.runs_plans
    functions, gradients = ({}, {}) if native else own_ops.names(backend)
    return {
        "native": native,
        "name": backend.engine_target if native else backend.backend_type,
        "default_float": str(backend.default_dtype),
        "default_int": str(backend.default_int),
        "compute_float": backend.compute_dtype and str(backend.compute_dtype),
        "keeps_whole": [] if native else _kept_whole(backend, bool(functions)),
        "own_functions": functions,
        "own_gradients": gradients,
    }


def _kept_whole(backend: Any, brings_functions: bool) -> list[str]:
    """Lists the ops that emitted text calls, and does not compose of others."""
    whole = backend.op_names - _composites() if brings_functions else backend.op_names
    return [*sorted(whole), *op_names(backend), *own_ops.emitted_names(backend)]


@functools.cache
def _composites() -> frozenset[str]:
    """Ops that are made of others, which a backend's class may bring."""
    compose = 1
    return frozenset(op["name"] for op in _core.ops() if op["body"] == compose)


__all__ = [
    "brings_gradient",
    "calls_python",
    "dynamic_features",
    "runs_natively",
    "target_of",
]
