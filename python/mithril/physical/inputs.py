"""The inputs of a program: the arrays of a call in the program's order, converted and checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mithril.base.explanations import data_error
from mithril.errors import (
    ArgumentError,
    KeyNotFound,
    ShapeError,
    UnusedKeyWarning,
    UnusedParamsWarning,
    shown,
    suggestion,
)
from mithril.optim.optimizers import check_slots
from mithril.physical.compilation import Call, Compilation
from mithril.physical.initial import Uninitialized
from mithril.physical.missing import missing_keys
from mithril.physical.open_ranks import Shaped
from mithril.physical.parameters import initial_parameters, placed
from mithril.physical.program import Program
from mithril.physical.program_keys import RANDOM_KEY


def inputs_of(compilation: Compilation, program: Program, call: Call) -> list[Any]:
    """The inputs of a program: what the call brings is gathered, converted and checked."""
    values = convert(compilation, program, gather(compilation, program, call))
    check(compilation, program, values, call)
    return values


def gather(compilation: Compilation, program: Program, call: Call) -> list[Any]:
    """The values of the program's inputs as they are given, initial parameters where none are."""
    if not call.params and compilation.param_keys:
        call = call._replace(params=initial_parameters(compilation, call.data))
    sources = {"param": call.params, "data": call.data, "state": call.state}
    values, missing = [], []
    for key in program.inputs:
        try:
            value = sources[key.role][key.name]
        except KeyError:
            missing.append(key)
            continue
        if isinstance(value, Uninitialized):
            value = placed(compilation, key, value, call)
        values.append(value)
    if missing:
        raise missing_keys(compilation, missing, call)
    return values


def convert(compilation: Compilation, program: Program, values: list[Any]) -> list[Any]:
    """The values as arrays of the backend, in the dtypes of their keys."""
    as_array = compilation.convert
    return [as_array(key, value) for key, value in zip(program.inputs, values, strict=True)]


def for_update(
    compilation: Compilation, call: Call, opt_state: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The parameters and the optimizer's state of a call, of which all that a step moves is an
    array of the backend: files and other backends give arrays of other libraries."""
    program, as_array = compilation.program_for(call), compilation.convert
    keys = [key for key in program.inputs if key.trainable]
    params = {key.name: as_array(key, call.params[key.name]) for key in keys}
    slots = {slot: opt_state[slot] for slot in compilation.options.optimizer.slots}
    kept = {
        slot: {**own, **{key.name: as_array(key.kept, own[key.name]) for key in keys}}
        for slot, own in slots.items()
    }
    check_slots("step: opt_state", kept, compilation.options.optimizer, params)
    return {**call.params, **params}, {**opt_state, **kept}


def check(compilation: Compilation, program: Program, values: list[Any], call: Call) -> None:
    """Raises unless the shapes agree with the model; warns of what no input reads."""
    try:
        program.output_shapes(program.shapes_of(values))
    except ShapeError as error:
        raise data_error(error, compilation.node, compilation.place) from None
    if not compilation.first_inputs:
        pairs = zip(program.inputs, values, strict=True)
        compilation.first_inputs = {k.name: Shaped(v.shape) for k, v in pairs if k.is_tensor}
    if len(call.params) + len(call.data) + len(call.state) != len(values):
        _refuse_doubles(program, call)
        warn_of_states(compilation, call.params, call.state)
        _warn_of_unused(compilation, call)


def _refuse_doubles(program: Program, call: Call) -> None:
    """A key has one value: which of two would count is not guessed."""
    for name in call.params:
        if name in call.data and name in program.by_name:
            role = "params" if program.by_name[name].role == "param" else "data"
            raise ArgumentError(
                f"evaluate: '{name}' is in params and in data",
                hint=f"the model reads it from {role}: leave the other one out",
            )


def check_states(
    what: str, compilation: Compilation, state: Mapping[str, Any], known: Iterable[str] = ()
) -> None:
    """Raises for entries of a state that the model has not, nor `known`. The key of random numbers,
    which a state of training may have, is left alone where nothing is drawn."""
    own = {*compilation.state_keys, *known}
    if not compilation.options.train:
        own.add(RANDOM_KEY)
    unknown = [name for name in state if name not in own]
    if not unknown:
        return
    text = f"{what}: state has {shown(unknown[0])}, which the model"
    if unknown[0] in compilation.param_keys:
        raise KeyNotFound(
            f"{text} reads from params", hint="running statistics: {**params, **state}"
        )
    states = compilation.state_keys
    few = ", ".join(f"'{name}'" for name in states[:3]) + (", ..." if len(states) > 3 else "")
    raise KeyNotFound(
        f"{text} has not{suggestion(unknown[0], own)}",
        hint=f"its state is {few}" if states else "it has no state: leave it out",
    )


def warn_of_states(
    compilation: Compilation, params: Mapping[str, Any], state: Mapping[str, Any]
) -> None:
    """Warns of parameters beside which there is another state of the same name, which is read."""
    names = [name for name in params if name in state and params[name] is not state[name]]
    if names:
        compilation.warn(
            f"params has '{names[0]}', which is read from state: pm.split_state parts them",
            UnusedParamsWarning,
        )


def _warn_of_unused(compilation: Compilation, call: Call) -> None:
    by_name, ignored = compilation.by_name, compilation.compiled.ignored_keys
    constants = [key for key, _ in compilation.options.constants]
    for name in call.data:
        if name not in by_name and name not in ignored and name not in constants:
            near = suggestion(name, by_name)
            compilation.warn(f"data has '{name}', which the model has not{near}", UnusedKeyWarning)
    extra = [name for name in call.params if name not in by_name]
    if extra:
        few = ", ".join(f"'{name}'" for name in extra[:3]) + (", ..." if len(extra) > 3 else "")
        compilation.warn(f"params has {few}, which the model has not", UnusedParamsWarning)


__all__ = [
    "check",
    "check_states",
    "convert",
    "for_update",
    "gather",
    "inputs_of",
    "warn_of_states",
]
