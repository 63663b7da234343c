"""Models that a compiled model makes of itself for calls that it cannot serve."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mithril.physical.compilation import Compilation


def compiled_with(physical: Any, **changes: Any) -> Any:
    """The same model with other options; what one has warned of the other does not say again."""
    compilation: Compilation = physical._compilation
    made = type(physical)(compilation.snapshot, replace(compilation.options, **changes))
    made._compilation.told = compilation.told
    return made


__all__ = ["compiled_with"]
