"""Inputs and outputs of a compiled model that are lists or tuples of tensors, or of lists again.
Its programs know the tensors: "xs.0", "xs.1.0" …; callers give and get the lists."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mithril.base.trees import filled, leaves
from mithril.errors import ArgumentError, shown

# The names of tensors: a name, or a list or tuple of nests.
Nest = Any


def _taken_apart(what: str, name: str, nest: Nest, value: Any) -> dict[str, Any]:
    """Takes a value apart into arrays by the names in a nest of the same structure."""
    if isinstance(nest, str):
        return {nest: value}
    if not isinstance(value, (list, tuple)) or len(value) != len(nest):
        got = f"{len(value)}" if isinstance(value, (list, tuple)) else shown(value)
        inner = "tensors" if all(isinstance(item, str) for item in nest) else "items"
        raise ArgumentError(f"{what}: '{name}' requires a list of {len(nest)} {inner}, got {got}")
    out: dict[str, Any] = {}
    for i, (item, given) in enumerate(zip(nest, value, strict=True)):
        out.update(_taken_apart(what, f"{name}.{i}", item, given))
    return out


class Lists:
    """Takes lists apart on the way in, and puts them together on the way out."""

    def __init__(self, inputs: Mapping[str, list[str]], outputs: Mapping[str, Nest]):
        self.inputs = dict(inputs)  # list -> names of its tensors
        self._nests: dict[str, Nest] = {**inputs, **outputs}

    @classmethod
    def of(cls, keys: Sequence[Any], outputs: Mapping[str, Nest]) -> Lists | None:
        """Makes the lists of a model; None for a model without lists."""
        inputs: dict[str, list[str]] = {}
        for key in keys:
            if key.list:
                inputs.setdefault(key.list, []).append(key.name)
        return cls(inputs, outputs) if inputs or outputs else None

    def names(self, parts: Sequence[str]) -> list[str]:
        """Returns the callers' names for those of programs."""
        lists = {part: name for name, nest in self._nests.items() for part in leaves(nest)}
        return list(dict.fromkeys(lists.get(part, part) for part in parts))

    def split(self, what: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Takes lists apart into arrays by the names of programs."""
        out: dict[str, Any] = {}
        for name, value in given.items():
            out.update(_taken_apart(what, name, self._nests.get(name, name), value))
        return out

    def join(self, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """Puts arrays together to lists, by the names of callers."""
        out = dict(arrays)
        for name, nest in self._nests.items():
            parts = leaves(nest)
            if all(part in out for part in parts):
                out[name] = filled(nest, iter([out.pop(part) for part in parts]))
        return {name: out[name] for name in self.names(list(arrays)) if name in out}

    def joined(self, result: Any) -> Any:
        """Puts the lists together in what `evaluate` or `step` returned."""
        if not hasattr(result, "_replace"):
            return self.join(result)
        fields = ("params", "outputs", "gradients")
        found = {name: self.join(getattr(result, name)) for name in fields if hasattr(result, name)}
        return result._replace(**found)

    def cotangents(self, request: Any) -> Any:
        """Takes the lists in `output_gradients` apart into cotangents of their tensors."""
        if isinstance(request, Mapping):
            return self.split("output_gradients", request)
        if callable(request):
            return self._of_function(request)
        return request

    def _of_function(self, request: Callable[..., Any]) -> Callable[..., Any]:
        return lambda outputs: self.cotangents(request(self.join(outputs)))


__all__ = ["Lists"]
