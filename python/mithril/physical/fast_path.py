"""Calls whose arrays are like former ones skip every check: they go straight into the program.

The engine's own fast calls take no Python frame at all (`_native_evaluate`, `_native_step` of
`PhysicalModel`); what is here are those of frameworks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mithril.physical.compilation import Call, Compilation
from mithril.physical.gradients import cost_of
from mithril.physical.native_calls import evaluate_call
from mithril.physical.program import Program
from mithril.physical.quick_call import QuickCall
from mithril.physical.results import Results, Step, named


class FastPath:
    """The fast paths of one compiled model. None sends a call down the slow path, which says what
    is wrong with it, and is learnt from."""

    def __init__(self, compilation: Compilation) -> None:
        self._compilation = compilation
        program, lists = compilation.program, compilation.lists
        # Lists are taken apart before, and put together behind.
        self._quick = None if lists else QuickCall.of(program)
        self._step: Any = None
        takes_slow_path = compilation.static or lists
        self.native_evaluate = None if takes_slow_path else evaluate_call(program)

    def evaluate(self, params: Any, data: Any, state: Any, gradients: Any, wrt: Any) -> Any:
        """Returns the result of `PhysicalModel.evaluate`, or None."""
        quick = self._quick
        if quick is None or wrt is not None:
            return None
        if gradients is None and state is None and quick.forward is not None:
            outputs = quick.forward({} if params is None else params, {} if data is None else data)
            if outputs is not None:
                return outputs
        found = quick.evaluate(params, data, state, gradients)
        return None if found is None else named(quick.program, Results(*found))

    def step(self, params: Any, opt_state: Any, data: Any, state: Any) -> Step | None:
        """Returns the result of `PhysicalModel.step`, or None."""
        if self._step is None:
            return None
        found = self._step.try_run(params, opt_state, data, state)
        return None if found is None else tuple.__new__(Step, found)

    def learn(
        self, program: Program, call: Call, inputs: Sequence[Any], request: Any, results: Results
    ) -> None:
        """Takes note of a call that took the slow path."""
        quick = self._of(program)
        if quick is None:
            return
        if results.gradients is None:
            quick.learn(call, inputs)
        elif request.output_gradients is True and request.wrt is None:
            cotangents = {cost_of(self._compilation, program): None}
            quick.learn_gradients(call, inputs, cotangents, list(results.gradients))

    def learn_step(self, program: Program, step: Any) -> None:
        if program is self._compilation.program:
            self._step = step

    def _of(self, program: Program) -> QuickCall | None:
        """The fast path of a program. Where ranks are open, it is that of the last call's."""
        compilation = self._compilation
        is_fixed = compilation.open_ranks is None or compilation.lists is not None
        if is_fixed or (self._quick and self._quick.program is program):
            return self._quick
        self._quick = QuickCall.of(program)
        if compilation.static is None:
            self.native_evaluate = evaluate_call(program)
        return self._quick


__all__ = ["FastPath"]
