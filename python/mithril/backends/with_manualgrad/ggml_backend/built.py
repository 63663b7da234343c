"""A finished ggml graph: its memory, and how it is computed for arrays."""

from __future__ import annotations

import ctypes
import math
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mithril.errors import InternalError, OutOfMemoryError

from . import library
from .calls import CustomCalls, InputValues, callback
from .graph import Node, Trace, struct
from .memory import ALIGNMENT, aligned, plan, root

_LONG = 10**8  # multiplications, above which a graph may be interrupted: some 10 ms


class BuiltGraph:
    """Computes the outputs of one traced program, for inputs of the shapes it was traced with.

    Many threads may call it; one after another they run.
    """

    def __init__(self, trace: Trace, inputs: list[Any], outputs: list[Any], settings: Any) -> None:
        self.ways = trace.ways
        self.weights = trace.derived
        self._lib = trace.lib
        self._lock = threading.Lock()
        self._inputs = [x.tensor if isinstance(x, Node) else None for x in inputs]
        self._outputs = [x for x in outputs if isinstance(x, Node)]
        self._custom = CustomCalls()
        self._graph, self._nodes = self._expanded(trace)
        self._place(trace, settings.mem_size)
        self._callback, address = callback(self._custom.called)
        for step, number in trace.steps.values():
            self._custom.add(step, number, self._values, address)
        self._results = [self._result(output) for output in outputs]
        self._backend = trace.lib.backend_cpu_init()
        trace.lib.backend_cpu_set_n_threads(self._backend, settings.threads)
        self._let_interrupts_in()
        self._process = os.getpid() if settings.threads > 1 else None
        trace.finish()
        weakref.finalize(self, _freed, trace, self._backend)

    # --- building -----------------------------------------------------------------------------

    def _expanded(self, trace: Trace) -> tuple[int, list[int]]:
        """The graph with every node in the order of the program: no parent is left to look for."""
        lib = self._lib
        room = 4 * (len(trace.order) + len(self._inputs) + len(trace.constants)) + 1024
        bytes_ = lib.graph_overhead_custom(room, False) + 4096
        outputs = [output.tensor for output in self._outputs]  # some are made here
        graph = lib.new_graph_custom(trace.new_context(bytes_), room, False)
        for output in outputs:
            lib.set_output(output)
        for tensor in (*trace.order, *outputs):
            lib.build_forward_expand(graph, tensor)
        return graph, [lib.graph_node(graph, i) for i in range(lib.graph_n_nodes(graph))]

    def _place(self, trace: Trace, limit: int) -> None:
        """Gives every tensor its memory; what is too much is told before anything is computed."""
        outside = {tensor for tensor in self._inputs if tensor} | set(trace.constants)
        outside |= {weight.tensor for weight in self.weights}
        own = {root(node) for node in self._nodes} - outside
        sizes = {tensor: self._lib.nbytes(tensor) for tensor in own}
        reads = {t: [n.tensor for n in step.nodes] for t, (step, _) in trace.steps.items()}
        offsets, size = plan(self._nodes, sizes, [x.tensor for x in self._outputs], reads)
        self.size = size + sum(weight.size for weight in self.weights)
        _check_size(self.size, limit)
        self._arena = _memory(size + ALIGNMENT)
        start = aligned(self._arena.ctypes.data)
        for tensor, offset in offsets.items():
            struct(tensor).data = start + offset
        for tensor, (_, array) in trace.constants.items():
            struct(tensor).data = array.ctypes.data
        for weight in self.weights:
            weight.place()
        self._views = self._follow_views()

    def _follow_views(self) -> list[tuple[int, list[tuple[Any, int]]]]:
        """Points views at the memory of their roots; those of inputs are left for each call."""
        moving = {tensor: i for i, tensor in enumerate(self._inputs) if tensor}
        followers: dict[int, list[tuple[Any, int]]] = {
            i: [(struct(tensor), 0)] for tensor, i in moving.items()
        }
        for node in self._nodes:
            found = struct(node)
            if not found.view_src:
                continue
            if found.view_src in moving:
                followers[moving[found.view_src]].append((found, found.view_offs))
            else:
                found.data = struct(found.view_src).data + found.view_offs
        return list(followers.items())

    def _let_interrupts_in(self) -> None:
        """Lets Ctrl-C end a graph behind a node; Python's handler runs where Python does."""
        if not len(self._custom) and sum(map(_work, self._nodes)) < _LONG:
            return
        self._stopper = library.ABORT_CALLBACK(self._custom.stops().send)
        address = ctypes.cast(self._stopper, ctypes.c_void_p).value
        self._lib.backend_cpu_set_abort_callback(self._backend, address, None)

    def _values(self, node: Node) -> Any:
        """The values of a node: an array over its memory, or which input it is."""
        source = self._source(node)
        return self._view(node) if source is None else InputValues(source, node.shape)

    def _source(self, node: Node) -> int | None:
        """The input whose memory a node looks at."""
        own = root(node.tensor)
        return self._inputs.index(own) if own in self._inputs else None

    def _view(self, node: Node) -> np.ndarray:
        """An array over the memory of a node."""
        found = struct(node.tensor)
        kind = ctypes.c_char * (node.size * node.dtype.itemsize)
        buffer = kind.from_address(found.data)
        return np.frombuffer(buffer, node.dtype).reshape(node.shape)

    # --- running ------------------------------------------------------------------------------

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        """The outputs as new arrays; inputs are C-contiguous and aligned."""
        with self._lock:
            try:
                self._custom.start(inputs)
                self._take(inputs)
                self._compute()
                return [read() for read in self._results]
            finally:
                self._custom.finish()

    def _take(self, inputs: Sequence[Any]) -> None:
        """Points the graph at the memory of inputs, and converts the weights among them."""
        for i, followers in self._views:
            address = inputs[i].__array_interface__["data"][0]
            for tensor, offset in followers:
                tensor.data = address + offset
        for weight in self.weights:
            weight.refresh(inputs)

    def _compute(self) -> None:
        if self._process is not None and self._process != os.getpid():
            # The threads of the process that this one was forked from are not here.
            self._lib.backend_cpu_set_n_threads(self._backend, 1)
            self._process = None
        status = self._lib.backend_graph_compute(self._backend, self._graph)
        self._custom.check()
        if status:
            raise InternalError(f"ggml_graph_compute: status {status}")

    def _result(self, output: Any) -> Callable[[], Any]:
        """Reads an output as a new array."""
        if not isinstance(output, Node):
            is_array = isinstance(output, np.ndarray | np.generic)
            return (lambda: np.array(output)) if is_array else (lambda: output)
        source, shape, custom = self._source(output), output.shape, self._custom
        if source is None:
            return self._view(output).copy
        return lambda: custom.inputs[source].reshape(shape).copy()


def _work(node: int) -> int:
    """About as many multiplications as a node takes."""
    found = struct(node)
    row = struct(found.src[0]).ne[0] if found.src[0] else 1
    return math.prod(found.ne) * row


def _memory(size: int) -> np.ndarray:
    try:
        return np.empty(size, np.uint8)
    except (MemoryError, ValueError):
        raise OutOfMemoryError(f"GGMLBackend: the system refused {size} bytes") from None


def _check_size(size: int, limit: int) -> None:
    if size > limit:
        raise OutOfMemoryError(
            f"GGMLBackend: the graph needs {size} bytes, mem_size is {limit}",
            hint=f"GGMLBackend(mem_size={size})",
        )


def _freed(trace: Trace, backend: int) -> None:
    trace.lib.backend_free(backend)
    trace.close()
