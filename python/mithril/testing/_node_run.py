"""A compiled model run with windows at its nodes, compared node by node with the reference."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from mithril.execution.primitives import formula_of
from mithril.physical.compilation import compilation_of
from mithril.testing._probes import Node, Place, probed
from mithril.testing._verified import Divergence
from mithril.testing.distances import Distance, distance


class NodeRun:
    """The values at every node of a compiled model, and what each sends back to its operands."""

    def __init__(self, task: Any, pm: Any, count: int | None = None):
        self.pm = pm
        windows = probed(compilation_of(pm).compiled.typed, count)
        self.nodes: list[Node] = windows.nodes
        zeros = {name: np.zeros(shape) for name, shape in windows.shapes.items()}
        given = {**task.inputs, **zeros}
        wrt = list(windows.shapes) if task.weights and count is None else []
        graph = windows.graph
        settings = compilation_of(pm).options
        if wrt and settings.autodiff == "framework":
            self._from_framework(graph, given, task.weights, wrt)
        else:
            weights = {f"cotangent.{n}": w for n, w in task.weights.items()} if wrt else {}
            graph = graph.differentiate(list(task.weights), wrt) if wrt else graph
            executable = self._executable(graph)
            results = executable.run(self._values(graph, {**given, **weights}))
            self.values = dict(zip(graph.outputs, results, strict=False))
            self.sent = {name: self.values[f"grad.{name}"] for name in wrt}

    def _executable(self, graph: Any) -> Any:
        return compilation_of(self.pm).program._executable(
            compilation_of(self.pm).compiled.optimize(graph)
        )

    def _values(self, graph: Any, given: Mapping[str, Any]) -> list[Any]:
        tensor = self.pm.backend.tensor
        return [
            given[name] if dtype is None else tensor(given[name], dtype)
            for name, _, dtype, _ in graph.inputs
        ]

    def _from_framework(self, graph: Any, given: Any, weights: Any, wrt: list[str]) -> None:
        executable = self._executable(graph)
        names = [name for name, *_ in graph.inputs]
        count = len(graph.outputs) + len(compilation_of(self.pm).program.state_names)
        cotangents: list[Any] = [None] * count
        for name, weight in weights.items():
            dtype, _ = compilation_of(self.pm).program.output_types[name]
            cotangents[graph.outputs.index(name)] = self.pm.backend.tensor(weight, dtype)
        results, gradients = executable.run_vjp(
            self._values(graph, given), cotangents, [names.index(n) for n in wrt]
        )
        self.values = dict(zip(graph.outputs, results, strict=False))
        self.sent = dict(zip(wrt, gradients, strict=True))

    def _distance(self, got: Any, want: Any, tolerance: float) -> Distance:
        if not hasattr(got, "shape"):
            return Distance(math.inf, f"got {type(got).__name__}, which is no array")
        return distance(self.pm.backend.to_numpy(got), want, tolerance)

    def divergences(
        self, reference: NodeRun, direction: str, tolerance: float
    ) -> Iterator[Divergence]:
        """The nodes that differ, in the order in which they are computed."""
        wanted: dict[Place, Node] = {node.place: node for node in reference.nodes}
        forward = direction == "forward"
        for node in self.nodes if forward else reversed(self.nodes):
            twin = wanted.get(node.place)
            if twin is None:  # a cast that this backend's dtypes need
                continue
            own, other = (n.values if forward else n.probes for n in (node, twin))
            got, want = (r.values if forward else r.sent for r in (self, reference))
            for index in own.keys() & other.keys() if got else ():
                found = self._distance(got[own[index]], want[other[index]], tolerance)
                if found.problem:
                    which = f"{'result' if forward else 'operand'} {index}: "
                    problem = (which if len(own) > 1 else "") + found.problem
                    line = emitted_line(self.pm, self.nodes, node, direction)
                    op = formula_of(node.op)
                    yield Divergence(
                        direction, node.path, op, found.ulps, problem, line, node.location
                    )
                    break


def emitted_line(pm: Any, nodes: list[Node], node: Node, direction: str) -> str:
    """The emitted lines of a node: those of its path, or the one of its turn among them."""
    forward = _lines(compilation_of(pm).program.forward, node)
    if direction == "backward" and compilation_of(pm).options.autodiff == "engine":
        gradients = compilation_of(pm).program._gradients.values()
        found = _lines(next(reversed(gradients), None), node)
        return "\n".join(found[len(forward) :])  # which the program computes first
    alike = [other.place for other in nodes if other.path == node.path]
    if len(forward) == len(alike):
        forward = [forward[alike.index(node.place)]]
    return "\n".join(forward)


def _lines(executable: Any, node: Node) -> list[str]:
    lines = getattr(executable, "source", "").splitlines()
    return [line.strip() for line in lines if line.endswith(f"  # {node.path}")]


__all__ = ["NodeRun", "emitted_line"]
