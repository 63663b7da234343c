"""`PhysicalModel.as_function`: a compiled model as a function of arrays alone."""

from __future__ import annotations

from typing import Any

from mithril.physical.compilation import Call
from mithril.physical.missing import missing_keys
from mithril.physical.results import WithState


class ModelFunction:
    """``f(params, data=None, state=None)`` of a model that runs emitted source.

    It computes nothing but the program, so that frameworks transform it; it pickles as its model
    does.
    """

    __name__ = "model"

    def __init__(self, physical: Any, outputs: list[str]) -> None:
        program = physical._program
        self._physical = physical
        self._outputs = outputs
        self._order = [(key.role, key.name) for key in program.inputs]
        self._run = program.forward.function
        self._every = list(program.outputs)
        self._states = list(program.state_names)
        self._scope = physical.backend._tracing_scope

    def __call__(self, params: Any = None, data: Any = None, state: Any = None) -> Any:
        given = {"param": params or {}, "data": data or {}, "state": state or {}}
        missing = [name for role, name in self._order if name not in given[role]]
        if missing:
            compilation = self._physical._compilation
            keys = [compilation.by_name[name] for name in missing]
            raise missing_keys(compilation, keys, Call(*given.values()))
        with self._scope():
            results = self._run(*[given[role][name] for role, name in self._order])
        by_name = dict(zip(self._every, results, strict=False))
        chosen = {name: by_name[name] for name in self._outputs}
        if not self._states:
            return chosen
        states = results[-len(self._states) :]
        return WithState(chosen, dict(zip(self._states, states, strict=True)))

    def __reduce__(self) -> tuple[Any, ...]:
        return ModelFunction, (self._physical, self._outputs)

    def __repr__(self) -> str:
        return f"ModelFunction({self._physical!r}, outputs={self._outputs})"


__all__ = ["ModelFunction"]
