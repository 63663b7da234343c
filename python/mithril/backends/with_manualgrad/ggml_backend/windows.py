"""Convolution and average pooling of images by ggml. Its largest of a window loses NaN and knows
no -inf, so max pooling is ours."""

from __future__ import annotations

import math

import numpy as np

from .graph import Node
from .movement import padded
from .operands import is_float, native, reshape, trace_of

_MOST = 2**20  # of strides, paddings and windows: ggml multiplies them in 32 bits
_AVERAGE = 1  # GGML_OP_POOL_AVG
_F32 = 0


@native
def conv2d(
    input, weight, stride=(1, 1), padding=((0, 0), (0, 0)), dilation=(1, 1), groups=1
):  # fmt: skip
    if not is_float(input) or not is_float(weight) or groups != 1:
        return NotImplemented
    if len(input.shape) != 4 or len(weight.shape) != 4 or input.shape[1] != weight.shape[1]:
        return NotImplemented
    trace = trace_of(input, weight)
    x, w = trace.lift(input), trace.lift(weight)
    counts = _counts(x, w.shape[2:], stride, padding, dilation)
    if min(counts) < 1 or not _are_small(stride, padding, dilation, w.shape[2:]):
        return NotImplemented
    columns = _columns(x, w, stride, padding, dilation, counts)
    n, rows = x.shape[0], math.prod(counts)
    size, filters = math.prod(w.shape[1:]), w.shape[0]
    source = trace.reshaped(columns, (size, n * rows, 1, 1))
    product = trace.lib.mul_mat(trace.context, source, trace.reshaped(w, (size, filters, 1, 1)))
    made = trace.made(product, (filters, n * rows))
    if n > 1:  # [filters, n, places] to [n, filters, places]
        turned = trace.permuted(made, (0, 2, 1, 3), (rows, n, filters, 1))
        made = Node(trace, turned, (n, filters, rows))
    return reshape(made, (n, filters, *counts))


def _are_small(*options) -> bool:
    return max(np.max(option) for option in options) < _MOST


def _counts(x, kernel, stride, padding, dilation):
    """Returns the number of positions of the kernel along each axis."""
    axes = zip(x.shape[2:], kernel, stride, padding, dilation, strict=True)
    return [(n + sum(p) - (k - 1) * d - 1) // s + 1 for n, k, s, p, d in axes]


def _columns(x: Node, w: Node, stride, padding, dilation, counts) -> Node:
    """Returns the windows as rows, [n, rows, columns, channels · kernel] (im2col)."""
    trace = x.trace
    if any(a != b for a, b in padding):
        x = padded(x, ((0, 0), (0, 0), *padding))
        padding = ((0, 0), (0, 0))
    options = [pair[i] for pair in (stride, [p[0] for p in padding], dilation) for i in (1, 0)]
    tensor = trace.lib.im2col(trace.context, w.tensor, x.tensor, *options, True, _F32)
    return trace.made(tensor, (x.shape[0], *counts, math.prod(w.shape[1:])))


@native
def avg_pool2d(input, kernel_size, stride, padding=((0, 0), (0, 0)), dilation=(1, 1)):
    """Padding counts as zeros, which are put there first."""
    if not is_float(input) or tuple(dilation) != (1, 1) or not 2 <= input.ndim <= 4:
        return NotImplemented
    axes = zip(input.shape[-2:], kernel_size, stride, padding, strict=True)
    counts = [(n + sum(p) - k) // s + 1 for n, k, s, p in axes]
    if min(counts) < 1 or not _are_small(kernel_size, stride, padding):
        return NotImplemented
    if any(any(pair) for pair in padding):
        input = padded(input, (*[(0, 0)] * (input.ndim - 2), *padding))
    trace = input.trace
    options = [pair[i] for pair in (kernel_size, stride) for i in (1, 0)]
    tensor = trace.lib.pool_2d(trace.context, input.tensor, _AVERAGE, *options, 0.0, 0.0)
    return trace.made(tensor, (*input.shape[:-2], *counts))
