"""What pickles of compiled models are made of: the model's own JSON and what `compile` was told.
Programs are made again."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from mithril import _core
from mithril.logical.model import Model
from mithril.physical.compilation import compilation_of
from mithril.physical.options import CompileOptions

if TYPE_CHECKING:
    from mithril.physical.model import PhysicalModel

_KEYS = ("data_keys", "trainable_keys", "discard_keys")
_PAIRS = ("constants", "types", "dtypes", "shapes")


def physical_parts(physical: Any) -> tuple[Any, ...]:
    compilation = compilation_of(physical)
    options = compilation.options
    said = {f.name: getattr(options, f.name) for f in fields(options) if f.name != "recorder"}
    said |= {option: [_name(key) for key in said[option]] for option in _KEYS}
    said |= {option: [(_name(key), value) for key, value in said[option]] for option in _PAIRS}
    return physical_of, (type(physical), _core.model_to_json(compilation.node, True, ""), said)


def _name(key: Any) -> Any:
    """A name in place of a wire."""
    return key.key_name if isinstance(key, _core.Wire) else key


def physical_of(cls: type[PhysicalModel], text: str, said: dict[str, Any]) -> PhysicalModel:
    """The compiled model of what a pickle has."""
    return cls(_core.Snapshot(Model.from_json(text)._node), CompileOptions(**said))


__all__ = ["physical_of", "physical_parts"]
