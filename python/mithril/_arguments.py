"""What models take from Python: names, keys, configurations. Each refusal is a typed error."""

from __future__ import annotations

from typing import Any

from mithril.connection import Connection
from mithril.errors import ArgumentError, KeyNotFound, SignatureError, shown
from mithril.types import Dtype


def model_name(name: Any) -> str:
    if name is None:
        return ""
    if not isinstance(name, str) or isinstance(name, Dtype):
        raise SignatureError(f"model: name requires a string, got {shown(name)}")
    return text("model: name", name)


def text(what: str, text: Any) -> str:
    if not isinstance(text, str) or isinstance(text, Dtype):
        raise SignatureError(f"{what}: requires a string, got {shown(text)}")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ArgumentError(f"{what}: text must be valid unicode, got {shown(text)}") from None
    return text


def key_of(key: Any) -> Any:
    if isinstance(key, Connection):
        if key._request is not None and key._request.made_wires is None:
            raise KeyNotFound(
                f"key: {key!r} is in no model yet", hint="extend a model with it first"
            )
        return key._wire
    if not isinstance(key, str):
        raise SignatureError(f"key: requires a name or a connection, got {type(key).__name__}")
    return key


def pairs_of(config: dict | None, kwargs: dict) -> list[tuple[Any, Any]]:
    if config is not None and not isinstance(config, dict):
        raise SignatureError(f"config: requires a dictionary, got {type(config).__name__}")
    return [(key_of(key), value) for key, value in {**(config or {}), **kwargs}.items()]


def shape_item(item: Any, symbolic: bool) -> Any:
    if isinstance(item, tuple):
        return f"({item[0]}, ...)" if symbolic else "..."
    return item if symbolic or isinstance(item, int) else None
