"""Runs models as ggml graphs; arrays are NumPy's."""

from __future__ import annotations

import threading
import weakref
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mithril.backends.with_manualgrad.numpy_backend.backend import NumpyBackend, own_memory
from mithril.base.checks import checked_bool
from mithril.base.public import public
from mithril.errors import ArgumentError, DTypeError, SignatureError, UnsupportedError, shown
from mithril.execution.memory import parse_size
from mithril.execution.primitives import OpTable
from mithril.physical.compilation import compilation_of
from mithril.types import Dtype, DTypeLike

from . import library, probe, quantize
from .built import BuiltGraph
from .graph import Trace, Untraceable
from .isolated import IsolatedGGML
from .report import QuantizationReport, report

__all__ = ["GGMLBackend"]

MOST_GRAPHS = 16  # that one program keeps, for as many shapes
_DEFAULT_SIZE = 4 << 30
_C_AND_ALIGNED = 0x101  # NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED


class GGMLBackend(NumpyBackend):
    """ggml on the CPU, with NumPy arrays in and out.

    Parameters
    ----------
    mem_size : the most bytes of one graph, intermediates and converted weights together; or text
        such as "2GB". A program that needs more is refused before it computes anything.
    quantize : the type of ggml in which weights of products are kept: "int8" (q8_0), "int4" (q4_0)
        or a name of ggml's. Weights that are bound are converted once, others at each call;
        programs with gradients keep float32.
    threads : how many threads compute.
    device : only "cpu".
    isolate : whether ggml runs in another process. Should it end that process, the call is made
        again in a new one or raises `InternalError`. Arrays are copied there and back.
    dtype : only float32.
    seed : of the backend's random numbers.

    What ggml lacks runs on NumPy as custom nodes of its graph.

    Raises
    ------
    DeviceNotAvailable : there is no ggml, or it does not pass its self-test
    """

    backend_type = "ggml"
    _ops_module = "mithril.backends.with_manualgrad.ggml_backend.ops"
    supported_dtypes = (Dtype.float32,)
    weight_formats = tuple(quantize.SHORT)
    quantizes_itself = True
    _mixes_precision = False

    def _repr_options(self) -> dict[str, str]:
        return {} if self.quantize is None else {"quantize": self.quantize}

    @public
    def __init__(
        self,
        mem_size: int | str = _DEFAULT_SIZE,
        quantize: str | None = None,
        threads: int = 1,
        device: str = "cpu",
        isolate: bool = False,
        *,
        dtype: DTypeLike = Dtype.float32,
        seed: int = 0,
    ) -> None:
        super().__init__(device, dtype, seed=seed)
        if self.default_dtype is not Dtype.float32:
            raise DTypeError(f"GGMLBackend: floats are float32, got dtype {self.default_dtype}")
        self.mem_size = _checked_size(mem_size)
        self.quantize = _quantize_type(quantize)
        self.threads = _checked_threads(threads)
        path = probe.tested(library.find())
        self.isolate = checked_bool("isolate", isolate)
        self._isolated = self._in_its_own_process() if self.isolate else None
        self._library: Any = None if self.isolate else library.opened(path)
        if self.quantize is not None and self._library is not None:
            _check_type(self._library, self.quantize)
        self._graphs: weakref.WeakKeyDictionary[Any, OrderedDict[tuple, Any]]
        self._graphs = weakref.WeakKeyDictionary()
        # The inputs that weights may be among, of programs without gradients.
        self._parameters: weakref.WeakKeyDictionary[Any, frozenset[int]]
        self._parameters = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()

    def _in_its_own_process(self) -> IsolatedGGML:
        options = {"mem_size": self.mem_size, "quantize": self.quantize, "threads": self.threads}
        return IsolatedGGML(**options)

    def _note_parameters(self, function: Callable[..., Any], positions: Sequence[int]) -> None:
        self._parameters[function] = frozenset(positions)

    def _call(self, function: Callable[..., Any], inputs: Sequence[Any]) -> list[Any]:
        inputs = [_laid_out(value) for value in inputs]
        if self._isolated is not None and not _calls_python(function):
            return self._isolated.call(function, inputs, self._parameters.get(function, ()))
        graph = self._graph(function, inputs)
        if graph is None:
            with np.errstate(all="ignore"):
                return own_memory(function(*inputs), inputs)
        return graph(inputs)

    def coverage(self, model: Any, *, gradients: bool = False) -> dict[str, Counter[str]]:
        """Counts how often the program of a compiled model calls each op: "native" are those that
        ggml computes itself, "custom" those that run on NumPy inside its graph. `gradients`: those
        of the programs with gradients. Only what was evaluated counts; a program that runs on
        NumPy as a whole has no graph.

        >>> import mithril as ml
        >>> model = ml.Model()
        >>> model |= ml.Linear(4)(input="x", output="h")
        >>> model |= ml.Sign()(input="h", output="y")
        >>> backend = ml.GGMLBackend()
        >>> pm = ml.compile(model, backend, shapes={"x": [2, 3]})
        >>> _ = pm.evaluate(pm.randomize_params(), {"x": backend.ones(2, 3)})
        >>> backend.coverage(pm)
        {'native': Counter({'linear': 1}), 'custom': Counter({'sign': 1})}
        """
        self._refuse_isolated("coverage")
        found: dict[str, Counter[str]] = {"native": Counter(), "custom": Counter()}
        for graph in self._graphs_of(model, gradients):
            for op, way in graph.ways:
                found[way][op] += 1
        return found

    def _quantizing(self, kind: str) -> GGMLBackend:
        """Returns this backend, or one that keeps weights in blocks of that type."""
        wanted = _quantize_type(kind)
        if self.quantize not in (None, wanted):
            raise ArgumentError(
                f"compile: quantize={kind!r}, but the backend has quantize={self.quantize!r}",
                hint="leave one of them out",
            )
        if self.quantize == wanted:
            return self
        return type(self)(
            self.mem_size,
            kind,
            self.threads,
            isolate=self.isolate,
            seed=self.seed,
        )

    def _refuse_isolated(self, what: str) -> None:
        if self._isolated is not None:
            raise UnsupportedError(
                f"GGMLBackend: {what}: its graphs are in another process",
                hint="leave isolate=True out",
            )

    def _quantization_report(self, program: Any, inputs: Sequence[Any]) -> QuantizationReport:
        """Compares the outputs of the forward program for these inputs with those in float32."""
        self._refuse_isolated("quantization_report")
        function = program.forward.function
        exact = GGMLBackend(self.mem_size, threads=self.threads)
        results = [backend._call(function, inputs) for backend in (self, exact)]
        graph = self._graph(function, [_laid_out(value) for value in inputs])
        if graph is None:
            return QuantizationReport((), ())
        names = [key.name for key in program.inputs]
        named = [dict(zip(program.outputs, values, strict=False)) for values in results]
        return report(graph.weights, inputs, names, *named)

    def _graphs_of(self, model: Any, gradients: bool = False) -> list[BuiltGraph]:
        programs = compilation_of(model).programs()
        executables = [
            executable
            for program in programs
            for executable in (program._gradients.values() if gradients else [program.forward])
        ]
        functions = [getattr(executable, "function", None) for executable in executables]
        known = [self._graphs[f].values() for f in functions if f in self._graphs]
        return [graph for graphs in known for graph in graphs if graph is not None]

    def _graph(self, function: Callable[..., Any], inputs: Sequence[Any]) -> BuiltGraph | None:
        """The graph of a program for inputs like these; None where NumPy runs it line by line."""
        key = tuple(map(_like, inputs))
        with self._lock:
            graphs = self._graphs.setdefault(function, OrderedDict())
            if key in graphs:
                graphs.move_to_end(key)
                return graphs[key]
            graph = graphs[key] = self._traced(function, inputs)
            while len(graphs) > MOST_GRAPHS:
                graphs.popitem(last=False)
        return graph

    def _guard(
        self, function: Callable[..., Any], arrays: Sequence[Any]
    ) -> Callable[..., bool] | None:
        """Arrays of the same dtypes and shapes, laid out as ggml reads memory."""
        if self._isolated is not None or not all(_laid_out(x) is x for x in arrays):
            return None
        names = [f"x{i}" for i in range(len(arrays))]
        facts = [
            f"{x}.__class__ is array and {x}.dtype is d[{i}] and {x}.shape == s[{i}]"
            f" and {x}.flags.num & {_C_AND_ALIGNED} == {_C_AND_ALIGNED}"
            for i, x in enumerate(names)
        ]
        scope = {
            "array": np.ndarray,
            "d": [x.dtype for x in arrays],
            "s": [x.shape for x in arrays],
        }
        return eval(f"lambda {', '.join(names)}: {' and '.join(facts) or True}", scope)

    def _guarded_call(
        self, function: Callable[..., Any], arrays: Sequence[Any]
    ) -> tuple[Sequence[Any], Callable[..., Sequence[Any]]]:
        graph = self._graph(function, arrays)
        if graph is None:
            return self._call(function, arrays), lambda *same: self._call(function, same)
        return graph(arrays), lambda *same: graph(same)

    def _traced(self, function: Callable[..., Any], inputs: Sequence[Any]) -> BuiltGraph | None:
        if _calls_python(function):
            return None
        trace = Trace(self._library)
        if self.quantize is not None and function in self._parameters:
            trace.quantize = quantize.TYPES[self.quantize]
            trace.parameters = self._parameters[function]
        try:
            nodes = [_node(trace, i, value) for i, value in enumerate(inputs)]
            with np.errstate(all="ignore"):
                outputs = function(*nodes)
            return BuiltGraph(trace, nodes, list(outputs), self)
        except Untraceable:
            trace.close()
            return None
        except BaseException:
            trace.close()
            raise


def _calls_python(function: Callable[..., Any]) -> bool:
    """Tells whether an emitted program calls functions of the user."""
    return isinstance(function.__globals__.get("ops"), OpTable)


def _laid_out(value: Any) -> Any:
    """An array as ggml reads memory: in one block, aligned, of the machine's byte order."""
    if not isinstance(value, np.ndarray):
        return np.asarray(value) if isinstance(value, np.generic) else value
    flags = value.flags
    if flags.c_contiguous and flags.aligned and value.dtype.isnative:
        return value
    return np.array(value, value.dtype.newbyteorder("="), order="C")


def _like(value: Any) -> Any:
    """Returns what a graph depends on: shape and dtype of an array, type and text of a value."""
    if isinstance(value, np.ndarray):
        return value.shape, value.dtype
    return type(value), repr(value)


def _node(trace: Trace, i: int, value: Any) -> Any:
    if not isinstance(value, np.ndarray) or value.size == 0:
        return value
    node = trace.leaf(value.shape, value.dtype)
    node.source = i
    return node


def _checked_size(value: Any) -> int:
    size = parse_size(value) if isinstance(value, str) else value
    if isinstance(size, bool) or not isinstance(size, int):
        raise SignatureError(
            f"GGMLBackend: mem_size requires a number of bytes, got {shown(value)}"
        )
    if size < 1:
        raise ArgumentError(f"GGMLBackend: mem_size requires at least 1 byte, got {size}")
    return size


def _checked_threads(threads: Any) -> int:
    if isinstance(threads, bool) or not isinstance(threads, int):
        raise SignatureError(f"GGMLBackend: threads requires an integer, got {shown(threads)}")
    if not 1 <= threads <= library.MOST_THREADS:
        raise ArgumentError(
            f"GGMLBackend: threads requires 1 to {library.MOST_THREADS}, got {threads}"
        )
    return threads


_quantize_type, _check_type = quantize.type_named, quantize.check_type
