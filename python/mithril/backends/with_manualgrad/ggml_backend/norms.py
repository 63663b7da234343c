"""Softmax and normalizations: ggml's, and what stands for them where it has none."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..numpy_backend.utils import as_compute
from .graph import Node, struct
from .movement import swapaxes
from .operands import are_floats, is_float, is_number, native, reshape
from .pointwise import add, multiply


@native
def softmax(input, axis=-1):
    if not is_float(input) or not input.ndim or not isinstance(axis, int):
        return NotImplemented
    if axis not in (-1, input.ndim - 1):  # ggml has the last axis alone
        turned = swapaxes(input, axis, -1)
        return turned if turned is NotImplemented else swapaxes(softmax(turned), axis, -1)
    trace = input.trace
    tensor = trace.lib.soft_max_ext(trace.context, input.tensor, None, 1.0, 0.0)
    return trace.made(tensor, input.shape)


def _normal(function: str, input: Node, tensor: int, *options: Any) -> Node:
    """A norm of ggml's; nothing is fused with it, for memory is planned by node."""
    trace = input.trace
    made = getattr(trace.lib, function)(trace.context, tensor, *options)
    trace.lib.set_output(made)
    return reshape(trace.made(made, _seen(tensor)), input.shape)


def _seen(tensor: int) -> list[int]:
    return list(struct(tensor).ne)[::-1]


def _scaled(value: Any, weight: Any, bias: Any) -> Any:
    value = value if weight is None else multiply(value, weight)
    return value if bias is None else add(value, bias)


def _fits(input: Any, eps: Any, *parameters: Any) -> bool:
    given = [x for x in parameters if x is not None]
    return isinstance(input, Node) and is_float(input) and is_number(eps) and are_floats(*given)


def _layer_norm(input, eps=1e-5, weight=None, bias=None, use_scale=True, use_bias=True):
    x = as_compute(input)
    centred = x - np.mean(x, -1, keepdims=True)
    value = centred / np.sqrt(np.mean(centred * centred, -1, keepdims=True) + as_compute_(eps))
    return _rounded(value, input, weight, bias)


def _rms_norm(input, eps=1e-6, weight=None, use_scale=True):
    x = as_compute(input)
    value = x / np.sqrt(np.mean(x * x, -1, keepdims=True) + as_compute_(eps))
    return _rounded(value, input, weight, None)


def as_compute_(eps):
    return as_compute(eps) if hasattr(eps, "dtype") else eps


def _rounded(value, input, weight, bias):
    value = value if weight is None else value * as_compute(weight)
    value = value if bias is None else value + as_compute(bias)
    return value.astype(input.dtype, copy=False)


def _group_norm(input, eps=1e-5, weight=None, bias=None, num_groups=32, **_):
    x = as_compute(input)
    parts = x.reshape(x.shape[0], num_groups, -1) if x.size else x
    centred = parts - np.mean(parts, -1, keepdims=True)
    scale = np.sqrt(np.mean(centred * centred, -1, keepdims=True) + as_compute_(eps))
    return _rounded((centred / scale).reshape(x.shape), input, weight, bias)


# What runs where ggml's does not; emitted text has them under these names.
composites = {"layer_norm": _layer_norm, "rms_norm": _rms_norm, "group_norm": _group_norm}


@native
def layer_norm(input, eps=1e-5, weight=None, bias=None, use_scale=True, use_bias=True):
    if not _fits(input, eps, weight, bias):
        return NotImplemented
    return _scaled(_normal("norm", input, input.tensor, float(eps)), weight, bias)


@native
def rms_norm(input, eps=1e-6, weight=None, use_scale=True):
    if not _fits(input, eps, weight):
        return NotImplemented
    return _scaled(_normal("rms_norm", input, input.tensor, float(eps)), weight, None)


@native
def group_norm(input, eps=1e-5, weight=None, bias=None, num_groups=32, **_):
    if not _fits(input, eps, weight, bias) or input.ndim < 2 or input.shape[1] % num_groups:
        return NotImplemented
    n, channels, *rest = input.shape
    tensor = input.trace.reshaped(input, (math.prod(rest), 1, channels, n))
    return _scaled(_normal("group_norm", input, tensor, num_groups, float(eps)), weight, bias)
