"""A diagram as Mermaid text."""

from __future__ import annotations

from mithril.drawing.diagram import Box, Diagram
from mithril.drawing.place import cluster_title

_PLAIN = frozenset(" _.,:()[]+*/=")
_SHAPES = {"op": "[{}]", "model": "[[{}]]", "input": "([{}])", "output": "([{}])"}


def mermaid(diagram: Diagram) -> str:
    members: list[list[str]] = [[] for _ in diagram.clusters]
    for at, box in enumerate(diagram.boxes):
        members[box.cluster].append(_node(at, box))
    for at in range(len(diagram.clusters) - 1, 0, -1):  # children come after their parents
        cluster = diagram.clusters[at]
        head = f"subgraph c{at}[{_quoted([cluster_title(cluster)])}]"
        members[cluster.parent] += [head, *(f"  {line}" for line in members[at]), "end"]
    lines = ["flowchart TD", *(f"  {line}" for line in members[0])]
    for wire in diagram.wires:
        label = f"|{_quoted([wire.label])}|" if wire.label else ""
        lines += [f"  n{wire.source} -->{label} n{target}" for target in wire.targets]
    return "\n".join([*lines, ""])


def _node(at: int, box: Box) -> str:
    return f"n{at}" + _SHAPES[box.kind].format(_quoted(box.lines))


def _quoted(lines: list[str]) -> str:
    """Everything that could mean something to Mermaid or HTML becomes a number."""
    return '"' + "<br/>".join("".join(map(_escaped, line)) for line in lines) + '"'


def _escaped(character: str) -> str:
    is_plain = character.isalnum() or character in _PLAIN or ord(character) > 127
    return character if is_plain else f"#{ord(character)};"


__all__ = ["mermaid"]
