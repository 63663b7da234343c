"""Programs that a backend's class runs itself, by an `execute` of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mithril.errors import SignatureError, shown

__all__ = ["Executed", "ProgramGraph"]


class ProgramGraph:
    """A graph as `Backend.execute` gets it. ``graph(buffers)`` runs it as the backend would.

    Attributes
    ----------
    inputs, outputs : names, in the order of the buffers and of the results
    ops : names of its ops, in an order in which they can run
    text : the graph as it prints
    """

    def __init__(self, graph: Any, executable: Any) -> None:
        self._executable = executable
        self.inputs = tuple(name for name, *_ in graph.inputs)
        self.outputs = tuple(graph.outputs)
        self.ops = tuple(op for op, *_ in graph.nodes())
        self.text = str(graph)

    def __call__(self, buffers: Sequence[Any]) -> list[Any]:
        return list(self._executable.run(list(buffers)))

    def __repr__(self) -> str:
        return f"<ProgramGraph of {len(self.ops)} ops: {', '.join(self.outputs)}>"


class Executed:
    """An executable whose runs are calls of the backend's `execute`."""

    def __init__(self, backend: Any, graph: Any, executable: Any) -> None:
        self._backend = backend
        self._executable = executable
        self.graph = ProgramGraph(graph, executable)
        if hasattr(executable, "source"):
            self.source = executable.source

    def run(self, inputs: Sequence[Any], donates: bool = False) -> list[Any]:
        results = self._backend.execute(self.graph, list(inputs))
        if not isinstance(results, list | tuple):
            results = [results] if len(self.graph.outputs) == 1 else results
        what, names = f"{type(self._backend).__name__}.execute", list(self.graph.outputs)
        if not isinstance(results, list | tuple) or len(results) < len(names):
            raise SignatureError(
                f"{what}: requires a list with an array for each of {names}, got {shown(results)}"
            )
        return list(results)
