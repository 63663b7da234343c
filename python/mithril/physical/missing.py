"""The error of inputs that a call does not bring."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from mithril.base.explanations import at_line, near_miss
from mithril.errors import ArgumentError, KeyNotFound, suggestion

if TYPE_CHECKING:
    from mithril.physical.compilation import Call, Compilation
    from mithril.physical.program_keys import Key


def missing_keys(compilation: Compilation, missing: list[Key], call: Call) -> KeyNotFound:
    """The error of inputs that a call does not bring, with what it may have meant."""
    names = ", ".join(f"'{key.name}'" for key in missing)
    roles = {key.role for key in missing}
    known = compilation.by_name.keys() | set(compilation.compiled.ignored_keys)
    extra = [name for name in (*call.params, *call.data, *call.state) if name not in known]
    naming = other_naming(compilation, [key.name for key in missing], extra)
    near = [suggestion(name, [key.name for key in missing]) for name in extra if not naming]
    hints = [f"{name!r} is given{hint}" for name, hint in zip(extra, near, strict=False) if hint]
    hints += [naming] if naming else []
    swapped = _swapped(missing, call)
    states = [key.name for key in missing if key.role == "state"]
    if any(name in call.params for name in states):
        hints.append("the state is among params: params, state = pm.split_state(params)")
    elif "state" in roles and not call.state:
        first = "initial_state()" if compilation.program else "initial_state(sample=data)"
        hints.append(f"state=pm.{first} is the first state")
    elif any(compilation.is_statistic(key) for key in missing):
        hints.append("running statistics are entries of params: {**params, **state}")
    if swapped:
        hints.insert(0, swapped)
        missing = []
    if naming:
        missing = [key for key in missing if key.role != "param"]
    hints += _near_misses(compilation.node, missing)
    where = {"param": "params", "data": "data", "state": "state"}
    places = " and ".join(sorted({where[role] for role in roles}))
    return KeyNotFound(
        f"evaluate: {places} must have {names}", code="MTH402", hint="; ".join(hints)
    )


def _swapped(missing: list[Key], call: Call) -> str:
    """A hint for keys that the call brings in the place of others; "" unless that is all."""
    missing = [key for key in missing if key.role != "state"]
    roles = {key.role for key in missing}
    other = {"param": call.data, "data": call.params}
    if not missing or any(key.name not in other[key.role] for key in missing):
        return ""
    if len(roles) == 2:
        return "they are there, swapped: evaluate(params, data)"
    place, taken_for = ("data", "params") if roles == {"param"} else ("params", "data")
    names = ", ".join(f"'{key.name}'" for key in missing[:3]) + (", ..." if missing[3:] else "")
    return f"{names} in {place} belongs in {taken_for}: evaluate(params, data)"


def missing_parameters(
    compilation: Compilation, missing: list[str], given: Mapping[str, Any], opt_state: Any
) -> KeyNotFound:
    """The error of parameters that a step does not bring."""
    hint = other_naming(compilation, missing, given)
    if "step" in given and isinstance(opt_state, Mapping) and missing[0] in opt_state:
        hint = "params and opt_state are swapped: step(params, opt_state, data)"
    near = "" if hint else suggestion(missing[0], given)
    return KeyNotFound(f"step: params must have '{missing[0]}'{near}", code="MTH402", hint=hint)


def refuse_swapped_data(opt_state: Any, data: Any) -> None:
    """Raises where the second and the third argument of a step stand in each other's place."""
    if not isinstance(opt_state, Mapping) or not isinstance(data, Mapping):
        return
    if "step" in data and "step" not in opt_state and opt_state:
        raise ArgumentError(
            "step: opt_state and data are swapped", hint="write step(params, opt_state, data)"
        )


def other_naming(compilation: Compilation, missing: Iterable[str], given: Iterable[str]) -> str:
    """A hint to compile otherwise where names are those of naming="path" and the model has others,
    or the other way around; else ""."""
    by_path = compilation.options.path_names
    ends = {_end(name) for name in missing if ("." in name) == by_path}
    foreign = [
        name
        for name in given
        if isinstance(name, str) and ("." in name) != by_path and _end(name) in ends
    ]
    if not foreign:
        return ""
    few = ", ".join(f"'{name}'" for name in foreign[:2]) + (", ..." if foreign[2:] else "")
    if by_path:
        return f'names such as {few} are those without naming="path": compile without it'
    return f'names such as {few} are those of naming="path": compile with it'


def _end(name: str) -> str:
    """Returns a name's last part without its number: "encoder.fc.weight", "weight_0" -> weight."""
    return re.sub(r"_\d+$", "", name.rpartition(".")[2])


def _near_misses(node: Any, missing: list[Key]) -> list[str]:
    """Lists lines that read what is missing, and lines that wrote a wire of almost that name."""
    names = {key.name for key in missing}
    found = [miss for miss in node.near_misses() if miss[0] in names]
    told = {name for name, *_ in found}
    out = [near_miss(*miss) for miss in found]
    for name in sorted(names - told):
        reader = node.first_reader(name)
        if reader is not None and reader[3]:
            out.append(f"'{name}' is {reader[0]} ({at_line('', *reader[2:])})")
    return out


__all__ = ["missing_keys", "missing_parameters", "other_naming", "refuse_swapped_data"]
