"""A finished ggml graph: its memory, and how it is computed for arrays."""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mithril.errors import InternalError, OutOfMemoryError

from . import library
from .graph import Node, Step, Trace, mapped, struct
from .memory import ALIGNMENT, plan, root


class BuiltGraph:
    """Computes the outputs of one traced program, for inputs of the shapes it was traced with.

    Many threads may call it; one after another they run.
    """

    def __init__(self, trace: Trace, inputs: list[Any], outputs: list[Any], settings: Any) -> None:
        self.trace = trace
        self.ways = trace.ways
        self._lock = threading.Lock()
        self._error: BaseException | None = None
        self._outputs = outputs
        self._stash: dict[int, Any] = {}
        self._lib = trace.lib
        self._inputs = [x.tensor if isinstance(x, Node) else None for x in inputs]
        self._given: list[Any] = []
        self._graph, self._nodes = self._expanded()
        self._place(settings)
        self._bind_steps()
        self._results = [self._result(output) for output in outputs]
        self._backend = trace.lib.backend_cpu_init()
        trace.lib.backend_cpu_set_n_threads(self._backend, settings.threads)
        weakref.finalize(self, _freed, trace, self._backend)

    # --- building -----------------------------------------------------------------------------

    def _expanded(self) -> tuple[int, list[int]]:
        """The graph with every node in the order of the program: no parent is left to look for."""
        lib, trace = self._lib, self.trace
        room = 4 * (len(trace.order) + len(self._inputs) + len(trace.constants)) + 1024
        bytes_ = lib.graph_overhead_custom(room, False) + 4096
        context = lib.init(library.InitParams(bytes_, None, True))
        trace._contexts.append(context)
        graph = lib.new_graph_custom(context, room, False)
        for output in self._outputs:
            if isinstance(output, Node):
                lib.set_output(output.tensor)
        for tensor in trace.order:
            lib.build_forward_expand(graph, tensor)
        for output in self._outputs:
            if isinstance(output, Node):
                lib.build_forward_expand(graph, output.tensor)
        return graph, [lib.graph_node(graph, i) for i in range(lib.graph_n_nodes(graph))]

    def _place(self, settings: Any) -> None:
        """Gives every tensor its memory; what is too much is told before anything is computed."""
        outside = {tensor for tensor in self._inputs if tensor} | set(self.trace.constants)
        outside |= {weight.tensor for weight in self.trace.derived}
        own = {root(node) for node in self._nodes} - outside
        sizes = {tensor: self._lib.nbytes(tensor) for tensor in own}
        kept = [x.tensor for x in self._outputs if isinstance(x, Node)]
        reads = {t: [n.tensor for n in step.nodes] for t, (step, _) in self.trace.steps.items()}
        offsets, size = plan(self._nodes, sizes, kept, reads)
        self.size = size + sum(weight.size for weight in self.trace.derived)
        _check_size(self.size, settings.mem_size)
        self._arena = np.empty(size + ALIGNMENT, np.uint8)
        start = -(-self._arena.ctypes.data // ALIGNMENT) * ALIGNMENT
        for tensor, offset in offsets.items():
            struct(tensor).data = start + offset
        for tensor, (_, array) in self.trace.constants.items():
            struct(tensor).data = array.ctypes.data
        for weight in self.trace.derived:
            weight.place()
        self._views = self._follow_views(outside)

    def _follow_views(self, outside: set[int]) -> list[tuple[int, list[tuple[Any, int]]]]:
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

    def _bind_steps(self) -> None:
        """Makes the custom nodes' calls, which ggml knows by number."""
        self._calls: list[Callable[[], None]] = []
        self._callback = library.CALLBACK(self._called)
        address = ctypes.cast(self._callback, ctypes.c_void_p).value
        for tensor, (step, number) in self.trace.steps.items():
            self._calls.append(self._call_of(step, number))
            words = (ctypes.c_void_p * 3)(address, 1, len(self._calls))
            ctypes.memmove(struct(tensor).op_params, words, ctypes.sizeof(words))

    def _called(self, _tensor: Any, ith: int, _nth: int, number: int) -> None:
        try:
            if not ith and self._error is None:
                self._calls[number - 1]()
        except BaseException as error:  # nothing may be thrown through ggml
            self._error = error

    def _call_of(self, step: Step, number: int) -> Callable[[], None]:
        place, node = step.results[number]
        out = self._view(node)
        if number:

            def take_over() -> None:
                out[...] = self._stash[id(step)][place]

            return take_over
        arguments = mapped(self._reader, step.arguments)
        has_readers = any(isinstance(x, _Input) for x in _leaves(arguments))
        is_first_of_many = place >= 0

        def compute() -> None:
            args, kwargs = _filled(arguments, self._given) if has_readers else arguments
            with np.errstate(all="ignore"):
                result = step.function(*args, **kwargs)
            if is_first_of_many:
                self._stash[id(step)] = result
                result = result[place]
            out[...] = result

        return compute

    def _reader(self, node: Node) -> Any:
        """The values of a node: an array over its memory, or which input it is."""
        source = self._source(node)
        return self._view(node) if source is None else _Input(source, node.shape)

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
                return self._computed(inputs)
            finally:
                self._error = None
                self._given = []
                self._stash.clear()

    def _computed(self, inputs: Sequence[Any]) -> list[Any]:
        self._given = inputs
        for i, followers in self._views:
            address = inputs[i].__array_interface__["data"][0]
            for tensor, offset in followers:
                tensor.data = address + offset
        for weight in self.trace.derived:
            weight.refresh(inputs)
        status = self._lib.backend_graph_compute(self._backend, self._graph)
        if self._error is not None:
            raise self._error
        if status:
            raise InternalError(f"ggml_graph_compute: status {status}")
        return [read() for read in self._results]

    def _result(self, output: Any) -> Callable[[], Any]:
        """Reads an output as a new array."""
        if not isinstance(output, Node):
            is_array = isinstance(output, np.ndarray | np.generic)
            return (lambda: np.array(output)) if is_array else (lambda: output)
        source = self._source(output)
        if source is None:
            return self._view(output).copy
        return lambda: self._given[source].reshape(output.shape).copy()


class _Input:
    """An input among the arguments of a custom node."""

    def __init__(self, index: int, shape: tuple[int, ...]) -> None:
        self.index, self.shape = index, shape


def _leaves(value: Any) -> Any:
    if isinstance(value, tuple | list):
        for item in value:
            yield from _leaves(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _leaves(item)
    else:
        yield value


def _filled(value: Any, given: Sequence[Any]) -> Any:
    if isinstance(value, _Input):
        return given[value.index].reshape(value.shape)
    if type(value) in (tuple, list):
        return type(value)([_filled(item, given) for item in value])
    if isinstance(value, dict):
        return {key: _filled(item, given) for key, item in value.items()}
    return value


def _check_size(size: int, limit: int) -> None:
    if size > limit:
        raise OutOfMemoryError(
            f"GGMLBackend: the graph needs {size} bytes, mem_size is {limit}",
            hint=f"GGMLBackend(mem_size={size})",
        )


def _freed(trace: Trace, backend: int) -> None:
    trace.lib.backend_free(backend)
    trace.close()
