"""Which program runs for given shapes, and with what sizes of its inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from mithril._checks import mapping, text
from mithril._program import Program
from mithril.errors import ArgumentError, KeyNotFound, UnsupportedError, shown, suggestion

Shapes = list[list[int | None]]


def checked_shapes(what: str, physical: Any, shapes: Any) -> dict[str, tuple[int, ...]]:
    """`shapes` of inputs by name, every size a number."""
    found = {}
    for name, shape in mapping(f"{what}: shapes", shapes).items():
        if text(f"{what}: shapes", name) not in physical.input_keys:
            near = suggestion(name, physical.input_keys)
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
    """The program that data of these shapes would run."""
    unknown = physical._compiled.unknown_ranks
    missing = [n for n in unknown if n not in given and n in physical.data_keys]
    if missing:
        keys = ", ".join(missing)
        raise UnsupportedError(f"{what}: the ranks of {keys} are open", hint="give shapes=")
    return physical._ready({name: SimpleNamespace(shape=shape) for name, shape in given.items()})


def input_shapes(program: Program, given: Mapping[str, tuple[int, ...]]) -> Shapes:
    """Of each input as far as these shapes tell it; [] for what is no tensor."""
    names = [key.name for key in program.keys]
    solved = zip(names, (shape for shape, _ in program.compiled.solve(dict(given))), strict=True)
    by_name = dict(solved)
    return [by_name[key.name] or [] if key.is_tensor else [] for key in program.inputs]


def native(executable: Any) -> Any:
    """The program of plans in an executable that looks at its results."""
    return getattr(executable, "_executable", executable)


__all__ = ["checked_shapes", "input_shapes", "native", "program_for"]
