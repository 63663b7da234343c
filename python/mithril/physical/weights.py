"""Checks what `bind(weights=)` and `compile(quantize=)` are given."""

from __future__ import annotations

from typing import Any

from mithril.base.checks import checked_str
from mithril.errors import ArgumentError, UnsupportedError, shown, suggestion
from mithril.types import Dtype

WEIGHT_FORMATS = ("bfloat16", "int8", "int4", "int16")


def check_weights(option: str, kind: Any, backend: Any, runs_python: bool = False) -> None:
    """Raises unless programs of the backend may keep weights in this format.

    Parameters
    ----------
    option : what the user calls it
    runs_python : whether plans cannot run the model, for it has ops that are Python functions
    """
    if checked_str(option, kind) not in WEIGHT_FORMATS:
        formats = ", ".join(f"'{name}'" for name in WEIGHT_FORMATS)
        near = suggestion(kind, WEIGHT_FORMATS)
        raise ArgumentError(f"{option} requires one of {formats}, got {shown(kind)}{near}")
    where = option.partition(":")[0]
    if kind not in backend.weight_formats or backend.quantizes_itself:
        raise UnsupportedError(
            f"{where}: {backend!r} keeps no weights as {kind}",
            hint='compile the model for it with quantize="int8", or for ml.CpuBackend()',
        )
    if runs_python:
        raise UnsupportedError(
            f"{where}: weights cannot be kept as {kind}, for NumPy runs this model: it has ops that"
            " are Python functions"
        )
    if backend.default_dtype is not Dtype.float32:
        raise UnsupportedError(
            f"{where}: weights as {kind} require float32, got {backend.default_dtype}",
            hint="compile the model for a backend with dtype=ml.float32",
        )
