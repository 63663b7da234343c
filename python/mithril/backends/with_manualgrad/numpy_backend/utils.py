"""Functions that `ops` needs and NumPy lacks: the error function, 16-bit floats computed in
float32, and bounds checks of indices."""

from __future__ import annotations

import numpy as np

from mithril.backends import erf_coefficients as cody
from mithril.errors import DataIndexError


def as_compute(x):
    """Converts float16 and bfloat16 to float32; returns anything else unchanged."""
    if x.dtype.itemsize == 2 and x.dtype.kind not in "iu":
        return x.astype(np.float32)
    return x


def _ratio(p, q, x):
    return np.polyval(p, x) / np.polyval(q, x)


def _tail(y):
    """erfc(y) for y > 0.46875; the exponent is split so that its rounding does not show."""
    middle = _ratio(cody.MIDDLE_P, cody.MIDDLE_Q, np.minimum(y, 4.0))
    inverse = 1 / (y * y)
    large = (cody.INVERSE_ROOT_PI - inverse * _ratio(cody.LARGE_P, cody.LARGE_Q, inverse)) / y
    head = np.trunc(np.minimum(y, 30.0) * 16) / 16
    return np.exp(-head * head) * np.exp(-(y - head) * (y + head)) * np.where(y <= 4, middle, large)


def erf(x):
    """The error function in float64, rounded to the type of `x`."""
    wide = np.asarray(x, np.float64)
    y = np.abs(wide)
    small = y <= cody.SMALL
    near = wide * _ratio(cody.SMALL_P, cody.SMALL_Q, np.where(small, wide * wide, 0.0))
    far = np.copysign(1 - _tail(np.where(small, 1.0, y)), wide)
    return np.where(small, near, far).astype(x.dtype)


def erfc(x):
    """1 - erf(x) without cancellation, computed in float64."""
    wide = np.asarray(x, np.float64)
    y = np.abs(wide)
    small = y <= cody.SMALL
    near = 1 - wide * _ratio(cody.SMALL_P, cody.SMALL_Q, np.where(small, wide * wide, 0.0))
    tail = _tail(np.where(small, 1.0, y))
    far = np.where(wide > 0, tail, 2 - tail)
    return np.where(small, near, far).astype(x.dtype)


def checked(index, length):
    """Checks that all indices into an axis of that size are in bounds, and returns them."""
    index = np.asarray(index)
    if index.size and (index.min() < -length or index.max() >= length):
        bad = index[(index < -length) | (index >= length)].flat[0]
        raise DataIndexError(f"index {bad} is out of bounds for an axis of size {length}")
    return index
