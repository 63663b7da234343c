"""The op matrix in halves: values and gradients of every op near both ends of the range of float16
and bfloat16, beside the exact ones of the same rounded inputs.

An op computes in float32 and rounds once, so that a result is within two units in the last place
of the exact one. Values are beside the oracle, gradients beside PyTorch's in float64.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from mithril.testing import op_matrix, oracle_ops
from mithril.testing.op_dtypes import has_slopes, weights_of
from mithril.testing.op_matrix import Case
from mithril.types import Dtype

HALVES = ("float16", "bfloat16")
UNITS = 2.0
DIGITS = {"float16": 10, "bfloat16": 7}  # behind the first
LEAST = {"float16": -14, "bfloat16": -126}  # exponent of the least normal number
LARGEST = {"float16": 65504.0, "bfloat16": 2.0**128 - 2.0**120}
# Exponents of what is drawn: products of four stay in the range of float32.
SMALL = {"float16": (-22.0, -12.0), "bfloat16": (-24.0, -16.0)}
LARGE = {"float16": (11.0, 15.99), "bfloat16": (16.0, 24.0)}
PLACES = ("ordinary", "small", "large")
UNBOUNDED = 2.0  # a symmetric domain up to here is drawn from by an op that takes every number


def cases(op: Mapping[str, Any]) -> Iterator[Case]:
    """Returns the first sample of floats in each 16-bit float type."""
    first = next((case for case in op_matrix.cases(dict(op)) if case.kind == "float"), None)
    if first is None or op_matrix.is_told_dtype(op) or op["family"] == "random":
        return
    for dtype in HALVES:
        case = dataclasses.replace(first, dtype=dtype)
        if case.widths:
            yield case


def inputs(case: Case, place: str) -> dict[str, np.ndarray] | None:
    """Values of a place of the range; none where the op takes no numbers there."""
    drawn = case.draw(points=False)
    if place == "ordinary":
        return drawn
    random = np.random.default_rng(5)
    moved = {
        label: _moved(random, case, declared, drawn[label], place)
        for label, declared, _ in case.tensors
        if label in case.widths
    }
    found = {label: values for label, values in moved.items() if values is not None}
    return {**drawn, **found} if found else None


def _moved(random: Any, case: Case, declared: Any, drawn: Any, place: str) -> Any:
    domain = (declared["low"], declared["high"])
    is_free = domain[0] == -domain[1] and domain[1] >= UNBOUNDED
    is_positive = 0.0 < domain[0] < 1.0 < domain[1]
    of_matrices = case.op["family"] in ("linalg", "matrix_functions")
    if of_matrices or not (is_free or is_positive):
        return None
    exponents = random.uniform(*(SMALL if place == "small" else LARGE)[case.dtype], drawn.shape)
    signs = np.where(random.integers(0, 2, drawn.shape) > 0, 1.0, -1.0) if is_free else 1.0
    return oracle_ops.tensor(signs * 2.0**exponents, case.dtype)


def units(got: Any, want: Any, dtype: str) -> np.ndarray:
    """Returns the distances of results from exact ones, in units in the last place of these. Beyond
    the range infinity is right; where the exact result is NaN the distance is 0.

    >>> units(np.float16([1.0, np.inf]), np.array([1.0 + 2.0**-10, 1e6]), "float16").tolist()
    [1.0, 0.0]
    """
    got, want = np.asarray(got).astype(np.float64), np.asarray(want).astype(np.float64)
    size = np.maximum(np.abs(want), 2.0 ** LEAST[dtype])
    with np.errstate(all="ignore"):
        unit = 2.0 ** (np.floor(np.log2(size)) - DIGITS[dtype])
        off = np.abs(got - want) / unit
    edge = LARGEST[dtype] * (1.0 + 2.0 ** -(DIGITS[dtype] + 1))
    is_far = np.isinf(got) & (np.sign(got) == np.sign(want)) & (np.abs(want) >= edge * (1 - 2e-3))
    off = np.where(is_far | (got == want) | np.isnan(want), 0.0, off)
    return np.where(np.isnan(off), np.inf, off)


def problem(got: Any, want: Any, dtype: str, allowed: float = UNITS) -> str | None:
    """Says how a 16-bit result differs from the exact one by too much, or None."""
    if np.shape(got) != np.shape(want):
        return f"shape {np.shape(got)}, not {np.shape(want)}"
    if np.asarray(got).dtype != Dtype(dtype).numpy():
        return f"dtype {np.asarray(got).dtype}, not {dtype}"
    if not np.size(want):
        return None
    off = units(got, want, dtype)
    if off.max() <= allowed:
        return None
    at = np.unravel_index(np.argmax(off), off.shape)
    found, exact = np.asarray(got)[at], np.asarray(want)[at]
    return f"{off.max():.3g} units at {tuple(map(int, at))}: got {found}, not {exact}"


def _as_half(got: Any, result: str, dtype: str) -> Any:
    """Rounds a result that the op gives in a wider type, as what reads it does."""
    is_wide = result != dtype and str(np.asarray(got).dtype) == result
    return np.asarray(got).astype(Dtype(dtype).numpy()) if is_wide else got


def check(model: Any, case: Case, place: str) -> tuple[list[str], int]:
    """Lists what is wrong with the values and gradients of a compiled case at a place of the
    range; also returns how many were compared."""
    from mithril.testing import torch_oracle

    given = inputs(case, place)
    if given is None:
        return [], 0
    outputs = op_matrix.expected(model, case, given, "float64").outputs
    wanted = {k: v for k, v in outputs.items() if getattr(v, "dtype", None) == np.float64}
    weights = weights_of(wanted, case.dtype) if has_slopes(case) else None
    got = op_matrix.evaluate(model, case, given, weights)
    result = op_matrix.float_result(case.op, case.dtype)
    compared = [(k, _as_half(got.outputs[k], result, case.dtype), v) for k, v in wanted.items()]
    if weights:
        every = op_matrix.all_inputs(model, case, given)
        slopes = torch_oracle.gradients(
            case.text, every, weights, case.differentiable, float_dtype="float64"
        )
        compared += [(f"gradient of {k}", got.gradients[k], want) for k, want in slopes.items()]
    found = [(what, problem(got, want, case.dtype)) for what, got, want in compared]
    told = [f"{case.label} {place}, {what}: {wrong}" for what, wrong in found if wrong]
    return told, len(compared)


__all__ = ["HALVES", "PLACES", "cases", "check", "inputs", "problem", "units"]
