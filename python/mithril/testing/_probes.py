"""A typed graph with a window at every node: values as outputs, zeros added to every float operand.

The gradient of such a zero is what its node sends back along that one edge, so the first wrong
gradient rule is seen however a backend differentiates::

    %1 = relu(%0) : f32[2]  →  %e0 = add(%0, %probe.0) : f32[2]
    return y=%1                %1 = relu(%e0) : f32[2]
                               return y=%1, value.1=%1
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from mithril import _core

_VALUE = re.compile(r'%(?:"(?:[^"\\]|\\.)*"|[\w.$]+)')
_TYPE = re.compile(r"(\w+)\[([^\]]*)\]")
_OPENING = re.compile(r".*?<\w+, \w+>\(")
_FLOATS = ("f16", "bf16", "f32", "f64")

# What a node is called in any backend's graph: its path, its op, and which of these it is.
Place = tuple[str, str, int]


@dataclass
class Node:
    """One line of a graph."""

    place: Place
    results: list[str]
    call: str
    types: list[str]
    location: str  # "file.py:12" of the user's code; "" where there is none
    region: str = ""  # of a loop: the text of its body
    values: dict[int, str] = field(default_factory=dict)  # result -> the output that shows it
    probes: dict[int, str] = field(default_factory=dict)  # operand -> the input added to it

    @property
    def path(self) -> str:
        return self.place[0]

    @property
    def op(self) -> str:
        return self.place[1]


@dataclass
class Probed:
    """A graph with windows, and the nodes that its results depend on, in topological order."""

    graph: Any
    nodes: list[Node]
    shapes: dict[str, tuple[int, ...]]  # of the probes


def probed(graph: Any, count: int | None = None) -> Probed:
    """`graph` with windows at every node; with `count` it ends after that many nodes."""
    head, *lines, last = _statements(str(graph))
    nodes = _nodes(graph, [line for line in lines if _is_node(line)])
    states = [line for line in lines if not _is_node(line)]
    nodes = _needed(nodes, [last, *states])
    types = _input_types(head) | {r: t for n in nodes for r, t in zip(n.results, n.types)}  # noqa: B905
    used = {v for node in nodes for v in _VALUE.findall(node.call)}
    used |= {v for line in (last, *states) for v in _VALUE.findall(line)}
    if count is not None:
        nodes, states, last = nodes[:count], [], "return"
    body, outputs, shapes = [], [], {}
    for number, node in enumerate(nodes):
        body += _with_probes(node, types, number, shapes)
        for index, (result, type_) in enumerate(zip(node.results, node.types, strict=False)):
            if result in used and _TYPE.fullmatch(type_):
                node.values[index] = f"value.{number}.{index}"
                outputs.append(f"{node.values[index]}={result}")
    inputs = [f"%{name}: {types[name]}" for name in shapes]
    opened = _OPENING.match(head)
    assert opened is not None, head
    listed = ", ".join(filter(None, [head[opened.end() : head.rindex(")")], *inputs]))
    returned = ", ".join(filter(None, [last.strip().removeprefix("return").strip(), *outputs]))
    text = "\n".join([f"{opened[0]}{listed}) {{", *body, *states, f"  return {returned}", "}"])
    return Probed(_core.Graph.parse(text), nodes, shapes)


def _statements(text: str) -> list[str]:
    """The lines of a graph, but for the last one; what stands in a loop is part of its line."""
    out: list[str] = []
    for line in text.strip().splitlines()[:-1]:
        if line.startswith(("    ", "  }")):
            out[-1] += "\n" + line
        else:
            out.append(line)
    return out


def _is_node(line: str) -> bool:
    return line.lstrip().startswith("%")


def _nodes(graph: Any, lines: list[str]) -> list[Node]:
    seen: dict[tuple[str, str], int] = {}
    out = []
    for line, (op, _, file, row) in zip(lines, graph.nodes(), strict=True):
        results, _, rest = line.strip().partition(" = ")
        # The path as texts have it: without what could end a line.
        statement, _, path = rest.rpartition("  # ") if "  # " in rest else (rest, "", "")
        statement, opening, region = statement.partition(" {\n")
        call, _, types = statement.rpartition(" : ")
        number = seen[path, op] = seen.get((path, op), -1) + 1
        place = f"{file}:{row}" if file else ""
        named = results.split(", ")
        # Sizes, too, stand between commas; results of nodes with several are all tensors.
        listed = [types] if len(named) == 1 else [match[0] for match in _TYPE.finditer(types)]
        out.append(Node((path, op, number), named, call, listed, place, opening + region))
    return out


def _needed(nodes: list[Node], ends: list[str]) -> list[Node]:
    wanted = {value for line in ends for value in _VALUE.findall(line)}
    kept = []
    for node in reversed(nodes):
        if wanted & set(node.results):
            wanted |= set(_VALUE.findall(node.call))
            kept.append(node)
    return kept[::-1]


def _input_types(head: str) -> dict[str, str]:
    pairs = re.finditer(rf"({_VALUE.pattern}): (\w+\[[^\]]*\])", head)
    return {match[1]: match[2] for match in pairs}


def _with_probes(
    node: Node, types: dict[str, str], number: int, shapes: dict[str, tuple[int, ...]]
) -> Iterator[str]:
    """The node's line, after one for each of its float operands."""
    comment = f"  # {node.path}" if node.path else ""
    added: list[str] = []
    operands = -1

    def probe(match: re.Match[str]) -> str:
        nonlocal operands
        operands += 1
        shape = _float_shape(types.get(match[0], ""))
        if shape is None:
            return match[0]
        name = node.probes[operands] = f"probe.{number}.{operands}"
        shapes[name], types[name] = shape, types[match[0]]
        edge = f"%edge.{number}.{operands}"
        added.append(f"  {edge} = add({match[0]}, %{name}) : {types[name]}{comment}")
        return edge

    call = _VALUE.sub(probe, node.call)
    yield from added
    results, listed = ", ".join(node.results), ", ".join(node.types)
    yield f"  {results} = {call} : {listed}{node.region}{comment}"


def _float_shape(type_: str) -> tuple[int, ...] | None:
    """Sizes of a float tensor, if all are known."""
    match = _TYPE.fullmatch(type_)
    if match is None or match[1] not in _FLOATS:
        return None
    sizes = match[2].split(", ") if match[2] else []
    return tuple(map(int, sizes)) if all(size.isdigit() for size in sizes) else None


__all__ = ["Node", "Probed", "probed"]
