"""Calls that the engine takes without a Python frame: `evaluate` and `step` of a program that it
runs, for arrays that are ready. What it leaves alone goes through the methods."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mithril import _core
from mithril.optim.optimizers import numbers_of
from mithril.physical.program import Program
from mithril.physical.step_layout import COUNT, RATE, StepLayout
from mithril.types import Dtype

_ROLES = {"param": 0, "data": 1, "state": 2}


def evaluate_call(program: Program | None) -> Callable[..., Any] | None:
    """None where calls need more than arrays: a state, numbers of Python, a look at the results."""
    if program is None or not isinstance(program.forward, _core.ArrayProgram):
        return None
    if any(key.role == "state" or not key.is_tensor for key in program.inputs):
        return None
    inputs = [(_ROLES[key.role], key.name) for key in program.inputs]
    outputs = [(name, i) for i, name in enumerate(program.outputs)]
    return _core.evaluate_call(program.forward, inputs, outputs)


def step_call(
    program: Program, cost: str, optimizer: Any, result: type
) -> Callable[..., Any] | None:
    """For steps after one that took the slow path, with its cost and its optimizer's numbers."""
    dtype = program.options.backend.default_dtype
    executable, order, names = program.step_program(cost, optimizer)
    if not isinstance(executable, _core.ArrayProgram) or not optimizer.op:
        return None
    if dtype not in (Dtype.float32, Dtype.float64):
        return None
    if not all(key.is_tensor for key in program.inputs):
        return None
    layout = StepLayout.of(program, optimizer)
    sources = {key.name: (_ROLES[key.role], key.name) for key in program.inputs}
    places = {slot: i for i, slot in enumerate(layout.slots, len(_ROLES))}
    sources |= {key: (places[slot], name) for slot, name, key in layout.slot_keys()}
    numbers = len(_ROLES) + len(layout.slots)
    sources |= {COUNT: (numbers, ""), RATE: (numbers + 1, "")}
    at = {name: i for i, name in enumerate(names)}.__getitem__
    return _core.step_call(
        executable,
        inputs=[sources[name] for name in order],
        params=list(layout.params(at).items()),
        slots=[(slot, list(own.items())) for slot, own in layout.kept(at).items()],
        states=list(layout.next_states(at).items()),
        outputs=[(name, at(name)) for name in layout.outputs],
        given=len(program.inputs),
        optimizer=optimizer,
        numbers=numbers_of(optimizer),
        result=result,
        is_double=dtype is Dtype.float64,
    )


__all__ = ["evaluate_call", "step_call"]
