"""Reference ops of further families in NumPy and float64: elementwise functions, activations,
features. `oracle_ops.py` has the others and their conventions.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

RECIPROCAL_THRESHOLD = {
    "float64": 1.4916681462400413e-153, "float32": 1.0842021951e-19, "float16": 7.8128e-3,
    "bfloat16": 1.0842021951e-19,
}  # fmt: skip


def real(x: Any) -> np.ndarray:
    return np.asarray(x, np.float64)


def whole(x: Any) -> np.ndarray:
    """Converts integral floats to integers; those out of range saturate, NaN gives 0."""
    limits, x = np.iinfo(np.int64), np.asarray(x)
    inside = np.where(np.abs(x) < 2.0**63, x, 0.0).astype(np.int64)
    return np.where(x >= 2.0**63, limits.max, np.where(x <= -(2.0**63), limits.min, inside))


def kept(function: Callable[[np.ndarray], Any]) -> Callable[..., Any]:
    """Wraps a function so that its result has the type of its operand."""
    return lambda input: np.asarray(function(np.asarray(input))).astype(np.asarray(input).dtype)


def of_float(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda input: np.asarray(function(real(input)))


def nan_to_num(input, nan=0.0, posinf=None, neginf=None, *, largest):
    x = np.asarray(input)
    if x.dtype.kind != "f":
        return x
    highest = largest if posinf is None else posinf
    lowest = -largest if neginf is None else neginf
    return np.nan_to_num(x, nan=nan, posinf=highest, neginf=lowest)


# --- continued below a threshold -----------------------------------------------------------------


def limit_of(threshold: Any, smallest: float) -> Any:
    return smallest if isinstance(threshold, str) else threshold


def robust_log(input, threshold="", *, smallest):
    x, limit = np.abs(real(input)), limit_of(threshold, smallest)
    return np.where(x < limit, np.log(limit) + x / limit - 1.0, np.log(np.maximum(x, limit)))


def robust_sqrt(input, threshold="", *, smallest):
    x, limit = np.abs(real(input)), limit_of(threshold, smallest)
    return np.where(x < limit, x / np.sqrt(limit), np.sqrt(x))


def robust_power(base, exponent, threshold="", *, smallest):
    x, e, limit = np.abs(real(base)), real(exponent), limit_of(threshold, smallest)
    line = (x < limit) & (e < 1.0 - np.log(limit) / np.log(x))
    return np.where(line, x / limit, x**e)


def stable_reciprocal(input, threshold="", *, smallest):
    x, limit = real(input), limit_of(threshold, smallest)
    tangent = np.where(x < 0, -2.0, 2.0) / limit - x / limit / limit
    return np.where(np.abs(x) < limit, tangent, 1.0 / x)


# --- activations ---------------------------------------------------------------------------------


def elu(input, alpha=1.0):
    x = real(input)
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0.0)))


def celu(input, alpha=1.0):
    return alpha * elu(real(input) / alpha)


def selu(input):
    return 1.0507009873554805 * elu(input, 1.6732632423543772)


def hard_sigmoid(input):
    return np.clip(real(input) / 6.0 + 0.5, 0.0, 1.0)


def mish(input):
    x = real(input)
    return x * np.tanh(np.logaddexp(0.0, x))


def hard_tanh(input, min_val=-1.0, max_val=1.0):
    x = np.asarray(input)
    low, high = np.asarray(min_val).astype(x.dtype), np.asarray(max_val).astype(x.dtype)
    return np.where(x < min_val, low, np.where(x > max_val, high, x))  # no uint8 is below -1


def prelu(input, weight, num_parameters=1):
    x = real(input)
    slopes = np.reshape(weight, (-1,) + (1,) * (x.ndim - 2)) if num_parameters > 1 else weight[0]
    return np.maximum(x, 0.0) + slopes * np.minimum(x, 0.0)


def logistic(x):
    return np.exp(-np.logaddexp(0.0, -real(x)))


def normal_below(x):
    return 0.5 * np.vectorize(math.erfc, otypes=[np.float64])(-real(x) / math.sqrt(2.0))


def gate(activation: Callable[[np.ndarray], Any]) -> Callable[..., Any]:
    def run(input, axis=-1):
        first, second = np.split(real(input), 2, axis)
        return first * activation(second)

    return run


def logsumexp(input, axis=None, keepdim=False):
    """`logaddexp.reduce` takes one axis: several are gone through from the last."""
    x = real(input)
    axes = range(x.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
    axes = sorted((a % x.ndim for a in axes), reverse=True) if x.ndim else []
    for a in axes:
        x = np.logaddexp.reduce(x, axis=a, keepdims=bool(keepdim))
    return np.asarray(x)


def softmin(input, axis=-1):
    x = -real(input)
    return np.exp(x - logsumexp(x, axis, keepdim=True))


# --- features ------------------------------------------------------------------------------------


def cartesian_diff(left, right):
    return np.subtract(np.asarray(left)[:, None], np.asarray(right)[None])


def distance_matrix(left, right, norm):
    return (np.abs(cartesian_diff(real(left), real(right))) ** real(norm)).sum(-1)


def norm_modifier(input):
    u = np.mod(real(input) - 1.0, 8.0) / 8.0 - 0.5
    return 4.0 * (1.0 - 2.0 * np.abs(u)) + 1.0


def polynomial_features(input, degree):
    x = np.asarray(input)
    columns = [
        x[:, chosen].prod(1)
        for k in range(1, degree + 1)
        for chosen in map(list, itertools.combinations_with_replacement(range(x.shape[1]), k))
    ]
    return np.stack(columns, 1).astype(x.dtype)


def trapezoid(y, x):
    return np.asarray(np.trapezoid(real(y), real(x), axis=-1))


def ones_with_zero_diag(N, M=None, dtype=None):  # noqa: N803
    rows, columns = np.indices((N, N if M is None else M))
    return (rows != columns).astype(dtype or np.float64)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "exp2": of_float(np.exp2),
    "log2": of_float(np.log2),
    "log10": of_float(np.log10),
    "reciprocal": of_float(lambda x: 1.0 / x),
    "tan": of_float(np.tan),
    "sinh": of_float(np.sinh),
    "cosh": of_float(np.cosh),
    "asin": of_float(np.arcsin),
    "acos": of_float(np.arccos),
    "atan": of_float(np.arctan),
    "atan2": lambda y, x: np.arctan2(real(y), real(x)),
    "asinh": of_float(np.arcsinh),
    "acosh": of_float(np.arccosh),
    "atanh": of_float(np.arctanh),
    "ceil": lambda input: whole(np.ceil(real(input))),
    "round": lambda input: whole(np.round(real(input))),
    "trunc": lambda input: whole(np.trunc(real(input))),
    "isinf": of_float(np.isinf),
    "isfinite": of_float(np.isfinite),
    "elu": elu,
    "celu": celu,
    "selu": selu,
    "mish": mish,
    "hard_sigmoid": hard_sigmoid,
    "hard_swish": lambda input: real(input) * hard_sigmoid(input),
    "hard_tanh": hard_tanh,
    "relu6": kept(lambda x: np.clip(x, 0, 6)),
    "prelu": prelu,
    "threshold": lambda input, threshold=0.0, value=0.0: np.where(
        real(input) > threshold, real(input), value
    ),
    "hard_shrink": lambda input, lambd=0.5: real(input) * (np.abs(input) > lambd),
    "soft_shrink": lambda input, lambd=0.5: (
        np.sign(input) * np.maximum(np.abs(real(input)) - lambd, 0.0)
    ),
    "softsign": of_float(lambda x: x / (1.0 + np.abs(x))),
    "log_sigmoid": of_float(lambda x: -np.logaddexp(0.0, -x)),
    "tanh_shrink": of_float(lambda x: x - np.tanh(x)),
    "glu": gate(logistic),
    "swiglu": gate(lambda x: x * logistic(x)),
    "geglu": gate(lambda x: x * normal_below(x) if x.size else x),
    "softmin": softmin,
    "logsumexp": logsumexp,
    "cartesian_diff": cartesian_diff,
    "distance_matrix": distance_matrix,
    "norm_modifier": norm_modifier,
    "polynomial_features": polynomial_features,
    "transposed_diag": lambda input: np.diagonal(input)[:, None],
    "trapezoid": trapezoid,
    "atleast_1d": lambda input: np.atleast_1d(input),
    "ones_with_zero_diag": ones_with_zero_diag,
}


def functions_for(
    float_dtype: str, smallest_normal: dict[str, float]
) -> dict[str, Callable[..., Any]]:
    """Name -> function, where thresholds and the largest number are those of a float type."""
    smallest = smallest_normal[float_dtype]
    largest = float(np.finfo("float32" if float_dtype == "bfloat16" else float_dtype).max)
    bound = {
        function.__name__: partial(function, smallest=smallest)
        for function in (robust_log, robust_sqrt, robust_power)
    }
    return (
        FUNCTIONS
        | bound
        | {
            "stable_reciprocal": partial(
                stable_reciprocal, smallest=RECIPROCAL_THRESHOLD[float_dtype]
            ),
            "nan_to_num": partial(nan_to_num, largest=largest),
        }
    )


__all__ = ["FUNCTIONS", "functions_for"]
