"""A diagram as graphviz text."""

from __future__ import annotations

from mithril.drawing.diagram import Box, Diagram
from mithril.drawing.place import cluster_title

_SHAPES = {"op": "box", "model": "box3d", "input": "ellipse", "output": "ellipse"}


def dot(diagram: Diagram) -> str:
    lines = ["digraph {", f"  label={_quoted([cluster_title(diagram.clusters[0])])};"]
    lines += ['  node [fontname="sans-serif"];', '  edge [fontname="sans-serif", fontsize=10];']
    members: list[list[str]] = [[] for _ in diagram.clusters]
    for at, box in enumerate(diagram.boxes):
        members[box.cluster].append(_node(at, box))
    for at in range(len(diagram.clusters) - 1, 0, -1):  # children come after their parents
        cluster = diagram.clusters[at]
        inside = [f"label={_quoted([cluster_title(cluster)])};", *members[at]]
        text = [f"subgraph cluster_{at} {{", *(f"  {line}" for line in inside), "}"]
        members[cluster.parent] += text
    lines += [f"  {line}" for line in members[0]]
    for wire in diagram.wires:
        label = f" [label={_quoted([wire.label])}]" if wire.label else ""
        lines += [f"  n{wire.source} -> n{target}{label};" for target in wire.targets]
    return "\n".join([*lines, "}", ""])


def _node(at: int, box: Box) -> str:
    return f"n{at} [label={_quoted(box.lines)}, shape={_SHAPES[box.kind]}];"


def _quoted(lines: list[str]) -> str:
    safe = (line.replace("\\", "\\\\").replace('"', '\\"') for line in lines)
    return '"' + "\\n".join(safe) + '"'


__all__ = ["dot"]
