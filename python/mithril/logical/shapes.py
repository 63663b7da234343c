"""Shapes as `get_shapes` shows them: of models and of compiled ones, each under its keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mithril.base.checks import checked_instance
from mithril.errors import SignatureError, shown

Shapes = dict[str, list | None]


def shapes_by_name(
    node: Any,
    names: Mapping[str, str],
    symbolic: bool,
    verbose: bool,
    uni_keys: Any = None,
    var_keys: Any = None,
) -> Shapes:
    """Name -> shape of the wires of a model, for key -> name.

    A shape is a list of sizes, names ("u1") and "(V1, ...)"; not `symbolic`: None and "...". With
    `verbose` it is the list of all that is known of the shape, where that is more than one.
    `uni_keys` and `var_keys` say what to print for "u1" and "V1", and get the names they lack.
    """
    symbols = [_renames("uni_keys", uni_keys), _renames("var_keys", var_keys)]
    out: Shapes = {}
    for (key, name), found in zip(names.items(), node.shapes(list(names)), strict=True):
        every = [[_item(item, symbolic, *symbols) for item in shape] for shape in found]
        several = verbose and len(every) > 1
        out[key if name in out else name] = every if several else every[0] if every else None
    return out


def model_names(node: Any) -> dict[str, str]:
    """Every key of a model -> what it is shown as: its name, or a generated one ("$weight_0")."""
    generated = dict(node.generate_keys(True, True))
    return {key: generated.get(key, key) for key in node.all_keys}


def _renames(what: str, given: Any) -> dict[str, str] | None:
    if given is not None:
        checked_instance(f"get_shapes: {what}", given, dict, "a dictionary of names")
    return given


def _item(item: Any, symbolic: bool, sizes: Any, variadics: Any) -> Any:
    if isinstance(item, int):
        return item
    if not symbolic:
        return "..." if isinstance(item, tuple) else None
    if isinstance(item, tuple):
        return f"({_named(item[0], variadics)}, ...)"
    return _named(item, sizes)


def _named(symbol: str, names: dict[str, str] | None) -> str:
    if names is None:
        return symbol
    name = names.setdefault(symbol, symbol)
    if not isinstance(name, str):
        raise SignatureError(f"get_shapes: a name of a size requires a string, got {shown(name)}")
    return name


__all__ = ["Shapes", "model_names", "shapes_by_name"]
