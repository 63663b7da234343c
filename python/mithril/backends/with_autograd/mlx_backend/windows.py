"""Convolution and pooling over the last two axes, on MLX arrays.

Arguments are canonical: pairs for rows and columns, padding as ((top, bottom), (left, right)).
MLX convolves with channels last, as the functions `…_channels_last` have them; elsewhere arrays are
transposed on the way in and out.
"""

from __future__ import annotations

import functools
import math

import mlx.core as mx

from .special import where

# ------------------------------------------------------------------------------- convolution


def conv2d(
    input, weight, stride=(1, 1), padding=((0, 0), (0, 0)), dilation=(1, 1), groups=1
):  # fmt: skip
    window = (stride, padding, dilation, groups)
    shapes = tuple(input.shape), tuple(weight.shape)
    return _convolutions(_conv2d, *shapes, *window)[0](input, weight)


def conv2d_channels_last(
    input, weight, stride=(1, 1), padding=((0, 0), (0, 0)), dilation=(1, 1), groups=1
):  # fmt: skip
    window = (stride, padding, dilation, groups)
    shapes = tuple(input.shape), tuple(weight.shape)
    return _convolutions(_conv2d_channels_last, *shapes, *window)[0](input, weight)


def conv2d_dx(
    cotangent, weight, shape, stride=(1, 1), padding=((0, 0), (0, 0)), dilation=(1, 1), groups=1
):  # fmt: skip
    window = (stride, padding, dilation, groups)
    return _convolutions(_conv2d, tuple(shape), tuple(weight.shape), *window)[1](cotangent, weight)


def conv2d_dw(
    input, cotangent, shape, stride=(1, 1), padding=((0, 0), (0, 0)), dilation=(1, 1), groups=1
):  # fmt: skip
    window = (stride, padding, dilation, groups)
    return _convolutions(_conv2d, tuple(input.shape), tuple(shape), *window)[2](input, cotangent)


@functools.lru_cache(256)
def _convolutions(convolve, input_shape, weight_shape, *window):
    """A convolution of two shapes and its two gradients, each the gradient of the others.

    MLX's own gradients of its gradients have wrong shapes (0.32).
    """

    @mx.custom_function
    def conv(x, w):
        return convolve(x, w, *window)

    @mx.custom_function
    def conv_dx(dy, w):
        return _transposed(lambda x: convolve(x, w, *window), input_shape, dy)

    @mx.custom_function
    def conv_dw(x, dy):
        return _transposed(lambda w: convolve(x, w, *window), weight_shape, dy)

    conv.vjp(lambda at, dy, _: (conv_dx(dy, at[1]), conv_dw(at[0], dy)))
    conv_dx.vjp(lambda at, g, _: (conv(g, at[1]), conv_dw(g, at[0])))
    conv_dw.vjp(lambda at, g, _: (conv_dx(at[1], g), conv(at[0], g)))
    return conv, conv_dx, conv_dw


def _channels_last(x):
    return mx.transpose(x, (0, 2, 3, 1))


def _channels_first(x):
    return mx.transpose(x, (0, 3, 1, 2))


def _conv2d(input, weight, *window):
    return _channels_first(_conv2d_channels_last(_channels_last(input), weight, *window))


def _conv2d_channels_last(input, weight, stride, padding, dilation, groups):
    if 0 in input.shape or 0 in weight.shape or input.dtype == mx.float64:
        window = (stride, padding, dilation, groups)
        return _channels_last(_conv2d_by_taps(_channels_first(input), weight, *window))
    # Padded here: the gradients of MLX's own padding have wrong shapes, too.
    x = mx.pad(input, [(0, 0), *padding, (0, 0)])
    filters = _channels_last(weight)
    return mx.conv_general(x, filters, stride, kernel_dilation=dilation, groups=groups)


def _conv2d_by_taps(input, weight, stride, padding, dilation, groups):
    """Convolves by matrix products: MLX ends the process at a convolution of float64."""
    images, outputs = input.shape[0], weight.shape[0]
    if 0 in weight.shape:
        sizes = _counts(input.shape[2:], weight.shape[2:], stride, padding, dilation)
        return mx.zeros((images, outputs, *sizes), input.dtype)
    columns = mx.stack(list(_taps(input, (weight.shape[2:], stride, padding, dilation), 0)), 2)
    rows = math.prod(weight.shape[1:])
    places = columns.shape[3:]
    if 0 in (images, *places):
        return mx.zeros((images, outputs, *places), input.dtype)
    columns = columns.reshape(images, groups, rows, math.prod(places))
    filters = weight.reshape(1, groups, outputs // groups, rows)
    return mx.matmul(filters, columns).reshape(images, outputs, *places)


def _transposed(linear, shape, cotangent):
    """Applies the transpose of a linear function of an array of that shape to a cotangent."""
    at = mx.zeros(shape, cotangent.dtype)
    return mx.vjp(lambda x: [linear(x)], [at], [cotangent])[1][0]


# ----------------------------------------------------------------------------------- pooling


def _counts(sizes, kernel_size, stride, padding, dilation):
    """Returns the number of window positions in rows and columns."""
    return [
        max(0, (n + sum(p) - (k - 1) * d - 1) // s + 1)
        for n, k, s, p, d in zip(sizes, kernel_size, stride, padding, dilation, strict=True)
    ]


def _taps(input, window, fill, behind=0):
    """Yields the padded input at each place of the kernel, in row-major order.

    `behind` axes stand behind rows and columns.
    """
    kernel_size, stride, padding, dilation = window
    in_front = input.ndim - 2 - behind
    widths = [(0, 0)] * in_front + list(padding) + [(0, 0)] * behind
    x = mx.pad(input, widths, constant_values=mx.array(fill, input.dtype))
    sizes = input.shape[in_front : in_front + 2]
    counts = _counts(sizes, kernel_size, stride, padding, dilation)
    rest = (slice(None),) * behind
    for i in range(kernel_size[0]):
        for j in range(kernel_size[1]):
            rows, columns = (
                slice(a, a + s * (n - 1) + 1, s) if n > 0 else slice(0, 0)
                for a, s, n in zip((i * dilation[0], j * dilation[1]), stride, counts, strict=True)
            )
            yield x[(..., rows, columns, *rest)]


def max_pool2d(input, kernel_size, stride, padding=((0, 0), (0, 0)), dilation=(1, 1)):
    return _first_maxima(input, input, (kernel_size, stride, padding, dilation))


def max_pool2d_channels_last(
    input, kernel_size, stride, padding=((0, 0), (0, 0)), dilation=(1, 1)
):  # fmt: skip
    return _first_maxima(input, input, (kernel_size, stride, padding, dilation), behind=1)


def max_pool2d_pick(
    input, value, like, kernel_size, stride, padding=((0, 0), (0, 0)), dilation=(1, 1)
):  # fmt: skip
    return _first_maxima(input, value, (kernel_size, stride, padding, dilation))


def _first_maxima(input, value, window, behind=0):
    """Returns the element of `value` at the first maximum of each window of `input`."""
    inputs = _taps(mx.stop_gradient(input), window, -math.inf, behind)
    values = _taps(value, window, -math.inf if value is input else 0, behind)
    largest, picked = next(inputs), next(values)
    for x, v in zip(inputs, values, strict=True):
        # The first maximum, or the first NaN, and only that one takes the gradient.
        wins = (x > largest) | ((x != x) & (largest == largest))
        largest, picked = mx.where(wins, x, largest), where(wins, v, picked)
    return picked


def max_pool2d_grad(
    input, cotangent, kernel_size, stride, padding=((0, 0), (0, 0)), dilation=(1, 1)
):  # fmt: skip
    def linear(value):
        window = (kernel_size, stride, padding, dilation)
        return max_pool2d_pick(mx.stop_gradient(input), value, None, *window)

    dy = cotangent.astype(mx.float32) if cotangent.dtype.size == 2 else cotangent
    return _transposed(linear, input.shape, dy).astype(cotangent.dtype)


def avg_pool2d(input, kernel_size, stride, padding=((0, 0), (0, 0)), dilation=(1, 1)):
    return _means(input, (kernel_size, stride, padding, dilation))


def avg_pool2d_channels_last(
    input, kernel_size, stride, padding=((0, 0), (0, 0)), dilation=(1, 1)
):  # fmt: skip
    return _means(input, (kernel_size, stride, padding, dilation), behind=1)


def _means(input, window, behind=0):
    wide = input.astype(mx.float32) if input.dtype.size == 2 else input
    total = sum(_taps(wide, window, 0, behind))
    return (total / math.prod(window[0])).astype(input.dtype)


def avg_pool2d_grad(
    cotangent, shape, kernel_size, stride, padding=((0, 0), (0, 0)), dilation=(1, 1)
):  # fmt: skip
    def linear(x):
        return avg_pool2d(x, kernel_size, stride, padding, dilation)

    dy = cotangent.astype(mx.float32) if cotangent.dtype.size == 2 else cotangent
    return _transposed(linear, shape, dy).astype(cotangent.dtype)
