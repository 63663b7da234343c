"""Summaries of models for a terminal and for a notebook."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from itertools import chain, zip_longest
from typing import Any, NamedTuple

from mithril.base.checks import checked_bool, checked_size, checked_str
from mithril.drawing import plot
from mithril.drawing.diagram import clean
from mithril.errors import ArgumentError, SignatureError, shown
from mithril.logical.arguments import shape_item
from mithril.logical.conns import KeyType
from mithril.logical.handles import node_of
from mithril.physical.compilation import compilation_of
from mithril.physical.key_facts import key_facts_of

MOST_BOXES = 200  # of a picture in a notebook
MOST_CHARACTERS = 120  # of a cell
_CELL = ' style="text-align:left"'


def summary_flags(**flags: Any) -> dict[str, bool]:
    """Checks the flags that choose the columns and rows of a table, and returns them."""
    return {name: checked_bool(f"summary: {name}", flag) for name, flag in flags.items()}


# --- models --------------------------------------------------------------------------------------


class _Key(NamedTuple):
    """A row of a model's table; `shapes` are all that are shown of it."""

    name: str
    is_output: bool
    shapes: list[list[str]]
    type: str
    connections: list[str]
    parameters: str


def model_summary(
    node: Any, depth: int, title: str, *, shapes: bool, types: bool, symbolic: bool,
    alternative_shapes: bool,
) -> str:  # fmt: skip
    """The text that `Model.summary` prints: a table for each model, and the total."""
    tables = node.summary_tables(title, depth, symbolic)
    levels = zip(_levels(node, depth), tables, strict=True)
    parts = [_with_parts(at, blocks) for at, (_, blocks) in levels]
    every = None
    if alternative_shapes:  # asked at once, so that a name means the same in all rows
        wires = [at.connection(key[0]) for table in parts for _, at, keys in table for key in keys]
        every = iter(node.shapes(wires))
    dropped = [2] * (not shapes) + [3] * (not types)
    lines = []
    for (heading, _), table in zip(tables, parts, strict=True):
        blocks = [
            (name, [_key(node, at, key, every and _texts(next(every), symbolic)) for key in keys])
            for name, at, keys in table
        ]
        lines += [*_ruled(heading, blocks, dropped), ""]
    return "\n".join([*lines, f"parameters: {_total(node)}"])


def _levels(node: Any, depth: int) -> list[Any]:
    """Lists the models that have tables, level by level."""
    out = level = [node]
    for _ in range(depth):
        level = [part for at in level for part in at.submodels if part.op is None]
        if not level:
            break
        out = [*out, *level]
    return out


def _with_parts(node: Any, blocks: list) -> list[tuple[str, Any, list]]:
    """Pairs each block with its submodel; the table of an op shows the op itself."""
    parts = dict(zip(node.submodel_names, node.submodels, strict=True))
    return [(name, parts.get(name, node), keys) for name, keys in blocks]


def _texts(shapes: list, symbolic: bool) -> list[list[str]]:
    return [[str(shape_item(item, symbolic)) for item in shape] for shape in shapes]


def _key(node: Any, part: Any, row: tuple, shapes: list[list[str]] | None) -> _Key:
    name, is_output, shape, kind, connections = row
    count = _size(shape) if _is_parameter(node, part, name) else None
    number = "" if count is None else f"{count:,}" if count >= 0 else ">0"
    if shapes is None:
        shapes = [] if shape is None else [shape]
    links = [clean(link, MOST_CHARACTERS) for link in connections]
    return _Key(clean(name, MOST_CHARACTERS), is_output, shapes, kind, links, number)


def _size(shape: Sequence[str]) -> int:
    """Returns the number of elements of a shape; -1 while it is open."""
    return math.prod(map(int, shape)) if all(size.isdigit() for size in shape) else -1


def _is_parameter(node: Any, part: Any, key: str) -> bool:
    """Tells whether a trainable input of the model feeds a key of a part."""
    if not part.differentiable(key):
        return False
    wire = node.find_connection(part.connection(key))
    return wire is not None and node.kind(wire) == KeyType.INPUT


def _total(node: Any) -> str:
    keys = [key for key in node.input_keys if _is_parameter(node, node, key)]
    sizes = [_size(_texts(shapes[:1], True)[0]) for shapes in node.shapes(keys)]
    known = [size for size in sizes if size >= 0]
    return f"{'>' * (len(known) < len(sizes))}{sum(known):,}"


def _ruled(title: str, blocks: list[tuple[str, list[_Key]]], dropped: list[int]) -> list[str]:
    """The lines of a table: a title, the head, and the submodels between rules."""
    keys = [key for _, rows in blocks for key in rows]
    shapes = chain(*(key.shapes for key in keys))
    widths = [max(map(len, sizes)) for sizes in zip_longest(*shapes, fillvalue="")]
    head = ["Model Name", "Keys", "Shapes", "Types", "Connections", "Parameters"]
    groups = [[head], *(_cells(name, rows, widths) for name, rows in blocks)]
    groups = [[[c for i, c in enumerate(r) if i not in dropped] for r in g] for g in groups]
    lines = columns([row for group in groups for row in group])
    title = clean(title, MOST_CHARACTERS)
    rule = "-" * max(map(len, [*lines, title]))
    out, done = [f"{title:^{len(rule)}}".rstrip(), rule], 0
    for group in groups:
        out += [*lines[done : done + len(group)], rule]
        done += len(group)
    return out


def _cells(name: str, rows: list[_Key], widths: list[int]) -> list[list[str]]:
    """The cells of a submodel's keys, inputs first."""
    out = []
    for word, is_output in (("Inputs:", False), ("Outputs:", True)):
        keys = [row for row in rows if row.is_output is is_output]
        out += [[word, "", "", "", ""]] if keys or not is_output else []
        for row in keys:
            shapes = [_aligned(shape, widths) for shape in row.shapes] or ["--"]
            links = row.connections or ["--"]
            cells = ([f"  {row.name}"], shapes, [row.type], links, [row.parameters])
            out += map(list, zip_longest(*cells, fillvalue=""))
    name = clean(name, MOST_CHARACTERS)
    return [[name if i == 0 else "", *line] for i, line in enumerate(out)]


def _aligned(shape: list[str], widths: list[int]) -> str:
    """Formats a shape with its sizes right-aligned below those of other rows."""
    return f"[{', '.join(f'{size:>{width}}' for size, width in zip(shape, widths, strict=False))}]"


# --- compiled models -----------------------------------------------------------------------------


def parameter_count(physical: Any) -> str:
    """Counts the elements of all trainable inputs; ">" before it where some sizes are open."""
    sizes = key_facts_of(physical).sizes()
    shapes: list[Any] = [sizes[name] for name in physical.trainable_keys]
    known = [shape for shape in shapes if shape is not None and None not in shape]
    total = sum(math.prod(shape) for shape in known)
    return f"{total:,}" if len(known) == len(shapes) else f">{total:,}"


def info(physical: Any) -> list[tuple[str, str]]:
    """Lists (what, value) about the whole compiled model."""
    backend = physical.backend
    constants = [str(key) for key, _ in compilation_of(physical).options.constants]
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
    compilation = compilation_of(physical)
    found: dict[str, Any] = key_facts_of(physical).sizes()
    rows = [["key", "role", "dtype", "type", "shape", "parameters"]]
    for key in compilation.keys:
        role = "trainable" if key.trainable else key.role
        shape = found[key.name]
        is_known = shape is not None and None not in shape
        count = f"{math.prod(shape):,}" if is_known else ">0"
        rows.append(
            [key.name, role, str(key.dtype or key.type), key.type, _shape_text(shape),
             count if key.trainable else ""]
        )  # fmt: skip
    for name in physical.output_keys:
        dtype, _ = compilation.compiled.output_types.get(name, (None, None))
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
    checked_size("summary: depth", depth, 0)
    title = "" if name is None else checked_str("summary: name", name)
    if depth and model is None:
        raise ArgumentError("summary: depth requires model=", hint="give the model, or a part")
    node = _part_of(physical, model)
    parts = []
    if print_info:
        parts += [f"{what}: {value}" for what, value in info(physical)]
    if model is None:
        parts += ["", *columns(key_rows(physical, options["shapes"], options["types"]))]
    if verbose or model is not None:
        parts += ["", model_summary(node, depth, title, **options)]
    return "\n".join(parts).strip("\n")


def _part_of(physical: Any, model: Any) -> Any:
    if model is None:
        return compilation_of(physical).node
    node = getattr(model, "_node", None)
    if node is None:
        raise SignatureError(f"summary: model requires a model, got {shown(model)}")
    if (part := compilation_of(physical).snapshot.part(node)) is not None:
        return part
    raise ArgumentError(f"summary: {model!r} is no part of the model that was compiled")


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Formats rows as lines of text, their cells one below the other."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


# --- notebooks -----------------------------------------------------------------------------------


def model_html(model: Any) -> str:
    """A model's table of submodels, and its picture unless it is large."""
    node = node_of(model)
    title = node.name or node.class_name
    body = []
    for _, blocks in node.summary_tables("", 0, True):
        rows = [["model", "key", "shape", "type", "connected to", "parameters"]]
        for name, part, keys in _with_parts(node, blocks):
            for i, row in enumerate(_key(node, part, key, None) for key in keys):
                arrow = "→ " if row.is_output else ""
                shape = f"[{', '.join(row.shapes[0])}]" if row.shapes else "--"
                where = ", ".join(row.connections) or "--"
                title = name if i == 0 else ""
                rows.append([title, arrow + row.name, shape, row.type, where, row.parameters])
        body.append(_table(rows))
    return _document(title, type(model).__name__, [*body, _picture(model)])


def physical_html(physical: Any) -> str:
    """A compiled model's facts and keys."""
    facts = _table([list(row) for row in info(physical)], head=False)
    node = compilation_of(physical).node
    name = node.name or node.class_name
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
    return escape(clean(said, MOST_CHARACTERS))


def _picture(model: Any) -> str:
    depth = None if _count(node_of(model)) <= MOST_BOXES else 0
    if depth == 0 and node_of(model).submodel_count > MOST_BOXES:
        return ""
    picture = plot(model, "svg", depth=depth)
    return f"<details><summary>picture</summary>\n{picture}</details>"


def _count(node: Any) -> int:
    """Counts submodels at all levels; stops once they are more than `MOST_BOXES`."""
    count, pending = 0, [node]
    while pending and count <= MOST_BOXES:
        inside = pending.pop().submodels
        count += len(inside)
        pending += inside
    return count


__all__ = ["info", "key_rows", "model_html", "parameter_count", "physical_html", "physical_summary"]
