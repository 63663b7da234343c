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
Signature = tuple[tuple, ...]


class Arrays:
    """The arrays of a call in the order of the program's inputs, and their signature."""

    def __init__(self, program: Program) -> None:
        self._signature = program.settings.backend._signature
        self._gather = _gather([(key.role, key.name) for key in program.inputs])
        self._count = len(program.inputs)

    def read(self, params: Any, data: Any, state: Any) -> tuple[tuple, Signature]:
        """Fails on dictionaries that have other entries than the inputs."""
        params, data, state = params or {}, data or {}, state or {}
        if len(params) + len(data) + len(state) != self._count:
            raise KeyError
        values = self._gather(params, data, state)
        return values, tuple(map(self._signature, values))

    def as_given(self, given: Sequence[Any], inputs: Sequence[Any]) -> Signature | None:
        """The signature of what was given, unless an input was made of it first."""
        try:
            values, signature = self.read(*given)
        except (KeyError, TypeError, AttributeError):
            return None
        same = all(a is b for a, b in zip(values, inputs, strict=True))
        return signature if same else None


class QuickCall:
    """Evaluates what needs no conversion and no warning; None sends a call the long way."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self.arrays = Arrays(program)
        self._met: set[Signature] = set()
        # Signature -> (cotangents, names of the gradients, their positions).
        self._gradients: dict[Signature, tuple[list, list[str], list[int]]] = {}

    @staticmethod
    def of(program: Program | None) -> QuickCall | None:
        """None where calls have to go the long way."""
        if program is None or not isinstance(program.forward, EmittedExecutable):
            return None
        return QuickCall(program) if all(key.is_tensor for key in program.inputs) else None

    def evaluate(self, params: Any, data: Any, state: Any, gradients: Any) -> tuple | None:
        """(outputs, gradients by name or None, new states); `gradients`: None, or True for those of
        the cost."""
        forward = self._program.forward
        try:
            values, signature = self.arrays.read(params, data, state)
            if gradients is None and signature in self._met:
                return self._parted(forward.run(values), None)
            if gradients is not True or signature not in self._gradients:
                return None
            cotangents, names, places = self._gradients[signature]
            results, found = forward.run_vjp(values, cotangents, places)
            return self._parted(results, dict(zip(names, found, strict=True)))
        except Exception:  # the long way says what is wrong
            return None

    def _parted(self, results: Sequence[Any], gradients: dict | None) -> tuple:
        count = len(self._program.outputs)
        return results[:count], gradients, results[count:]

    def learn(self, given: Sequence[Any], inputs: Sequence[Any]) -> None:
        """Takes note of a call that went the long way; `given`: params, data and state."""
        signature = self.arrays.as_given(given, inputs)
        if signature is not None:
            bounded(self._met).add(signature)

    def learn_gradients(
        self, given: Sequence[Any], inputs: Sequence[Any], cotangents: Mapping, names: list[str]
    ) -> None:
        """The same for gradients of the cost: `cotangents` has it alone, as None."""
        signature = self.arrays.as_given(given, inputs)
        if signature is None or self._program.settings.autodiff != "framework":
            return
        values = self._program.cotangents_of(cotangents, inputs)
        places = self._program.positions(names)
        bounded(self._gradients)[signature] = values, names, places


def _gather(sources: Sequence[tuple[str, str]]) -> Callable[..., tuple]:
    """A function of params, data and state that gives these entries: faster than a loop."""
    items = "".join(f"{role}[{name!r}], " for role, name in sources)
    return eval(f"lambda param, data, state: ({items})", {})


def bounded(kept: Any) -> Any:
    """What is kept for signatures, emptied when there are too many."""
    if len(kept) >= MOST_SIGNATURES:
        kept.clear()
    return kept
