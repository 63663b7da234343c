"""What models say of themselves in a terminal and in a notebook."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from mithril._checks import text, truth, whole
from mithril.drawing.diagram import clean
from mithril.errors import ArgumentError, SignatureError, shown

MOST_BOXES = 200  # of a picture in a notebook
_CELL = ' style="text-align:left"'


def summary_flags(**flags: Any) -> dict[str, bool]:
    """Which columns and rows a table has."""
    return {name: truth(f"summary: {name}", flag) for name, flag in flags.items()}


# --- compiled models -----------------------------------------------------------------------------


def parameter_count(physical: Any) -> str:
    """Elements of all trainable inputs; ">" before it where some sizes are open."""
    shapes = [physical.shapes[name] for name in physical.trainable_keys]
    known = [shape for shape in shapes if shape is not None and None not in shape]
    total = sum(math.prod(shape) for shape in known)
    return f"{total:,}" if len(known) == len(shapes) else f">{total:,}"


def info(physical: Any) -> list[tuple[str, str]]:
    """(what, value) about the whole compiled model."""
    backend = physical.backend
    constants = [str(key) for key, _ in physical._options["constants"]]
    rows = [
        ("backend", f"{type(backend).__name__} ({backend.backend_type})"),
        ("precision", f"{backend.precision} bits"),
        ("device", str(backend.device)),
        ("outputs", ", ".join(physical.output_keys)),
        ("constants", ", ".join(constants)),
        ("data", ", ".join(physical.data_keys)),
        ("state", ", ".join(physical.state_keys)),
        ("trainable", ", ".join(physical.trainable_keys)),
        ("parameters", parameter_count(physical)),
    ]
    return [(what, value or "--") for what, value in rows]


def key_rows(physical: Any, shapes: bool, types: bool) -> list[list[str]]:
    """A head, then a row for each input and output."""
    found = physical.shapes
    rows = [["key", "role", "dtype", "type", "shape", "parameters"]]
    for key in physical._keys:
        role = "trainable" if key.trainable else key.role
        shape = found[key.name]
        is_known = shape is not None and None not in shape
        count = f"{math.prod(shape):,}" if is_known else ">0"
        rows.append(
            [key.name, role, str(key.dtype or key.type), key.type, _shape_text(shape),
             count if key.trainable else ""]
        )  # fmt: skip
    for name in physical.output_keys:
        dtype, _ = physical._compiled.output_types.get(name, (None, None))
        rows.append([name, "output", str(dtype or ""), "", _shape_text(found.get(name)), ""])
    dropped = [3] * (not types) + [4] * (not shapes)
    return [[cell for i, cell in enumerate(row) if i not in dropped] for row in rows]


def _shape_text(shape: list | None) -> str:
    if shape is None:
        return "--"
    return "[" + ", ".join("None" if size is None else str(size) for size in shape) + "]"


def physical_summary(
    physical: Any, model: Any, depth: int, name: Any, options: dict[str, bool],
    *, verbose: bool, print_info: bool,
) -> str:  # fmt: skip
    """The text that `PhysicalModel.summary` prints."""
    whole("summary: depth", depth, 0)
    title = "" if name is None else text("summary: name", name)
    if depth and model is None:
        raise ArgumentError("summary: depth requires model=", hint="give the model, or a part")
    node = _part_of(physical, model)
    parts = []
    if print_info:
        parts += [f"{what}: {value}" for what, value in info(physical)]
    if model is None:
        parts += ["", *columns(key_rows(physical, options["shapes"], options["types"]))]
    if verbose or model is not None:
        table = node.summary(*options.values(), depth, title)
        parts += ["", table.rstrip("\n")]
    return "\n".join(parts).strip("\n")


def _part_of(physical: Any, model: Any) -> Any:
    if model is None:
        return physical._node
    node = getattr(model, "_node", None)
    if node is None:
        raise SignatureError(f"summary: model requires a model, got {shown(model)}")
    at = node
    while at is not None:
        if at == physical._node:
            return node
        at = at.parent
    raise ArgumentError(f"summary: {model!r} is no part of the model that was compiled")


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows as lines of text, their cells one below the other."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


# --- notebooks -----------------------------------------------------------------------------------


def model_html(model: Any) -> str:
    """A model's table of submodels, and its picture unless it is large."""
    node = model._node
    title = node.name or node.class_name
    body = []
    for _, blocks in node.summary_tables("", 0, True):
        rows = [["model", "key", "shape", "type", "connected to"]]
        for name, keys in blocks:
            for i, (key, is_output, shapes, kind, connections) in enumerate(keys):
                arrow = "→ " if is_output else ""
                shape = f"[{', '.join(shapes[0])}]" if shapes else "--"
                where = ", ".join(connections) or "--"
                rows.append([name if i == 0 else "", arrow + key, shape, kind, where])
        body.append(_table(rows))
    return _document(title, type(model).__name__, [*body, _picture(model)])


def physical_html(physical: Any) -> str:
    """A compiled model's facts and keys."""
    facts = _table([list(row) for row in info(physical)], head=False)
    name = physical._node.name or physical._node.class_name
    return _document(name, "PhysicalModel", [facts, _table(key_rows(physical, True, False))])


def _document(title: str, kind: str, body: Iterable[str]) -> str:
    head = f"<p><b>{_text(title)}</b> <code>{_text(kind)}</code></p>"
    return "\n".join(["<div>", head, *body, "</div>"])


def _table(rows: Sequence[Sequence[str]], head: bool = True) -> str:
    lines = []
    for i, row in enumerate(rows):
        tag = "th" if head and i == 0 else "td"
        cells = "".join(f"<{tag}{_CELL}>{_text(cell)}</{tag}>" for cell in row)
        lines.append(f"<tr>{cells}</tr>")
    return "\n".join(["<table>", *lines, "</table>"])


def _text(said: str) -> str:
    return escape(clean(said, 120))


def _picture(model: Any) -> str:
    from mithril.drawing import plot

    depth = None if _count(model._node) <= MOST_BOXES else 0
    if depth == 0 and model._node.submodel_count > MOST_BOXES:
        return ""
    picture = plot(model, "svg", depth=depth)
    return f"<details><summary>picture</summary>\n{picture}</details>"


def _count(node: Any) -> int:
    """Submodels at all levels, as far as it matters here."""
    count, pending = 0, [node]
    while pending and count <= MOST_BOXES:
        inside = pending.pop().submodels
        count += len(inside)
        pending += inside
    return count


__all__ = ["info", "key_rows", "model_html", "parameter_count", "physical_html", "physical_summary"]
