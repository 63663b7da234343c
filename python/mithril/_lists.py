"""Inputs and outputs of a compiled model that are lists or tuples of tensors. Its programs know the
tensors: "xs.0", "xs.1" …; callers give and get the lists."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mithril.errors import ArgumentError, shown


class Lists:
    """Takes lists apart on the way in, and puts them together on the way out."""

    def __init__(self, inputs: Mapping[str, list[str]], outputs: Mapping[str, tuple]):
        self.inputs = dict(inputs)  # list -> names of its tensors
        self._kinds = {name: kind for name, (_, kind) in outputs.items()}
        self._parts = {name: [f"{name}.{i}" for i in range(n)] for name, (n, _) in outputs.items()}

    @classmethod
    def of(cls, keys: Sequence[Any], output_lists: Sequence[tuple]) -> Lists | None:
        """None for a model without lists."""
        inputs: dict[str, list[str]] = {}
        for key in keys:
            if key.list:
                inputs.setdefault(key.list, []).append(key.name)
        outputs = {name: (n, list if is_list else tuple) for name, n, is_list in output_lists}
        return cls(inputs, outputs) if inputs or outputs else None

    def names(self, parts: Sequence[str]) -> list[str]:
        """The names of callers, for those of programs."""
        groups = {**self.inputs, **self._parts}
        lists = {part: name for name, found in groups.items() for part in found}
        return list(dict.fromkeys(lists.get(part, part) for part in parts))

    def split(self, what: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Arrays by the names of programs."""
        out: dict[str, Any] = {}
        for name, value in given.items():
            parts = self.inputs.get(name) or self._parts.get(name)
            if parts is None:
                out[name] = value
                continue
            if not isinstance(value, (list, tuple)) or len(value) != len(parts):
                got = f"{len(value)}" if isinstance(value, (list, tuple)) else shown(value)
                raise ArgumentError(
                    f"{what}: '{name}' requires a list of {len(parts)} tensors, got {got}"
                )
            out.update(zip(parts, value, strict=True))
        return out

    def join(self, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """Arrays and lists of them by the names of callers."""
        out = dict(arrays)
        for name, parts in {**self.inputs, **self._parts}.items():
            if all(part in out for part in parts):
                out[name] = self._kinds.get(name, list)(out.pop(part) for part in parts)
        return {name: out[name] for name in self.names(list(arrays)) if name in out}

    def joined(self, result: Any) -> Any:
        """What `evaluate` or `step` returned, with lists."""
        if not hasattr(result, "_replace"):
            return self.join(result)
        fields = ("params", "outputs", "gradients")
        found = {name: self.join(getattr(result, name)) for name in fields if hasattr(result, name)}
        return result._replace(**found)

    def cotangents(self, request: Any) -> Any:
        """`output_gradients`, of lists those of the tensors in them."""
        if isinstance(request, Mapping):
            return self.split("output_gradients", request)
        if callable(request):
            return self._of_function(request)
        return request

    def _of_function(self, request: Callable[..., Any]) -> Callable[..., Any]:
        return lambda outputs: self.cotangents(request(self.join(outputs)))


__all__ = ["Lists"]
