"""The inputs of a compiled model."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mithril.types import Dtype

if TYPE_CHECKING:
    from mithril.physical.options import CompileOptions

RANDOM_KEY = "rng_key"  # the state that dropout and its like draw from; the engine names it


@dataclass
class Key:
    """An input of a compiled model."""

    name: str
    role: str  # "data", "param", "state"
    trainable: bool
    is_tensor: bool
    dtype: Dtype | None
    type: str
    init: str
    initial: tuple
    shape_text: str
    path: str
    key: str  # of the model: "w", "$3"
    list: str = ""  # "xs" of "xs.0", a tensor of a list
    least_rank: int = 0  # where the rank is open
    open_kinds: tuple[str, ...] = ()  # "bool", "int", "float": what data decide

    @property
    def kept(self) -> Key:
        """The key of what an optimizer keeps of it: in float32 for float16 and bfloat16."""
        is_half = self.dtype in (Dtype.float16, Dtype.bfloat16)
        return dataclasses.replace(self, dtype=Dtype.float32) if is_half else self


def keys_of(compiled: Any, options: CompileOptions) -> list[Key]:
    """Lists the inputs of a compiled model; what is frozen stays a parameter."""
    keys = [Key(**entry) for entry in compiled.keys]
    for key in keys:
        key.trainable = key.trainable and key.name not in options.frozen
    return keys


__all__ = ["RANDOM_KEY", "Key", "keys_of"]
