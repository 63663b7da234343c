"""Checked arguments of models: names, keys, configurations. Each refusal is a typed error."""

from __future__ import annotations

from typing import Any

from mithril.base.checks import checked_mapping, checked_str
from mithril.errors import KeyNotFound, SignatureError, shown
from mithril.logical.connection import Connection
from mithril.types import Dtype


def model_name(name: Any) -> str:
    return "" if name is None else checked_str("model: name", name)


def key_of(what: str, key: Any) -> Any:
    """Returns the engine's form of a key of a model: a name, or the wire of a connection."""
    if isinstance(key, Connection):
        if key._request is not None and key._request.made_wires is None:
            raise KeyNotFound(
                f"{what}: {key!r} is in no model yet", hint="extend a model with it first"
            )
        return key._wire
    if not isinstance(key, str) or isinstance(key, Dtype):
        raise SignatureError(f"{what}: requires a name or a connection, got {shown(key)}")
    return checked_str(what, key)


def pairs_of(what: str, config: Any, kwargs: dict[str, Any]) -> list[tuple[Any, Any]]:
    """Returns (key, fact) pairs of a configuration given as a dictionary, as keywords, or both."""
    said = {**checked_mapping(f"{what}: config", config), **kwargs}
    return [(key_of(what, key), value) for key, value in said.items()]


def shape_item(item: Any, symbolic: bool) -> Any:
    if isinstance(item, tuple):
        return f"({item[0]}, ...)" if symbolic else "..."
    return item if symbolic or isinstance(item, int) else None
