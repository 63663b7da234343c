"""The oracle for gradients of the families of `oracle_functions.py`, in PyTorch and float64.

PyTorch's own function where it has one whose gradient at kinks is ours; hard_sigmoid, hard_swish
and relu6 are written by `clamp`, whose gradient on a limit is 1, and `where`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812

from mithril.testing import oracle_functions
from mithril.testing.oracle_functions import RECIPROCAL_THRESHOLD, limit_of


def real(x: Any) -> torch.Tensor:
    return torch.as_tensor(x, dtype=torch.float64)


def of_float(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda input: function(real(input))


def nan_to_num(input, nan=0.0, posinf=None, neginf=None, *, largest):
    if not input.is_floating_point():
        return input
    highest = largest if posinf is None else posinf
    return torch.nan_to_num(input, nan, highest, -largest if neginf is None else neginf)


# --- continued below a threshold -----------------------------------------------------------------


def limit_like(x: torch.Tensor, threshold: Any, smallest: float) -> torch.Tensor:
    return torch.as_tensor(limit_of(threshold, smallest), dtype=torch.float64).detach()


def robust_log(input, threshold="", *, smallest):
    x = real(input).abs()
    limit = limit_like(x, threshold, smallest)
    small = x < limit
    return torch.where(
        small, torch.log(limit) + x / limit - 1.0, torch.log(torch.where(small, limit, x))
    )


def robust_sqrt(input, threshold="", *, smallest):
    x = real(input).abs()
    limit = limit_like(x, threshold, smallest)
    small = x < limit
    return torch.where(small, x / torch.sqrt(limit), torch.sqrt(torch.where(small, limit, x)))


def robust_power(base, exponent, threshold="", *, smallest):
    x, e = real(base).abs(), real(exponent)
    limit = limit_like(x, threshold, smallest)
    line = (x < limit) & (e < 1.0 - torch.log(limit) / torch.log(x))
    one = torch.ones((), dtype=torch.float64)
    return torch.where(line, x / limit, torch.pow(torch.where(line, one, x), e))


def stable_reciprocal(input, threshold="", *, smallest):
    x = real(input)
    limit = limit_like(x, threshold, smallest)
    small = x.abs() < limit
    tangent = torch.where(x < 0, -2.0, 2.0) / limit - x / limit / limit
    return torch.where(small, tangent, 1.0 / torch.where(small, limit, x))


# --- activations ---------------------------------------------------------------------------------


def elu(input, alpha=1.0):
    x = real(input)
    below = alpha * torch.expm1(torch.clamp(x, max=0.0))
    return torch.where(x > 0, x, below)


def hard_sigmoid(input):
    return torch.clamp(real(input) + 3.0, 0.0, 6.0) / 6.0


def relu6(input):
    if not input.is_floating_point():
        return torch.clamp(input, 0, 6)
    return torch.where(input >= 6.0, 6.0, F.relu(input))


def hard_tanh(input, min_val=-1.0, max_val=1.0):
    if not input.is_floating_point():
        return torch.as_tensor(oracle_functions.hard_tanh(input.numpy(), min_val, max_val))
    return torch.clamp(input, min_val, max_val)


def gate(activation: Callable[..., Any]) -> Callable[..., Any]:
    def run(input, axis=-1):
        first, second = torch.chunk(real(input), 2, axis)
        return first * activation(second)

    return run


def prelu(input, weight, num_parameters=1):
    x = real(input)
    return F.prelu(x if x.ndim else x[None], weight).reshape(x.shape)


def softmin(input, axis=-1):
    return F.softmin(real(input), axis)


def logsumexp(input, axis=None, keepdim=False):
    x = real(input)
    axes = tuple(range(x.ndim)) if axis is None else axis
    return torch.logsumexp(x, axes, keepdim) if x.ndim else x.clone()


# --- features ------------------------------------------------------------------------------------


def cartesian_diff(left, right):
    return left[:, None] - right[None]


def distance_matrix(left, right, norm):
    delta = cartesian_diff(real(left), real(right))
    apart = delta != 0
    one = torch.ones((), dtype=torch.float64)
    power = torch.pow(torch.where(apart, delta, one).abs(), real(norm))
    return torch.where(apart, power, 0.0).sum(-1)


def norm_modifier(input):
    return 5.0 - (torch.remainder(real(input) - 1.0, 8.0) - 4.0).abs()


def polynomial_features(input, degree):
    columns = [
        input[:, list(chosen)].prod(1)
        for k in range(1, degree + 1)
        for chosen in itertools.combinations_with_replacement(range(input.shape[1]), k)
    ]
    return torch.stack(columns, 1)


DIFFERENTIABLE: dict[str, Callable[..., Any]] = {
    "exp2": of_float(torch.exp2),
    "log2": of_float(torch.log2),
    "log10": of_float(torch.log10),
    "reciprocal": of_float(torch.reciprocal),
    "tan": of_float(torch.tan),
    "sinh": of_float(torch.sinh),
    "cosh": of_float(torch.cosh),
    "asin": of_float(torch.asin),
    "acos": of_float(torch.acos),
    "atan": of_float(torch.atan),
    "atan2": lambda y, x: torch.atan2(real(y), real(x)),
    "asinh": of_float(torch.asinh),
    "acosh": of_float(torch.acosh),
    "atanh": of_float(torch.atanh),
    "elu": elu,
    "celu": lambda input, alpha=1.0: F.celu(real(input), alpha),
    "selu": of_float(torch.selu),
    "mish": of_float(F.mish),
    "hard_sigmoid": hard_sigmoid,
    "hard_swish": lambda input: real(input) * hard_sigmoid(input),
    "hard_tanh": hard_tanh,
    "relu6": relu6,
    "prelu": prelu,
    "threshold": lambda input, threshold=0.0, value=0.0: F.threshold(real(input), threshold, value),
    "hard_shrink": lambda input, lambd=0.5: F.hardshrink(real(input), lambd),
    "soft_shrink": lambda input, lambd=0.5: F.softshrink(real(input), lambd),
    "softsign": of_float(F.softsign),
    "log_sigmoid": of_float(F.logsigmoid),
    "tanh_shrink": of_float(F.tanhshrink),
    "glu": lambda input, axis=-1: F.glu(real(input), axis),
    "swiglu": gate(F.silu),
    "geglu": gate(F.gelu),
    "softmin": softmin,
    "logsumexp": logsumexp,
    "cartesian_diff": cartesian_diff,
    "distance_matrix": distance_matrix,
    "norm_modifier": norm_modifier,
    "polynomial_features": polynomial_features,
    "transposed_diag": lambda input: torch.diagonal(input)[:, None],
    "trapezoid": lambda y, x: torch.trapezoid(real(y), real(x), dim=-1),
    "atleast_1d": lambda input: torch.atleast_1d(input),
}


def functions_for(
    float_dtype: str, smallest_normal: dict[str, float]
) -> dict[str, Callable[..., Any]]:
    smallest = smallest_normal[float_dtype]
    largest = float(torch.finfo(getattr(torch, float_dtype)).max)
    bound = {
        function.__name__: partial(function, smallest=smallest)
        for function in (robust_log, robust_sqrt, robust_power)
    }
    return (
        DIFFERENTIABLE
        | bound
        | {
            "stable_reciprocal": partial(
                stable_reciprocal, smallest=RECIPROCAL_THRESHOLD[float_dtype]
            ),
            "nan_to_num": partial(nan_to_num, largest=largest),
        }
    )


__all__ = ["DIFFERENTIABLE", "functions_for"]
