"""Distances of results from the expected ones: in ULPs, and against a tolerance."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

# Largest difference allowed, relative to the largest element of the result (or 1).
TOLERANCE = {"float16": 2e-2, "bfloat16": 1e-1, "float32": 5e-5, "float64": 1e-10}
_WORDS = {2: np.int16, 4: np.int32, 8: np.int64}


def ulps(got: Any, want: Any) -> np.ndarray:
    """Counts the floats of `got`'s type from `want`, rounded to it, to `got`; NaN equals NaN.

    >>> ulps(np.float32([1.0, 1.0000001, 0.0]), np.float64([1.0, 1.0, -0.0])).tolist()
    [0.0, 1.0, 0.0]
    """
    got = np.asarray(got)
    with np.errstate(all="ignore"):
        want = np.asarray(want).astype(got.dtype)
    if got.dtype.kind in "iub":
        return np.abs(got.astype(np.float64) - want.astype(np.float64))
    steps = np.abs(_ordered(got) - _ordered(want))
    nan = np.isnan(got.astype(np.float64)), np.isnan(want.astype(np.float64))
    return np.where(nan[0] & nan[1], 0.0, np.where(nan[0] ^ nan[1], math.inf, steps))


def _ordered(values: np.ndarray) -> np.ndarray:
    """Floats as integers in the same order and without gaps; exact below 2**53 steps."""
    word = _WORDS[values.dtype.itemsize]
    bits = np.ascontiguousarray(values).view(word).reshape(values.shape)
    magnitude = (bits & np.iinfo(word).max).astype(np.float64 if word is not np.int64 else object)
    return np.where(bits < 0, -magnitude, magnitude)


@dataclass(frozen=True)
class Distance:
    """The distance of a result from the expected one."""

    ulps: float  # of the element that is furthest off; inf: no number, or another shape or dtype
    problem: str = ""  # beyond the tolerance: what is wrong


def distance(got: Any, want: Any, tolerance: float) -> Distance:
    """Compares a backend's result with the reference's."""
    got, want = np.asarray(got), np.asarray(want)
    if got.shape != want.shape:
        return Distance(math.inf, f"shape {got.shape}, not {want.shape}")
    kinds = {"f" if is_float(array) else array.dtype.kind for array in (got, want)}
    if len(kinds) > 1:
        return Distance(math.inf, f"dtype {got.dtype}, not {want.dtype}")
    if got.size == 0:
        return Distance(0.0)
    steps = ulps(got, want).astype(np.float64)
    g, w = got.astype(np.float64), want.astype(np.float64)
    finite = np.isfinite(w)
    scale = max(1.0, float(np.abs(w[finite]).max())) if finite.any() else 1.0
    with np.errstate(invalid="ignore"):
        allowed = tolerance * scale if kinds == {"f"} else 0.0
        near = (np.abs(g - w) <= allowed) | (g == w) | (np.isnan(g) & np.isnan(w))
    if near.all():
        return Distance(float(steps.max()))
    at = np.unravel_index(np.argmax(np.where(near, -1.0, steps)), got.shape)
    place = tuple(int(i) for i in at)
    return Distance(
        float(steps[at]),
        f"{int((~near).sum())} of {got.size} wrong, at {place}: got {g[at]}, not {w[at]}",
    )


def is_float(array: np.ndarray) -> bool:
    """Tells whether an array has floats; bfloat16, which NumPy does not know as one, counts."""
    return array.dtype.kind == "f" or array.dtype.name == "bfloat16"


__all__ = ["TOLERANCE", "Distance", "distance", "is_float", "ulps"]
