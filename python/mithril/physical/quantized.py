"""Programs of `compile(quantize=)`: the weights of their products are kept in few bits.

Weights that come with a call are rounded at each call, to what few bits stand for; `bind` keeps
them in few bits from then on (docs/low_precision.md). Both have the same values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mithril import _core
from mithril.base.numpy import np

_BITS = {"bfloat16": 16.0, "int4": 4.5, "int8": 8.5, "int16": 16.5}


@dataclass(frozen=True)
class ErrorRow:
    """Says how far one array is off.

    Attributes
    ----------
    name : of the parameter or output; bound weights are numbered
    shape : of the weight as [n, k], or of the output
    kind : the type of the blocks, or "" of an output
    bits : for each element
    relative : root mean square of the error by that of the values
    largest : error of an element
    """

    name: str
    shape: tuple[int, ...]
    kind: str
    bits: float
    relative: float
    largest: float

    def __str__(self) -> str:
        what = f"{self.kind} ({self.bits:.4g} bits)" if self.kind else "output"
        error = f"relative error {self.relative:.2e}, largest {self.largest:.2e}"
        return f"{self.name} {list(self.shape)} {what}: {error}"


@dataclass(frozen=True)
class QuantizationReport:
    """The errors of weights beside what was given, and of outputs beside float32's."""

    weights: tuple[ErrorRow, ...]
    outputs: tuple[ErrorRow, ...]

    def __str__(self) -> str:
        rows = [*self.weights, *self.outputs]
        return "\n".join(map(str, rows)) if self.weights else "no weight is quantized"


def error_row(name: str, got: Any, want: Any, kind: str, bits: float) -> ErrorRow:
    want = np.asarray(want, np.float64)
    error = np.asarray(got, np.float64) - want
    size = float(np.sqrt(np.mean(want * want))) if want.size else 0.0
    rms = float(np.sqrt(np.mean(error * error))) if want.size else 0.0
    largest = float(np.abs(error).max(initial=0.0))
    return ErrorRow(name, want.shape, kind, bits, rms / size if size else rms, largest)


def output_rows(got: Mapping[str, Any], exact: Mapping[str, Any]) -> tuple[ErrorRow, ...]:
    """Compares the outputs in float32, by name."""
    return tuple(
        error_row(name, got[name], value, "", 32.0)
        for name, value in exact.items()
        if getattr(value, "dtype", None) == np.float32
    )


def weight_report(
    backend: Any,
    kind: str,
    graph: Any,
    inputs: Sequence[Any],
    outputs: Mapping[str, Any],
    exact: Mapping[str, Any],
) -> QuantizationReport:
    """Tells how far the weights of a graph are off, and its outputs.

    Parameters
    ----------
    kind : the format of the weights
    inputs : arrays of the backend
    outputs, exact : by name, of rounded weights and of those that were given
    """
    rows = []
    for at, turned in _core.separate_weights(graph)[1]:
        want = np.ascontiguousarray(backend.to_numpy(inputs[at]), np.float32)
        got = _core.rounded_weights(want, turned, kind).T
        want = want if turned else want.T
        if not np.array_equal(got, want):
            rows.append(error_row(graph.inputs[at][0], got, want, kind, _BITS[kind]))
    return QuantizationReport(tuple(rows), output_rows(outputs, exact))


class Quantized:
    """An executable of a graph whose weights are rounded before it runs.

    Parameters
    ----------
    make : makes an executable of a graph
    kind : the format of the weights

    Attributes
    ----------
    weights : (place among the inputs, whether it is transposed) of each
    executable : what runs, with the rounded weights behind the inputs
    """

    def __init__(self, backend: Any, graph: Any, kind: str, make: Callable[[Any], Any]) -> None:
        self._backend = backend
        self._kind = kind
        self._names = [name for name, *_ in graph.inputs]
        separated, self.weights = _core.separate_weights(graph)
        self.executable = make(separated)
        if hasattr(self.executable, "source"):
            self.source = self.executable.source

    def run(self, inputs: Sequence[Any], donates: bool = False) -> list[Any]:
        every = [*inputs, *(self._rounded(inputs[at], turned) for at, turned in self.weights)]
        return list(self.executable.run(every, True) if donates else self.executable.run(every))

    def _rounded(self, weight: Any, turned: bool) -> Any:
        """Makes what the product multiplies by, an array of the backend."""
        values = np.ascontiguousarray(self._backend.to_numpy(weight), np.float32)
        rounded = _core.rounded_weights(values, turned, self._kind)
        return self._backend.tensor(rounded, rounded.dtype)

    # What plans tell of themselves: of the inputs that callers know.

    def _every(self, sizes: Sequence[Sequence[int]]) -> list[list[int]]:
        own = [list(shape) for shape in sizes]
        return own + [own[at][::-1] if turned else own[at] for at, turned in self.weights]

    def selection_report(self, sizes: Sequence[Sequence[int]]) -> Any:
        return self.executable.selection_report(self._every(sizes))

    def memory(self, sizes: Sequence[Sequence[int]], step: int) -> Any:
        told = self.executable.memory(self._every(sizes), step)
        own = {at: count for at, count in told["inputs"].items() if at < len(self._names)}
        return {**told, "inputs": own}

    def symbols(self, shapes: Sequence[Sequence[int | None]]) -> Any:
        return self.executable.symbols(self._every(shapes))  # type: ignore[arg-type]

    def sizes(self, symbols: Any) -> Any:
        return self.executable.sizes(symbols)[: len(self._names)]
