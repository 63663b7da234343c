"""Arrays of one element where a model has a number: they are taken as it, and the gradient gets
their shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mithril.physical.open_ranks import shape_of

Shapes = dict[str, tuple[int, ...]]


def single_numbers(compilation: Any, params: Mapping[str, Any]) -> Shapes:
    """Parameters without axes that are given with some, of one element -> the shape given."""
    solved = zip(compilation.keys, compilation.compiled.solve({}), strict=True)
    names = [key.name for key, (shape, _) in solved if key.is_tensor and shape == []]
    shapes = {name: shape_of(params[name], name) for name in names if name in params}
    return {name: shape for name, shape in shapes.items() if shape and set(shape) == {1}}


def as_numbers(compilation: Any, params: Mapping[str, Any], shapes: Shapes) -> dict[str, Any]:
    """The parameters, those without axes."""
    numbers = {name: _reshaped(compilation, params[name], ()) for name in shapes}
    return {**params, **numbers}


def as_given(compilation: Any, result: Any, shapes: Shapes) -> Any:
    """The result of `evaluate`, with gradients of those shapes."""
    if not hasattr(result, "gradients"):
        return result
    found = result.gradients
    own = {n: _reshaped(compilation, found[n], shape) for n, shape in shapes.items() if n in found}
    return result._replace(gradients={**found, **own})


def _reshaped(compilation: Any, value: Any, shape: tuple[int, ...]) -> Any:
    backend = compilation.backend
    return backend.reshape(value if backend._is_native(value) else backend.array(value), shape)


__all__ = ["as_given", "as_numbers", "single_numbers"]
