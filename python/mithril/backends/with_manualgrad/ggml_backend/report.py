"""What weights in blocks cost: the error of each one, and of the outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .quantize import TYPES, Weight


@dataclass(frozen=True)
class ErrorRow:
    """How far one array is off.

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


def report(
    weights: Sequence[Weight], inputs: Sequence[Any], names: Sequence[str], outputs: Any, exact: Any
) -> QuantizationReport:
    """Of the weights of a graph that was just computed for `inputs`, whose names are given.

    Parameters
    ----------
    outputs, exact : by name, of this graph and of the one with weights in float32
    """
    own = tuple(_weight_row(i, weight, inputs, names) for i, weight in enumerate(weights))
    rows = tuple(
        _row(name, outputs[name], value, "", 32.0)
        for name, value in exact.items()
        if getattr(value, "dtype", None) == np.float32
    )
    return QuantizationReport(own, rows)


def _weight_row(i: int, weight: Weight, inputs: Sequence[Any], names: Sequence[str]) -> ErrorRow:
    values: Any = weight.constant if weight.source is None else inputs[weight.source]
    name = f"constant {i}" if weight.source is None else names[weight.source]
    kind = next(key for key, number in TYPES.items() if number == weight.kind)
    bits = 8.0 * weight.size / (weight.shape[0] * weight.shape[1])
    return _row(name, weight.values(), values.T if weight.is_turned else values, kind, bits)


def _row(name: str, got: Any, want: Any, kind: str, bits: float) -> ErrorRow:
    want = np.asarray(want, np.float64)
    error = np.asarray(got, np.float64) - want
    size = float(np.sqrt(np.mean(want * want))) if want.size else 0.0
    rms = float(np.sqrt(np.mean(error * error))) if want.size else 0.0
    largest = float(np.abs(error).max(initial=0.0))
    return ErrorRow(name, want.shape, kind, bits, rms / size if size else rms, largest)
