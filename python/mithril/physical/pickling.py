"""Pickles of compiled models: the model's own JSON and the options of `compile`. Programs are made
again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from mithril import _core
from mithril.logical.handles import node_of
from mithril.logical.model import Model
from mithril.physical.compilation import compilation_of
from mithril.physical.options import CompileOptions

if TYPE_CHECKING:
    from mithril.physical.model import PhysicalModel

_KEYS = ("data_keys", "trainable_keys", "discard_keys")
_PAIRS = ("constants", "types", "dtypes", "shapes")  # key first
_RENAMED = {"exact_linalg": "canonical"}  # options of older files, and what they are called now


def physical_parts(physical: Any) -> tuple[Any, ...]:
    compilation = compilation_of(physical)
    options = compilation.options
    said = {f.name: getattr(options, f.name) for f in fields(options) if f.name != "recorder"}
    node = compilation.node

    def key_of(key: Any) -> str:
        return key if isinstance(key, str) else node.find_connection(key).key_name

    text = _core.model_to_json(node, True, "")
    return physical_of, (type(physical), text, _with_keys(said, key_of))


def physical_of(cls: type[PhysicalModel], text: str, said: dict[str, Any]) -> PhysicalModel:
    """Restores a compiled model from what its pickle holds."""
    said = {_RENAMED.get(option, option): value for option, value in said.items()}
    snapshot = _core.Snapshot(node_of(Model.from_json(text)))
    node = snapshot.model

    def wire_of(key: str) -> Any:
        """Returns the wire of a generated key ("$3"), which no option may name; others stay."""
        return node.connection(key) if key.startswith("$") else key

    return cls(snapshot, CompileOptions(**_with_keys(said, wire_of)))


def _with_keys(said: dict[str, Any], key: Callable[[Any], Any]) -> dict[str, Any]:
    """Returns the options with each key replaced by `key(…)` of it."""
    keys = {option: [key(given) for given in said[option]] for option in _KEYS}
    pairs = {option: [(key(given), value) for given, value in said[option]] for option in _PAIRS}
    return said | keys | pairs


__all__ = ["physical_of", "physical_parts"]
