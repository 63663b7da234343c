"""Text about a model for its user: why a wire is as it is, which names look misspelt."""

from __future__ import annotations

import itertools
import math
import os
from collections import deque
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from mithril import _core
from mithril.errors import Fact, Place, ShapeError


def at_line(by: str, file: str, line: int) -> str:
    """Formats what is known of a call: "Relu, train.py:14"."""
    place = f"{os.path.basename(file)}:{line}" if line else ""
    return ", ".join(part for part in (by, place) if part)


def _known(node: Any, key: Any) -> str:
    """Describes the shape or type of a wire as `why` does: "x : [N, 3]"."""
    name = key if isinstance(key, str) else key.key_name
    shapes = node.shapes([key])[0]
    if not shapes:
        return f"{name} : {node.type(key)}"
    items = [f"({i[0]}, ...)" if isinstance(i, tuple) else str(i) for i in shapes[0]]
    return f"{name} : [{', '.join(items)}]"


def why(node: Any, key: Any) -> str:
    rows = node.why(key)
    width = max((len(text) for text, *_ in rows), default=0)
    lines = [_known(node, key)]
    for text, by, file, line in rows:
        origin = at_line(by, file, line)
        lines.append(f"  {text:<{width}}    <- {origin}" if origin else f"  {text}")
    return "\n".join(lines)


# --- layers that were called in vain ------------------------------------------------------------


class Dropped(NamedTuple):
    """A call of a layer whose result was not added to a model."""

    title: str
    names: frozenset[str]
    place: Place


_dropped: deque[Dropped] = deque(maxlen=64)


def note_dropped(title: str, names: frozenset[str], place: Place) -> None:
    _dropped.append(Dropped(title, names, place))


def take_dropped(names: set[str]) -> list[Dropped]:
    """The dropped calls that mention wires of a model; each is told once."""
    found = [call for call in _dropped if call.names & names]
    for call in found:
        _dropped.remove(call)
    return found


# --- the report ---------------------------------------------------------------------------------


def report(node: Any, data_keys: Any, stated: set[str]) -> list[str]:
    """Lists likely mistakes: inputs that almost name a wire, layers whose results were dropped.

    `stated` are the inputs that the user named in the call of compile: those are meant.
    """
    lines = []
    for name, wire, read, written in node.near_misses():
        if name in data_keys and name not in stated:
            lines.append(near_miss(name, wire, read, written))
    for call in take_dropped({key for key in node.all_keys if not key.startswith("$")}):
        lines.append(
            f"the result of {call.title} is dropped:"
            f" {at_line('', call.place.file, call.place.line)} calls it and puts it nowhere;"
            " write `model |= ...`"
        )
    return lines


def near_miss(name: str, wire: str, read: tuple, written: tuple) -> str:
    text, _, *reader = read
    by, _, *writer = written
    return (
        f"the input '{name}' is almost the wire '{wire}': '{name}' is"
        f" {text} ({at_line('', *reader)}), '{wire}' is {by} ({at_line('', *writer)});"
        f" did you mean '{wire}'?"
    )


# --- who reads an input -------------------------------------------------------------------------


class Reader(NamedTuple):
    """An op that reads an input of the model: by which of its keys, and where it is."""

    key: str
    op: str
    title: str  # "Embedding 'gpt.wte'"


def readers(node: Any, key: str, most: int = 64) -> list[Reader]:
    """The ops that read a wire of a model, at any depth; `most` models are looked at."""
    found: list[Reader] = []
    ahead = [(node, key, "")]
    for _ in range(most):
        if not ahead:
            break
        part, wire, path = ahead.pop(0)
        if part.op:
            is_named = path.lower() not in ("", part.class_name.lower())
            title = f"{part.class_name} '{path}'" if is_named else part.class_name
            found.append(Reader(wire, part.op, title))
            continue
        for name, child in zip(part.submodel_names, part.submodels, strict=True):
            inputs = child.input_keys
            own = [k for k, w in part.wiring(child) if w.key_name == wire and k in inputs]
            ahead += [(child, k, f"{path}.{name}" if path else name) for k in own]
    return found


def _takes_classes(reader: Reader) -> bool:
    return reader.op.endswith("cross_entropy") and reader.key == "target"


_ONE_HOT = "'target' of {} takes class numbers; one-hot targets are those of ml.CrossEntropy({})"


def kind_hint(node: Any, key: str, rank: int) -> str:
    """A hint for floats where an input takes integers; `rank` is that of the floats."""
    found = readers(node, key)
    for reader in found:
        if _takes_classes(reader):
            if rank > 1:
                return _ONE_HOT.format(reader.title, "categorical=False")
            return f"'target' of {reader.title} takes class numbers: cast the data, if they are"
        if reader.op == "embedding":
            return (
                f"{reader.key!r} of {reader.title} takes row numbers, such as ids of tokens: cast"
                " the data only if they are; measured values go into a layer such as Linear"
            )
    by = f" for {found[0].key!r} of {found[0].title}" if found else ""
    return f"cast the data{by}, if that is what you mean"


# --- data that do not fit -----------------------------------------------------------------------


def data_error(error: ShapeError, node: Any, compiled: tuple[str, int]) -> ShapeError:
    """The same error with the facts that the required shape follows from, and a hint.

    `error` comes from the check of data: its facts are the required and the given shape.
    `compiled` is the line that called compile.
    """
    if len(error.facts) != 2:
        return error
    required, given = (fact.text for fact in error.facts)
    name = required.partition(" : ")[0]
    message, *rest = error.message.splitlines()
    reasons = [line.strip() for line in rest if " is " in line and "by the other" in line]
    facts: list[Any] = [(required, compiled, "compile", 0), *_known_facts(node, name)]
    here = _core.user_location()
    facts.append((given, here, "", 0))
    wanted = _sizes(required, _known_sizes(reasons))
    hint = _class_hint(node, name, wanted, _sizes(given)) or _shape_hint(wanted, _sizes(given))
    if not hint and reasons and wanted is not None and None not in wanted:
        hint = f"{wanted} goes with the other inputs"
    text = _core.error_text(message, here, facts, reasons, "")
    said = tuple(Fact(text, Place(at[0], at[1], ""), by) for text, at, by, _ in facts)
    return type(error)._plain(text, code=error.code, hint=hint, facts=said, place=Place(*here, ""))


def _known_facts(node: Any, name: str, most: int = 3) -> list[tuple]:
    if node.find_connection(name) is None:
        return []
    rows = [(text, (file, line), by, 1) for text, by, file, line in node.why(name)]
    return [row for row in rows if row[0].startswith(f"{name} : ")][:most] or rows[:1]


def _known_sizes(reasons: Sequence[str]) -> dict[str, str]:
    """["N is 4 by the other inputs"] -> {"N": "4"}."""
    pairs = (reason.partition(" by the other")[0].split(" is ") for reason in reasons)
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}


def _sizes(fact: str, known: Mapping[str, str] = MappingProxyType({})) -> list[int | None] | None:
    """ "x : [N, 3]" -> [None, 3]; None where the number of axes is open."""
    text = fact.partition(" : ")[2].strip("[]")
    if "..." in text:
        return None
    items = [known.get(item.strip(), item.strip()) for item in text.split(",")] if text else []
    return [int(item) if item.isdigit() else None for item in items]


Sizes = list[int | None] | None


def _fits(sizes: Sequence[int | None], wanted: Sequence[int | None]) -> bool:
    pairs = zip(sizes, wanted, strict=True)
    return all(w is None or s == w for s, w in pairs)


def _class_hint(node: Any, key: str, wanted: Sizes, given: Sizes) -> str:
    """One-hot targets where class numbers are taken."""
    if wanted is None or given is None or len(given) != len(wanted) + 1:
        return ""
    if len(given) < 2 or given[1] == 1 or node.find_connection(key) is None:
        return ""
    found = next((reader for reader in readers(node, key) if _takes_classes(reader)), None)
    return _ONE_HOT.format(found.title, "categorical=False") if found else ""


def _shape_hint(wanted: Sizes, given: Sizes) -> str:
    if wanted is None or given is None or len(wanted) > 5:
        return ""
    if len(given) == len(wanted):
        for order in itertools.permutations(range(len(given))):
            moved = [given[axis] for axis in order]
            if _fits(moved, wanted):
                how = f" transpose it by {order}" if len(order) > 2 else ""
                return f"the axes are in another order: did you mean {moved}?{how}"
    elif len(given) < len(wanted):
        return _missing_axes(wanted, given)
    elif len(given) == len(wanted) + 1 and 1 in given:
        for axis in reversed(range(len(given))):
            fewer = [*given[:axis], *given[axis + 1 :]]
            if given[axis] == 1 and _fits(fewer, wanted):
                return f"an axis of size 1 is too much: {fewer} would fit"
    if len(given) > len(wanted) and len(wanted) == 2 and None not in given:
        width = math.prod(size or 0 for size in given[1:])
        if wanted[1] == width:
            return f"flatten it: {[given[0], width]} would fit"
    return ""


def _missing_axes(wanted: Sequence[int | None], given: Sequence[int | None]) -> str:
    """The shape with axes of size 1: the first ones, or one that the model has elsewhere."""
    count = len(wanted) - len(given)
    if all(size in (None, 1) for size in wanted[:count]) and _fits(given, wanted[count:]):
        told = "a first axis is" if count == 1 else "the first axes are"
        return f"{told} missing: {[*[1] * count, *given]} would fit"
    for axis in range(1, len(wanted) if count == 1 else 0):
        if wanted[axis] == 1 and _fits(given, [*wanted[:axis], *wanted[axis + 1 :]]):
            return f"axis {axis} is missing: {[*given[:axis], 1, *given[axis:]]} would fit"
    return ""
