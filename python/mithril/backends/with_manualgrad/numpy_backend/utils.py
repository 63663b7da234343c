"""Functions that `ops` needs and NumPy lacks: the error function, 16-bit floats computed in
float32, and bounds checks of indices."""

from __future__ import annotations

import numpy as np

from mithril.errors import DataIndexError


def as_compute(x):
    """Converts float16 and bfloat16 to float32; returns anything else unchanged."""
    if x.dtype.itemsize == 2 and x.dtype.kind not in "iu":
        return x.astype(np.float32)
    return x


# Rational approximations of W. J. Cody, Math. Comp. 23 (1969), as in SPECFUN's CALERF: for
# |x| <= 0.46875, for |x| <= 4, and above.
_SMALL_P = (
    1.85777706184603153e-1, 3.16112374387056560e0, 1.13864154151050156e2, 3.77485237685302021e2,
    3.20937758913846947e3,
)  # fmt: skip
_SMALL_Q = (
    1.0, 2.36012909523441209e1, 2.44024637934444173e2, 1.28261652607737228e3,
    2.84423683343917062e3,
)  # fmt: skip
_MIDDLE_P = (
    2.15311535474403846e-8, 5.64188496988670089e-1, 8.88314979438837594e0, 6.61191906371416295e1,
    2.98635138197400131e2, 8.81952221241769090e2, 1.71204761263407058e3, 2.05107837782607147e3,
    1.23033935479799725e3,
)  # fmt: skip
_MIDDLE_Q = (
    1.0, 1.57449261107098347e1, 1.17693950891312499e2, 5.37181101862009858e2,
    1.62138957456669019e3, 3.29079923573345963e3, 4.36261909014324716e3, 3.43936767414372164e3,
    1.23033935480374942e3,
)  # fmt: skip
_LARGE_P = (
    1.63153871373020978e-2, 3.05326634961232344e-1, 3.60344899949804439e-1, 1.25781726111229246e-1,
    1.60837851487422766e-2, 6.58749161529837803e-4,
)  # fmt: skip
_LARGE_Q = (
    1.0, 2.56852019228982242e0, 1.87295284992346725e0, 5.27905102951428412e-1,
    6.05183413124413191e-2, 2.33520497626869185e-3,
)  # fmt: skip
_INVERSE_ROOT_PI = 0.56418958354775628695


def _ratio(p, q, x):
    return np.polyval(p, x) / np.polyval(q, x)


def _tail(y):
    """erfc(y) for y > 0.46875; the exponent is split so that its rounding does not show."""
    middle = _ratio(_MIDDLE_P, _MIDDLE_Q, np.minimum(y, 4.0))
    inverse = 1 / (y * y)
    large = (_INVERSE_ROOT_PI - inverse * _ratio(_LARGE_P, _LARGE_Q, inverse)) / y
    head = np.trunc(np.minimum(y, 30.0) * 16) / 16
    return np.exp(-head * head) * np.exp(-(y - head) * (y + head)) * np.where(y <= 4, middle, large)


def erf(x):
    """The error function in float64, rounded to the type of `x`."""
    wide = np.asarray(x, np.float64)
    y = np.abs(wide)
    small = y <= 0.46875
    near = wide * _ratio(_SMALL_P, _SMALL_Q, np.where(small, wide * wide, 0.0))
    far = np.copysign(1 - _tail(np.where(small, 1.0, y)), wide)
    return np.where(small, near, far).astype(x.dtype)


def erfc(x):
    """1 - erf(x) without cancellation, computed in float64."""
    wide = np.asarray(x, np.float64)
    y = np.abs(wide)
    small = y <= 0.46875
    near = 1 - wide * _ratio(_SMALL_P, _SMALL_Q, np.where(small, wide * wide, 0.0))
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
