"""The quantization report: the error of each weight in blocks, and of the outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mithril.physical.quantized import ErrorRow, QuantizationReport, error_row, output_rows

from .quantize import TYPES, Weight

__all__ = ["QuantizationReport", "report"]


def report(
    weights: Sequence[Weight], inputs: Sequence[Any], names: Sequence[str], outputs: Any, exact: Any
) -> QuantizationReport:
    """Returns the report on the weights of a graph that was just computed for `inputs`.

    Parameters
    ----------
    outputs, exact : by name, of this graph and of the one with weights in float32
    """
    own = tuple(_weight_row(i, weight, inputs, names) for i, weight in enumerate(weights))
    return QuantizationReport(own, output_rows(outputs, exact))


def _weight_row(i: int, weight: Weight, inputs: Sequence[Any], names: Sequence[str]) -> ErrorRow:
    values: Any = weight.constant if weight.source is None else inputs[weight.source]
    name = f"constant {i}" if weight.source is None else names[weight.source]
    kind = next(key for key, number in TYPES.items() if number == weight.kind)
    bits = 8.0 * weight.size / (weight.shape[0] * weight.shape[1])
    return error_row(name, weight.values(), values.T if weight.is_turned else values, kind, bits)
