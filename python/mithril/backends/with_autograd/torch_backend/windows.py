"""Convolution and pooling over the last two axes, on PyTorch tensors.

Arguments are canonical: pairs for rows and columns, padding as ((top, bottom), (left, right)).
"""

from __future__ import annotations

import math

import torch
from torch.nn import functional

from .scans import as_compute


def _is_symmetric(padding):
    return all(low == high for low, high in padding)


def _pad(x, padding, fill=0.0):
    if padding == ((0, 0), (0, 0)):
        return x
    (top, bottom), (left, right) = padding
    return functional.pad(x, (left, right, top, bottom), value=fill)


def _padded_shape(shape, padding):
    return (*shape[:-2], *(n + sum(p) for n, p in zip(shape[-2:], padding, strict=True)))


def _crop(x, shape, padding):
    (top, _), (left, _) = padding
    return x[..., top : top + shape[-2], left : left + shape[-1]]


# ------------------------------------------------------------------------------- convolution


def conv2d(
    input, weight, stride=(1, 1), padding=((0, 0), (0, 0)), dilation=(1, 1), groups=1
):  # fmt: skip
    if _is_symmetric(padding):
        inside = (padding[0][0], padding[1][0])
        return functional.conv2d(input, weight, None, stride, inside, dilation, groups)
    return functional.conv2d(_pad(input, padding), weight, None, stride, 0, dilation, groups)


def conv2d_dx(
    cotangent, weight, shape, stride=(1, 1), padding=((0, 0), (0, 0)), dilation=(1, 1), groups=1
):  # fmt: skip
    padded = _padded_shape(shape, padding)
    out = torch.nn.grad.conv2d_input(padded, weight, cotangent, stride, 0, dilation, groups)
    return _crop(out, shape, padding)


def conv2d_dw(
    input, cotangent, shape, stride=(1, 1), padding=((0, 0), (0, 0)), dilation=(1, 1), groups=1
):  # fmt: skip
    x = _pad(input, padding)
    return torch.nn.grad.conv2d_weight(x, shape, cotangent, stride, 0, dilation, groups)


# ----------------------------------------------------------------------------------- pooling


def _images(x):
    """Leading axes merged: [m, 1, rows, columns]."""
    return x.reshape(math.prod(x.shape[:-2]), 1, *x.shape[-2:])


def _max_pool(input, kernel_size, stride, padding, dilation):
    """The maxima, and the places of the first ones in the padded images."""
    x = _images(_pad(input, padding, -math.inf))
    return functional.max_pool2d(x, kernel_size, stride, 0, dilation, return_indices=True)


def max_pool2d(input, kernel_size, stride, padding=((0, 0), (0, 0)), dilation=(1, 1)):
    x = _images(_pad(input, padding, -math.inf))
    out = functional.max_pool2d(x, kernel_size, stride, 0, dilation)
    return out.reshape(*input.shape[:-2], *out.shape[-2:])


def max_pool2d_grad(
    input, cotangent, kernel_size, stride, padding=((0, 0), (0, 0)), dilation=(1, 1)
):  # fmt: skip
    _, places = _max_pool(input, kernel_size, stride, padding, dilation)
    padded = _padded_shape(input.shape, padding)
    dy = as_compute(cotangent)
    flat = dy.new_zeros((len(places), padded[-2] * padded[-1]))
    flat = flat.scatter_add(1, places.flatten(1), _images(dy).flatten(1))
    return _crop(flat.reshape(padded), input.shape, padding).to(cotangent.dtype)


def max_pool2d_pick(
    input, value, like, kernel_size, stride, padding=((0, 0), (0, 0)), dilation=(1, 1)
):  # fmt: skip
    _, places = _max_pool(input, kernel_size, stride, padding, dilation)
    flat = _images(_pad(value, padding)).flatten(1)
    return flat.gather(1, places.flatten(1)).reshape(like.shape)


def _mean_filter(x, kernel_size):
    return x.new_full((1, 1, *kernel_size), 1 / math.prod(kernel_size))


def avg_pool2d(input, kernel_size, stride, padding=((0, 0), (0, 0)), dilation=(1, 1)):
    x = as_compute(_images(_pad(input, padding)))
    if dilation == (1, 1):
        out = functional.avg_pool2d(x, kernel_size, stride)
    else:
        out = functional.conv2d(x, _mean_filter(x, kernel_size), None, stride, 0, dilation)
    return out.reshape(*input.shape[:-2], *out.shape[-2:]).to(input.dtype)


def avg_pool2d_grad(
    cotangent, shape, kernel_size, stride, padding=((0, 0), (0, 0)), dilation=(1, 1)
):  # fmt: skip
    dy = as_compute(_images(cotangent))
    padded = _padded_shape(shape, padding)
    out = torch.nn.grad.conv2d_input(
        (len(dy), 1, *padded[-2:]), _mean_filter(dy, kernel_size), dy, stride, 0, dilation
    )
    return _crop(out.reshape(padded), shape, padding).to(cotangent.dtype)
