"""The quick way through `evaluate` on frameworks: arrays that are like former ones go straight in.

Which calls are alike says the *signature* of their arrays: class, dtype, shape and what else the
backend's `_signature` names. It is kept once a call with it went the long way and no array was
converted there, so every check of that way holds for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mithril._program import Program
from mithril.backends.emitted import EmittedExecutable

MOST_SIGNATURES = 64


class QuickCall:
    """Evaluates what needs no conversion, warning or state; None sends a call the long way."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._signature = program.settings.backend._signature
        self._gather = _gather([(key.role, key.name) for key in program.inputs])
        self._count = len(program.inputs)
        self._outputs = tuple(program.outputs)
        self._met: set[tuple] = set()
        # Signature -> (cotangents, names of the gradients, their positions).
        self._gradients: dict[tuple, tuple[list, list[str], list[int]]] = {}

    @staticmethod
    def of(program: Program | None) -> QuickCall | None:
        """None where calls have to go the long way."""
        if program is None or not isinstance(program.forward, EmittedExecutable):
            return None
        ready = all(key.is_tensor and key.role in ("param", "data") for key in program.inputs)
        return QuickCall(program) if ready and not program.state_names else None

    def outputs(self, params: Any, data: Any) -> dict[str, Any] | None:
        """The dictionary of outputs."""
        try:
            values, signature = self._read(params, data)
            if signature not in self._met:
                return None
            return dict(zip(self._outputs, self._program.forward.run(values), strict=True))
        except Exception:  # the long way says what is wrong
            return None

    def gradients(self, params: Any, data: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """The dictionaries of outputs and of gradients of the cost."""
        try:
            values, signature = self._read(params, data)
            found = self._gradients.get(signature)
            if found is None:
                return None
            cotangents, names, wrt = found
            results, gradients = self._program.forward.run_vjp(values, cotangents, wrt)
        except Exception:
            return None
        return (
            dict(zip(self._outputs, results, strict=True)),
            dict(zip(names, gradients, strict=True)),
        )

    def learn(self, params: Mapping, data: Mapping, inputs: Sequence[Any]) -> None:
        """Takes note of a call that went the long way with these inputs."""
        signature = self._as_given(params, data, inputs)
        if signature is not None:
            _bounded(self._met).add(signature)

    def learn_gradients(
        self,
        params: Mapping,
        data: Mapping,
        inputs: Sequence[Any],
        cotangents: Mapping,
        names: list,
    ) -> None:
        """The same for gradients of the cost: `cotangents` has it alone, as None."""
        signature = self._as_given(params, data, inputs)
        if signature is None or self._program.settings.autodiff != "framework":
            return
        order = [key.name for key in self._program.inputs]
        places = [order.index(name) for name in names]
        values = self._program.cotangents_of(cotangents, inputs)
        _bounded(self._gradients)[signature] = values, names, places

    def _read(self, params: Any, data: Any) -> tuple[tuple, tuple]:
        if len(params) + len(data) != self._count:
            raise KeyError
        values = self._gather(params, data)
        return values, tuple(map(self._signature, values))

    def _as_given(self, params: Any, data: Any, inputs: Sequence[Any]) -> tuple | None:
        """The signature, unless an input is not what the caller gave."""
        try:
            values, signature = self._read(params, data)
        except (KeyError, TypeError, AttributeError):
            return None
        same = all(a is b for a, b in zip(values, inputs, strict=True))
        return signature if same else None


def _gather(sources: Sequence[tuple[str, str]]) -> Callable[[Any, Any], tuple]:
    """A function of params and data that gives these entries; dictionaries are faster so than
    through a loop."""
    items = "".join(f"{role}[{name!r}], " for role, name in sources)
    return eval(f"lambda param, data: ({items})", {})


def _bounded(kept: Any) -> Any:
    if len(kept) >= MOST_SIGNATURES:
        kept.clear()
    return kept
