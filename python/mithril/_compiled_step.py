"""A training step on a framework as one compiled function: its own gradients, then the update."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mithril._program import Program
from mithril._quick_call import Arrays, Signature, bounded


class CompiledStep:
    """Steps of one program with one optimizer, whose rate may change from step to step."""

    def __init__(self, program: Program, output: str, optimizer: Any) -> None:
        self._program = program
        self._backend = program.settings.backend
        self._optimizer = optimizer
        self._numbers = optimizer._numbers()
        self._trained = [key.name for key in program.inputs if key.trainable]
        self._arrays = Arrays(program)
        self._met: dict[Signature, Any] = {}  # -> the cotangent of the cost
        self._output = output
        self._function = program.forward._compiled(self._whole())
        # Of the rate and its like, which halves would spoil.
        self._wide = "float64" if str(self._backend.default_dtype) == "float64" else "float32"

    @staticmethod
    def of(program: Program, output: str, optimizer: Any) -> CompiledStep | None:
        """None where a framework has no such function of gradients, or nothing is compiled."""
        settings = program.settings
        possible = settings.jit and settings.autodiff == "framework" and not settings.check_nan
        if not possible or not hasattr(settings.backend, "_vjp_function"):
            return None
        found = program.compiled_step
        if found is None or found._numbers != optimizer._numbers():
            found = program.compiled_step = CompiledStep(program, output, optimizer)
        return found

    def _whole(self) -> Any:
        program, optimizer = self._program, self._optimizer
        places = program.positions(self._trained)
        asked = tuple(name == self._output for name in program.outputs)
        asked += (False,) * len(program.state_names)
        both = self._backend._vjp_function(program.forward, tuple(places), asked)
        inputs, slots = len(program.inputs), len(optimizer.slots)

        def step(*arrays: Any) -> tuple[Any, ...]:
            outputs, gradients = both(*arrays[: inputs + 1])
            kept, numbers = arrays[inputs + 1 : -1], arrays[-1]
            moving = copy.copy(optimizer)
            moving.lr = numbers[0]
            factors = tuple(numbers[1 + i] for i in range(len(optimizer._factors(1))))
            results = []
            for i, (place, gradient) in enumerate(zip(places, gradients, strict=True)):
                parameter = arrays[place]
                own = kept[i * slots : (i + 1) * slots]
                updated, own = moving._apply(parameter, gradient, own, factors)
                results += [x.astype(parameter.dtype) for x in (updated, *own)]
            return (*outputs, *results)

        return step

    def try_run(self, params: Any, opt_state: Any, data: Any, state: Any) -> tuple | None:
        """(params, opt_state, state, outputs), or None where arrays have to be looked at."""
        try:
            values, signature = self._arrays.read(params, data, state)
            kept = self._kept(opt_state)
            signature += tuple(map(self._backend._signature, kept))
            if signature not in self._met or self._optimizer._numbers() != self._numbers:
                return None
            return self._results(values, self._met[signature], kept, params, opt_state)
        except Exception:  # the long way says what is wrong
            return None

    def run(self, given: Sequence[Any], inputs: list, opt_state: Mapping) -> tuple:
        """The same of inputs that were checked and converted; `given`: params, data, state."""
        cotangents = self._program.cotangents_of({self._output: None}, inputs)
        one = next(c for c in cotangents if c is not None)
        kept = self._kept(opt_state)
        native = [x if self._backend._is_native(x) else self._backend.tensor(x) for x in kept]
        results = self._results(inputs, one, native, given[0], opt_state)
        signature = self._arrays.as_given(given, inputs)
        if signature is not None and all(a is b for a, b in zip(kept, native, strict=True)):
            bounded(self._met)[signature + tuple(map(self._backend._signature, kept))] = one
        return results

    def _kept(self, opt_state: Mapping) -> list[Any]:
        slots = [opt_state[slot] for slot in self._optimizer.slots]
        return [slot[name] for name in self._trained for slot in slots]

    def _results(
        self, inputs: Sequence, one: Any, kept: list, params: Mapping, opt_state: Mapping
    ) -> tuple:
        step = int(opt_state["step"]) + 1
        numbers = np.array([float(self._optimizer.lr), *self._optimizer._factors(step)], self._wide)
        arrays = (*inputs, one, *kept, self._backend._argument(numbers))
        results = self._backend._call(self._function, arrays)
        program, slots = self._program, self._optimizer.slots
        outputs = len(program.outputs)
        first = outputs + len(program.state_names)
        width = 1 + len(slots)
        columns = [results[first + i :: width] for i in range(width)]
        moved = [dict(zip(self._trained, column, strict=True)) for column in columns]
        old = [opt_state[slot] for slot in slots]
        return (
            {**params, **moved[0]},
            {
                "step": step,
                **{s: {**o, **m} for s, o, m in zip(slots, old, moved[1:], strict=True)},
            },
            dict(zip(program.state_names, results[outputs:first], strict=True)),
            dict(zip(program.outputs, results[:outputs], strict=True)),
        )
