"""The quick way through a training step of the engine: arrays that are ready go straight in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from mithril._program import Program


class QuickStep:
    """Takes steps that need no conversion and no warning; made once a step went the long way."""

    def __init__(self, program: Program, output: str, optimizer: Any, dtype: Any):
        executable, order, names = program.step_program(output, optimizer)
        self._try_run = executable.try_run
        self._streams = program.settings.stream_gradients
        self._optimizer = optimizer
        self._numbers = optimizer._numbers()
        self._dtype = dtype
        self._given = len(program.inputs)
        trained = [key.name for key in program.inputs if key.trainable]
        at = {name: i for i, name in enumerate(names)}
        self._outputs = [(name, at[name]) for name in program.outputs]
        self._params = [(name, at[f"$new.{name}"]) for name in trained]
        self._states = [(name, at[f"$state.{name}"]) for name in program.state_names]
        self._slots = {
            slot: [(name, at[f"$new.$opt.{slot}.{name}"]) for name in trained]
            for slot in optimizer.slots
        }
        sources = {key.name: ({"param": 0, "data": 1, "state": 2}[key.role], key.name)
                   for key in program.inputs}  # fmt: skip
        sources |= {"$opt.t": (3, "t"), "$opt.lr": (3, "lr")}
        for i, slot in enumerate(optimizer.slots):
            sources |= {f"$opt.{slot}.{name}": (4 + i, name) for name in trained}
        self._sources = [sources[name] for name in order]

    def try_run(self, params: Any, opt_state: Any, data: Any, state: Any) -> tuple | None:
        """(params, opt_state, state, outputs), or None for the long way."""
        optimizer = self._optimizer
        state = {} if state is None else state
        data = {} if data is None else data
        try:
            if len(params) + len(data) + len(state) != self._given:
                return None
            if optimizer._numbers() != self._numbers:
                return None
            step = opt_state["step"]
            if type(step) is not int:
                return None
            scalars = {"t": np.array(step, np.int64), "lr": np.array(optimizer.lr, self._dtype)}
            dictionaries = (params, data, state, scalars, *map(opt_state.__getitem__, self._slots))
            values = [dictionaries[source][name] for source, name in self._sources]
        except (KeyError, IndexError, TypeError, ValueError, OverflowError):
            return None
        run = counting(self._try_run, opt_state) if self._streams else self._try_run
        results = run(values)
        if results is None:
            return None
        slots = {slot: _updated(opt_state[slot], new, results) for slot, new in self._slots.items()}
        return (
            _updated(params, self._params, results),
            {"step": step + 1, **slots},
            {name: results[i] for name, i in self._states},
            {name: results[i] for name, i in self._outputs},
        )


def counting(run: Callable[..., Any], opt_state: Mapping[str, Any]) -> Callable[..., Any]:
    """`run` of arrays that are overwritten, as a step that the given state counts, too: Ctrl-C is
    raised after it, and whoever catches it has these arrays only."""

    def counted(*arguments: Any) -> Any:
        before = opt_state["step"]
        if not isinstance(opt_state, dict):
            return run(*arguments)
        results, opt_state["step"] = None, before + 1
        try:
            results = run(*arguments)
        except KeyboardInterrupt:
            raise
        except BaseException:
            opt_state["step"] = before
            raise
        if results is None:
            opt_state["step"] = before
        return results

    return counted


def _updated(old: Mapping[str, Any], new: list[tuple[str, int]], results: list) -> dict[str, Any]:
    out = dict(old)
    for name, i in new:
        out[name] = results[i]
    return out
