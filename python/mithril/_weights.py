"""What `bind(weights=)` takes."""

from __future__ import annotations

from typing import Any

from mithril._checks import text
from mithril.errors import ArgumentError, UnsupportedError, shown, suggestion
from mithril.types import Dtype

WEIGHT_FORMATS = ("bfloat16", "int8", "int4")


def check_weights(weights: Any, backend: Any, runs_python: bool) -> None:
    """Raises unless `weights` is a format in which programs of the backend may keep weights;
    `runs_python`: the model has ops that are Python functions."""
    if text("bind: weights", weights) not in WEIGHT_FORMATS:
        formats = ", ".join(f"'{name}'" for name in WEIGHT_FORMATS)
        near = suggestion(weights, WEIGHT_FORMATS)
        raise ArgumentError(f"bind: weights requires one of {formats}, got {shown(weights)}{near}")
    if not backend.packs_weights:
        raise UnsupportedError(
            f"bind: {backend!r} keeps no weights as {weights}",
            hint="compile the model for ml.CpuBackend()",
        )
    if runs_python:
        raise UnsupportedError(
            f"bind: weights cannot be kept as {weights}, for NumPy runs this model: it has ops that"
            " are Python functions"
        )
    if backend.default_dtype is not Dtype.float32:
        raise UnsupportedError(
            f"bind: weights as {weights} require float32, got {backend.default_dtype}",
            hint="compile the model for ml.CpuBackend()",
        )
