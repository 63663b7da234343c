"""The programs that run for given shapes, and the sizes of their inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

from mithril.base.checks import checked_mapping, checked_str
from mithril.errors import (
    ArgumentError,
    KeyNotFound,
    MithrilError,
    UnsupportedError,
    shown,
    suggestion,
)
from mithril.physical.compilation import Call, Compilation, compilation_of
from mithril.physical.gradients import cost_of, wanted_gradients
from mithril.physical.program import Program

Shapes = list[list[int | None]]


def checked_shapes(what: str, physical: Any, shapes: Any) -> dict[str, tuple[int, ...]]:
    """Checks `shapes` of inputs by name, every size a number, and returns them as tuples."""
    found, by_name = {}, compilation_of(physical).by_name
    for name, shape in checked_mapping(f"{what}: shapes", shapes).items():
        if checked_str(f"{what}: shapes", name) not in by_name:
            near = suggestion(name, by_name)
            raise KeyNotFound(f"{what}: shapes: no input named '{name}'{near}")
        is_list = isinstance(shape, Sequence) and not isinstance(shape, str)
        sizes = tuple(shape) if is_list else ()
        if not is_list or not all(type(size) is int and 0 <= size < 2**63 for size in sizes):
            raise ArgumentError(
                f"{what}: shapes: '{name}' requires a list of sizes, got {shown(shape)}"
            )
        found[name] = sizes
    return found


def program_for(what: str, physical: Any, given: Mapping[str, tuple[int, ...]]) -> Program:
    """Returns the program that data of these shapes would run."""
    compilation = compilation_of(physical)
    compiled = compilation.compiled
    if compiled.unknown_values:
        keys = ", ".join(compiled.unknown_values)
        raise UnsupportedError(
            f"{what}: the values of {keys} are open", hint="give them in constant_keys="
        )
    unknown = [*compiled.unknown_ranks, *compiled.unknown_sizes]
    missing = [n for n in unknown if n not in given and n in physical.data_keys]
    if missing:
        keys = ", ".join(missing)
        raise UnsupportedError(
            f"{what}: the shapes of {keys} are open",
            hint=f"say them, for example: shapes={shown({name: [1, 16] for name in missing})}",
        )
    data = {name: SimpleNamespace(shape=shape) for name, shape in given.items()}
    return compilation.program_for(Call(data=data))


def input_shapes(program: Program, given: Mapping[str, tuple[int, ...]]) -> Shapes:
    """Returns the shape of each input as far as these shapes tell it; [] for what is no tensor."""
    names = [key.name for key in program.keys]
    solved = zip(names, (shape for shape, _ in program.compiled.solve(dict(given))), strict=True)
    by_name = dict(solved)
    return [by_name[key.name] or [] if key.is_tensor else [] for key in program.inputs]


class ProgramKind(NamedTuple):
    """One of the programs of a model: "evaluate", "gradient" or "step", the engine's executable,
    and what each of its inputs is ("inputs", "parameters", "optimizer")."""

    name: str
    executable: Any
    roles: list[str]


def program_kinds(physical: Any, program: Program) -> list[ProgramKind]:
    """Lists the programs of the model, the one that takes the most memory last."""
    compilation = compilation_of(physical)
    optimizer = compilation.options.optimizer
    own = ["parameters" if key.role == "param" else "inputs" for key in program.inputs]
    out = [ProgramKind("evaluate", native(program.forward), own)]
    wanted = tuple(wanted_gradients(compilation, program, None))
    if physical.inference or not wanted:
        return out
    try:
        given, unit = _cotangents(compilation, program)
        executable = program._gradient(given, wanted, unit)
    except MithrilError:  # nothing has a gradient
        return out
    out.append(ProgramKind("gradient", native(executable), own + ["inputs"] * len(given)))
    if unit and optimizer is not None and optimizer.op:
        executable, order, _ = program.step_program(unit[0], optimizer)
        by_name = dict(zip((key.name for key in program.inputs), own, strict=True))
        roles = [by_name.get(name, "optimizer") for name in order]
        out.append(ProgramKind("step", native(executable), roles))
    return out


def native(executable: Any) -> Any:
    """Returns the engine's program that an executable such as `WatchedExecutable` wraps."""
    return getattr(executable, "_executable", executable)


def _cotangents(
    compilation: Compilation, program: Program
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Outputs whose cotangents are given, and the one whose cotangent is 1."""
    try:
        return (), (cost_of(compilation, program),)
    except ArgumentError:  # no single scalar
        types = program.output_types.items()
        return tuple(name for name, (dtype, _) in types if dtype and dtype.is_float), ()


__all__ = [
    "ProgramKind",
    "Shapes",
    "checked_shapes",
    "input_shapes",
    "native",
    "program_for",
    "program_kinds",
]
