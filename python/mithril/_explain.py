"""What became of a submodel, read from the graphs of the stages of compiling."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mithril.errors import KeyNotFound, UnsupportedError, suggestion


def explain(physical: Any, name: str, shapes: Mapping[str, Sequence[int]]) -> list[str]:
    """See `mithril.inspect.explain`."""
    compiled = physical._compiled
    if compiled.unknown_ranks:
        keys = ", ".join(compiled.unknown_ranks)
        raise UnsupportedError(f"explain: the ranks of {keys} are open", hint="give shapes=")
    flat = compiled.graph.nodes()
    paths = list(dict.fromkeys(path for _, path, *_ in flat if _is_in(path, name)))
    if not paths:
        known = [part for _, path, *_ in flat for part in (path, path.rpartition(".")[2])]
        near = suggestion(name, list(dict.fromkeys(known)))
        raise KeyNotFound(f"explain: no submodel named {name!r} is in the graph{near}")
    groups = _groups(physical, shapes)
    lines = []
    for path in paths:
        whole = [op for op, at, *_ in flat if at == path]
        lines.append(f"{path}: {', '.join(whole)}")
        lines += [f"  {text}" for text in _facts(physical, path, whole, groups)]
    return lines


def _is_in(path: str, name: str) -> bool:
    return f".{name}." in f".{path}."


def _facts(physical: Any, path: str, whole: list[str], groups: list | str | None) -> Iterable[str]:
    left = [op for op, at, *_ in physical._compiled.forward.nodes() if at == path]
    if not left:
        yield "nothing of it is left: it is constant, equal to another one, or read by nothing"
        return
    if left != whole:
        yield f"decomposed into {', '.join(left)}"
    if groups is None:
        yield from _emitted(physical, left)
    elif isinstance(groups, str):
        yield groups
    else:
        yield from _planned(path, groups)


def _emitted(physical: Any, ops: list[str]) -> Iterable[str]:
    for op in dict.fromkeys(ops):
        native = op in physical.backend.op_names
        how = "runs as the backend's own function" if native else "is printed as its expression"
        yield f"{op} {how}"


def _planned(path: str, groups: list) -> Iterable[str]:
    found = [group for group in groups if any(at == path for _, at in group[2])]
    if not found:
        yield "nothing of it is left at these sizes"
    for is_loop, shape, members in found:
        if is_loop and len(members) > 1:
            texts = "; ".join(f"{at}: {op}" if at else op for op, at in members)
            yield f"fused into one loop over {list(shape)}: {texts}"
        elif is_loop:
            yield f"{members[0][0]} is a loop of its own over {list(shape)}"
        else:
            yield f"{members[0][0]} is not fused: it is no pointwise op and no reduction of rows"


def _groups(physical: Any, shapes: Mapping[str, Sequence[int]]) -> list | str | None:
    """Of a planned program; None where source is emitted; a text if it cannot be told."""
    program = physical._program.forward
    if not hasattr(program, "groups"):
        return None
    given = {name: tuple(shape) for name, shape in shapes.items()}
    keys = [key.name for key in physical._keys]
    sizes = dict(zip(keys, (s for s, _ in physical._compiled.solve(given)), strict=True))
    inputs = [sizes[key.name] if key.is_tensor else [] for key in physical._program.inputs]
    if any(shape is None or None in shape for shape in inputs):
        return "what is fused depends on sizes that are open: give shapes="
    try:
        return program.groups(inputs)
    except UnsupportedError as error:
        return f"unsupported: {error}"
