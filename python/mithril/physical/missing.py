"""The error of inputs that a call does not bring."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mithril.base.explanations import at_line, near_miss
from mithril.errors import KeyNotFound, suggestion

if TYPE_CHECKING:
    from mithril.physical.compilation import Call, Compilation
    from mithril.physical.program_keys import Key


def missing_keys(compilation: Compilation, missing: list[Key], call: Call) -> KeyNotFound:
    """The error of inputs that a call does not bring, with what it may have meant."""
    names = ", ".join(f"'{key.name}'" for key in missing)
    roles = {key.role for key in missing}
    known = compilation.by_name.keys() | set(compilation.compiled.ignored_keys)
    extra = [name for name in (*call.params, *call.data, *call.state) if name not in known]
    near = [suggestion(name, [key.name for key in missing]) for name in extra]
    hints = [f"{name!r} is given{hint}" for name, hint in zip(extra, near, strict=True) if hint]
    if "state" in roles and not call.state:
        first = "initial_state()" if compilation.program else "initial_state(sample=data)"
        hints.append(f"state=pm.{first} is the first state")
    elif any(compilation.is_statistic(key) for key in missing):
        hints.append("running statistics are entries of params: {**params, **state}")
    if all(key.name in (call.data if key.role == "param" else call.params) for key in missing):
        hints.insert(0, "they are there, swapped: evaluate(params, data)")
        missing = []
    hints += _near_misses(compilation.node, missing)
    where = {"param": "params", "data": "data", "state": "state"}
    places = " and ".join(sorted({where[role] for role in roles}))
    return KeyNotFound(
        f"evaluate: {places} must have {names}", code="MTH402", hint="; ".join(hints)
    )


def _near_misses(node: Any, missing: list[Key]) -> list[str]:
    """Which line reads what is missing; which line wrote a wire of almost that name."""
    names = {key.name for key in missing}
    found = [miss for miss in node.near_misses() if miss[0] in names]
    told = {name for name, *_ in found}
    out = [near_miss(*miss) for miss in found]
    for name in sorted(names - told):
        reader = node.first_reader(name)
        if reader is not None and reader[3]:
            out.append(f"'{name}' is {reader[0]} ({at_line('', *reader[2:])})")
    return out


__all__ = ["missing_keys"]
