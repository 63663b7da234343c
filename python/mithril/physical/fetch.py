"""`evaluate(fetch=[...])`: wires at any depth of a model as further outputs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from mithril.base.checks import checked_list, checked_str
from mithril.errors import ArgumentError, KeyNotFound, SignatureError, shown, suggestion
from mithril.logical.connection import Connection
from mithril.physical.derived import compiled_with

if TYPE_CHECKING:
    from mithril.physical.compilation import Compilation

MOST_FETCHES = 16  # models with further outputs that one keeps


def fetching(physical: Any, fetch: Any) -> Any:
    """The physical model whose outputs are these wires, too; compiled once for equal sets."""
    compilation: Compilation = physical._compilation
    given = (
        [fetch] if isinstance(fetch, str | Connection) else checked_list("fetch", fetch, "names")
    )
    wires = _wires(compilation, given)
    if not wires:
        return physical
    key = tuple(sorted(wires))
    return compilation.fetches.get_or_make(
        key, lambda: compiled_with(physical, fetch=[(name, wires[name]) for name in key])
    )


def _wires(compilation: Compilation, names: Iterable[Any]) -> dict[str, Any]:
    """Name in the result -> wire, of what is no output anyhow."""
    out: dict[str, Any] = {}
    for given in names:
        name, wire = _wire(compilation, given)
        if wire is None:
            continue
        if name in out and not out[name].same_wire(wire):
            raise ArgumentError(f"fetch: two wires are called '{name}'", hint="give their paths")
        out[name] = wire
    return out


def _wire(compilation: Compilation, given: Any) -> tuple[str, Any]:
    if isinstance(given, Connection):
        wire = compilation.snapshot.wire(given._wire)
        return wire.key_name, wire
    if not isinstance(given, str):
        raise SignatureError(f"fetch: requires names, paths or connections, got {shown(given)}")
    path = checked_str("fetch", given)
    if path in compilation.output_keys:
        return path, None
    node, by_name = compilation.node, compilation.by_name
    if path in by_name and by_name[path].key:
        return path, node.connection(by_name[path].key)
    try:
        return path, node.connection_at(path)
    except KeyNotFound:
        wire = _result_of(node, path)
        if wire is None:
            raise _unknown(node, path) from None
        return path, wire


def _unknown(node: Any, path: str) -> KeyNotFound:
    """The first part of the path that is not there, with what is called alike beside it."""
    part, rest = node, path
    while "." in rest:
        head, _, tail = rest.partition(".")
        try:
            part = part.submodel(head)
        except KeyNotFound:
            break
        rest = tail
    name = rest.partition(".")[0]
    inside = path[: len(path) - len(rest)].removesuffix(".")
    where = f"'{inside}'" if inside else "the model"
    near = suggestion(name, [*part.all_keys, *part.submodel_names])
    return KeyNotFound(f"fetch: {where} has no wire or submodel '{name}'{near}")


def _result_of(node: Any, path: str) -> Any:
    """The output of the submodel at a path; None where there is no submodel."""
    try:
        part = node.submodel(path)
    except KeyNotFound:
        return None
    wires = [part.connection(key) for key in part.output_keys] or part.couts
    if len(wires) != 1:
        names = ", ".join(f"'{path}.{wire.key_name}'" for wire in wires)
        raise ArgumentError(f"fetch: '{path}' has several outputs: {names or 'none'}")
    return wires[0]


__all__ = ["fetching"]
