"""`evaluate(fetch=[...])`: wires at any depth of a model as further outputs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from mithril.base.checks import checked_list, checked_str
from mithril.errors import ArgumentError, KeyNotFound, SignatureError, shown, suggestion
from mithril.logical.arguments import key_of
from mithril.logical.connection import Connection
from mithril.physical.derived import compiled_with

if TYPE_CHECKING:
    from mithril.physical.compilation import Compilation

MOST_FETCHES = 16  # models with further outputs that one keeps


def fetching(physical: Any, fetch: Any) -> Any:
    """The physical model whose outputs are these wires, too; compiled once for equal sets."""
    given = (
        [fetch] if isinstance(fetch, str | Connection) else checked_list("fetch", fetch, "names")
    )
    wires = _wires(physical, given)
    return _with_outputs(physical, wires)


def with_wire(physical: Any, given: Connection) -> tuple[Any, str]:
    """The physical model one of whose outputs is this wire, and what it is called there."""
    name, wire = _connection(physical, given)
    while wire is not None and name in physical.output_keys:
        name = f"_{name}"
    return _with_outputs(physical, {} if wire is None else {name: wire}), name


def _with_outputs(physical: Any, wires: dict[str, Any]) -> Any:
    if not wires:
        return physical
    compilation: Compilation = physical._compilation
    names = sorted(wires)
    return compilation.fetches.get_or_make(
        tuple((name, _way_to(wires[name])) for name in names),
        lambda: compiled_with(physical, fetch=[(name, wires[name]) for name in names]),
    )


def _way_to(wire: Any) -> tuple[int | str, ...]:
    """The key of a wire in its part, and behind it the places of the parts that it is in."""
    way: list[int | str] = [wire.key_name]
    part = wire.model
    while part.parent is not None:
        way.append(part.parent.submodels.index(part))
        part = part.parent
    return tuple(way)


def _wires(physical: Any, names: Iterable[Any]) -> dict[str, Any]:
    """Name in the result -> wire, of what is no output anyhow."""
    out: dict[str, Any] = {}
    for given in names:
        name, wire = _wire(physical, given)
        if wire is None:
            continue
        is_other = name in out and not out[name].same_wire(wire)
        if is_other or name in physical.output_keys:
            raise ArgumentError(f"fetch: two wires are called '{name}'", hint="give their paths")
        out[name] = wire
    return out


def _connection(physical: Any, given: Connection) -> tuple[str, Any]:
    """The key of a wire and the wire; None for it where it is the output of this name."""
    compilation: Compilation = physical._compilation
    wire = compilation.snapshot.wire(key_of("fetch", given))
    if wire.model is None:
        raise KeyNotFound(
            f"fetch: {given!r} is in no model yet", hint="give a connection of the compiled model"
        )
    name = wire.key_name
    if name not in compilation.output_keys:
        return name, wire
    called = physical._key_facts.names.get(compilation.key_of(wire))
    return name, None if called == name else wire


def _wire(physical: Any, given: Any) -> tuple[str, Any]:
    if isinstance(given, Connection):
        return _connection(physical, given)
    compilation: Compilation = physical._compilation
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


__all__ = ["fetching", "with_wire"]
