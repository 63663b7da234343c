"""Gradients of a call: whether there are any, of which inputs, and from which outputs they flow."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from mithril.base.checks import checked_list, checked_str
from mithril.errors import (
    ArgumentError,
    KeyNotFound,
    ModeWarning,
    SignatureError,
    UnsupportedError,
    shown,
    suggestion,
)
from mithril.physical.compilation import Compilation
from mithril.physical.program import Program

FINAL_COST = "final_cost"
# In the text of a graph: a dropout that is off, unless it never drops.
_IDLE_DROPOUT = re.compile(r"\bdropout(?:_attention)?\((?!.*\bp=0(?:\.0)?,).*\bmode=\"eval\"")


def check_gradients_allowed(compilation: Compilation) -> None:
    """Raises where the options say that there are no gradients."""
    options = compilation.options
    few = options.weights or options.quantize
    if few:
        raise UnsupportedError(
            f"evaluate: no gradients, the weights are kept as {few}",
            hint="bind them without weights=, compile without quantize=",
        )
    if options.inference:
        raise UnsupportedError("evaluate: no gradients, the model was compiled with inference=True")
    if not compilation.is_mode_checked:
        compilation.is_mode_checked = True
        _warn_of_mode(compilation)


def _warn_of_mode(compilation: Compilation) -> None:
    """Warns of gradients in eval mode, where a layer behaves differently in training."""
    if compilation.options.train:
        return
    differences = []
    if any(compilation.is_statistic(key) for key in compilation.keys):
        differences.append("running statistics are constants")
    graph = compilation.compiled.graph
    drops = graph.has_op("dropout") or graph.has_op("dropout_attention")
    if drops and _IDLE_DROPOUT.search(str(graph)):
        differences.append("dropout is off")
    if differences:
        compilation.warn(
            f"gradients of a model in eval mode: {' and '.join(differences)}; compile"
            ' with mode="train" to train it',
            ModeWarning,
        )


def wanted_gradients(
    compilation: Compilation, program: Program, wrt: Iterable[str] | None
) -> list[str]:
    """The inputs whose gradients a call returns: what is trained, and what `wrt` names."""
    present = {key.name for key in program.inputs}
    wanted = [name for name in compilation.trainable_keys if name in present]
    for name in names_of_inputs(wrt):
        if not isinstance(name, str) or name not in present:
            near = suggestion(name, present) if isinstance(name, str) else ""
            raise KeyNotFound(f"wrt: no input named {shown(name)}{near}")
        dtype = program.by_name[name].dtype
        if dtype is None or not dtype.is_float:
            raise ArgumentError(f"wrt: '{name}' is no tensor of floats", code="MTH506")
        if name not in wanted:
            wanted.append(name)
    return wanted


def names_of_inputs(wrt: Iterable[str] | str | None) -> list[Any]:
    """Returns the names in `wrt` as a list."""
    names = [wrt] if isinstance(wrt, str) else wrt
    return list(checked_list("evaluate: wrt", names, "names of inputs", optional=True))


def check_gradients_wanted(wrt: list[Any], request: Any) -> None:
    """Raises where `wrt` names inputs though a call returns no gradients."""
    if wrt and (request is None or request is False):
        raise ArgumentError(
            f"evaluate: wrt asks for the gradient of {shown(wrt[0])}, and no gradients are wanted",
            hint="give output_gradients=, such as True, or leave wrt out",
        )


def cotangents_of(
    compilation: Compilation, program: Program, inputs: list[Any], request: Any
) -> dict[str, Any]:
    """Maps outputs to their cotangents; None stands for 1."""
    if request is True:
        return {cost_of(compilation, program): None}
    if callable(request):
        outputs, _ = program.run(inputs)
        request = request(dict(zip(program.outputs, outputs, strict=True)))
    if not isinstance(request, Mapping):
        raise SignatureError(
            "output_gradients: requires a dictionary, a function of the outputs or True, got"
            f" {type(request).__name__}"
        )
    if not request:
        return {cost_of(compilation, program): None}
    check_outputs(compilation, "output_gradients", request)
    return _shaped(compilation, program, inputs, request)


def _shaped(
    compilation: Compilation, program: Program, inputs: list[Any], request: Mapping[str, Any]
) -> dict[str, Any]:
    """The cotangents as arrays, which must have the shapes of the outputs."""
    shapes = program.output_shapes(program.shapes_of(inputs))
    by_name = dict(zip(program.outputs, shapes, strict=True))
    out = {}
    for name, value in request.items():
        dtype, _ = program.output_types[name]
        if dtype is None or not dtype.is_float:
            raise ArgumentError(f"output_gradients: '{name}' is no tensor of floats")
        converted = compilation.convert(program.output_key(name), value)
        wanted, got = by_name[name], list(converted.shape)
        if wanted is not None and None not in wanted and got != wanted:
            raise ArgumentError(
                f"output_gradients: '{name}' has shape {wanted}, got {got}", code="MTH108"
            )
        out[name] = converted
    return out


def cost_of(compilation: Compilation, program: Program) -> str:
    """The output that `output_gradients=True` means: the cost, or the only scalar."""
    if FINAL_COST in program.outputs:
        return FINAL_COST
    fetched = {name for name, _ in compilation.options.fetch}
    own = [name for name in program.outputs if name not in fetched]
    if len(own) != 1:
        names = ", ".join(f"'{name}'" for name in own)
        raise ArgumentError(
            f"output_gradients=True requires one scalar output, got {names or 'none'}",
            hint="give a dictionary of cotangents",
        )
    _, shape = program.output_types[own[0]]
    if shape:
        raise ArgumentError(
            f"output_gradients=True requires a scalar output, '{own[0]}' has shape {shape}",
            hint="give a dictionary of cotangents",
        )
    return own[0]


def check_outputs(compilation: Compilation, what: str, names: Iterable[str]) -> None:
    """Raises unless these are names of outputs."""
    for name in names:
        if checked_str(what, name) not in compilation.compiled.outputs:
            near = suggestion(name, compilation.output_keys)
            raise KeyNotFound(f"{what}: no output named '{name}'{near}", code="MTH401")


__all__ = [
    "FINAL_COST",
    "check_gradients_allowed",
    "check_outputs",
    "cost_of",
    "cotangents_of",
    "names_of_inputs",
    "wanted_gradients",
]
