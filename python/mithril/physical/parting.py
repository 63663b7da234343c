"""Parts what files and state dicts have in one dictionary: parameters, and the model's state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mithril.errors import KeyNotFound, shown, suggestion
from mithril.physical.compilation import Compilation
from mithril.physical.missing import other_naming
from mithril.physical.program_keys import RANDOM_KEY, Key


def part(compilation: Compilation, arrays: Mapping[str, Any]) -> tuple[dict, dict]:
    """(parameters, states), each in the order of the model's inputs."""
    lists = compilation.lists
    wanted = lists.names(compilation.param_keys) if lists else compilation.param_keys
    known = {*wanted, *compilation.state_keys, RANDOM_KEY}
    unknown = [name for name in arrays if name not in known]
    if unknown:
        naming = other_naming(compilation, wanted, unknown)
        near = "" if naming else suggestion(unknown[0], known)
        raise KeyNotFound(f"split_state: the model has no {shown(unknown[0])}{near}", hint=naming)
    missing = [name for name in [*wanted, *kept_states(compilation)] if name not in arrays]
    if missing:
        near = suggestion(missing[0], arrays)
        raise KeyNotFound(f"split_state: arrays must have '{missing[0]}'{near}", code="MTH402")
    state = {name: arrays[name] for name in compilation.state_keys if name in arrays}
    return {name: arrays[name] for name in wanted}, state


def kept_states(compilation: Compilation) -> list[str]:
    """The states that belong to a trained model: all but keys of random numbers, of which another
    is as good."""
    return [key.name for key in compilation.keys if key.role == "state" and not _is_random(key)]


def _is_random(key: Key) -> bool:
    first = key.initial[0] if key.initial else None
    return isinstance(first, str) and first == "key"


__all__ = ["kept_states", "part"]
