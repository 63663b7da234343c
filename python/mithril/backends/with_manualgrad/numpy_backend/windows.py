"""Convolution and pooling over the last two axes, on NumPy arrays.

Arguments are canonical: pairs for rows and columns, padding as ((top, bottom), (left, right)).
"""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from .utils import as_compute


def _pad(x, padding, fill=0.0):
    if padding == ((0, 0), (0, 0)):
        return x
    return np.pad(x, ((0, 0),) * (x.ndim - 2) + tuple(padding), constant_values=fill)


def _windows(x, kernel, stride, dilation):
    """[…, rows, columns, kernel rows, kernel columns], as a view."""
    reach = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True))
    view = sliding_window_view(x, reach, axis=(-2, -1))
    return view[..., :: stride[0], :: stride[1], :: dilation[0], :: dilation[1]]


def _taps(kernel, stride, dilation, counts):
    """For each place in the kernel, the elements of the padded input that it meets."""
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            starts = (i * dilation[0], j * dilation[1])
            yield (
                (i, j),
                tuple(
                    slice(a, a + s * (n - 1) + 1, s)
                    for a, s, n in zip(starts, stride, counts, strict=True)
                ),
            )


def _scatter(parts, shape, padding, kernel, stride, dilation, counts, dtype):
    """Adds parts[i, j] where the kernel's place (i, j) reads, and cuts the padding off."""
    (top, bottom), (left, right) = padding
    rows, columns = shape[-2] + top + bottom, shape[-1] + left + right
    out = np.zeros((*shape[:-2], rows, columns), dtype)
    if all(n > 0 for n in counts):
        for place, (r, c) in _taps(kernel, stride, dilation, counts):
            out[..., r, c] += parts(place)
    return out[..., top : top + shape[-2], left : left + shape[-1]]


# ------------------------------------------------------------------------------- convolution


def _columns(x, kernel, stride, padding, dilation, groups):
    """The windows as [n, groups, channels · kernel, places], and the counts of places."""
    view = _windows(_pad(x, padding), kernel, stride, dilation)
    n, c, rows, columns = view.shape[:4]
    order = view.transpose(0, 1, 4, 5, 2, 3)
    size = c // groups * kernel[0] * kernel[1]
    return order.reshape(n, groups, size, rows * columns), (rows, columns)


def conv2d(
    input, weight, stride=(1, 1), padding=((0, 0), (0, 0)), dilation=(1, 1), groups=1
):  # fmt: skip
    x, w = as_compute(input), as_compute(weight)
    columns, counts = _columns(x, w.shape[2:], stride, padding, dilation, groups)
    filters = w.reshape(groups, w.shape[0] // groups, columns.shape[2])
    out = np.matmul(filters, columns)
    return out.reshape(x.shape[0], w.shape[0], *counts).astype(input.dtype, copy=False)


def conv2d_dx(
    cotangent, weight, shape, stride=(1, 1), padding=((0, 0), (0, 0)), dilation=(1, 1), groups=1
):  # fmt: skip
    dy, w = as_compute(cotangent), as_compute(weight)
    n, o, *counts = dy.shape
    kernel = w.shape[2:]
    filters = w.reshape(groups, o // groups, w.shape[1] * kernel[0] * kernel[1])
    columns = np.matmul(
        np.swapaxes(filters, 1, 2), dy.reshape(n, groups, o // groups, counts[0] * counts[1])
    )
    columns = columns.reshape(n, shape[1], *kernel, *counts)
    out = _scatter(
        lambda place: columns[:, :, place[0], place[1]],
        shape, padding, kernel, stride, dilation, counts, dy.dtype,
    )  # fmt: skip
    return out.astype(cotangent.dtype, copy=False)


def conv2d_dw(
    input, cotangent, shape, stride=(1, 1), padding=((0, 0), (0, 0)), dilation=(1, 1), groups=1
):  # fmt: skip
    x, dy = as_compute(input), as_compute(cotangent)
    columns, _ = _columns(x, shape[2:], stride, padding, dilation, groups)
    n, o = dy.shape[:2]
    rows = dy.reshape(n, groups, o // groups, dy.shape[2] * dy.shape[3])
    out = np.matmul(rows, np.swapaxes(columns, 2, 3)).sum(0)
    return out.reshape(shape).astype(input.dtype, copy=False)


# ----------------------------------------------------------------------------------- pooling


def _first_maximum(input, kernel_size, stride, padding, dilation):
    view = _windows(_pad(as_compute(input), padding, -np.inf), kernel_size, stride, dilation)
    flat = view.reshape(*view.shape[:-2], kernel_size[0] * kernel_size[1])
    return flat, np.argmax(flat, -1)


def max_pool2d(input, kernel_size, stride, padding=((0, 0), (0, 0)), dilation=(1, 1)):
    view = _windows(_pad(as_compute(input), padding, -np.inf), kernel_size, stride, dilation)
    return np.max(view, (-2, -1)).astype(input.dtype, copy=False)


def max_pool2d_grad(
    input, cotangent, kernel_size, stride, padding=((0, 0), (0, 0)), dilation=(1, 1)
):  # fmt: skip
    _, chosen = _first_maximum(input, kernel_size, stride, padding, dilation)
    dy = as_compute(cotangent)
    out = _scatter(
        lambda place: np.where(chosen == place[0] * kernel_size[1] + place[1], dy, 0),
        input.shape, padding, kernel_size, stride, dilation, chosen.shape[-2:], dy.dtype,
    )  # fmt: skip
    return out.astype(cotangent.dtype, copy=False)


def max_pool2d_pick(
    input, value, like, kernel_size, stride, padding=((0, 0), (0, 0)), dilation=(1, 1)
):  # fmt: skip
    _, chosen = _first_maximum(input, kernel_size, stride, padding, dilation)
    view = _windows(_pad(value, padding), kernel_size, stride, dilation)
    flat = view.reshape(*view.shape[:-2], kernel_size[0] * kernel_size[1])
    return np.take_along_axis(flat, chosen[..., None], -1)[..., 0]


def avg_pool2d(input, kernel_size, stride, padding=((0, 0), (0, 0)), dilation=(1, 1)):
    view = _windows(_pad(as_compute(input), padding), kernel_size, stride, dilation)
    return np.mean(view, (-2, -1)).astype(input.dtype, copy=False)


def avg_pool2d_grad(
    cotangent, shape, kernel_size, stride, padding=((0, 0), (0, 0)), dilation=(1, 1)
):  # fmt: skip
    share = as_compute(cotangent) / (kernel_size[0] * kernel_size[1])
    out = _scatter(
        lambda place: share,
        shape, padding, kernel_size, stride, dilation, share.shape[-2:], share.dtype,
    )  # fmt: skip
    return out.astype(cotangent.dtype, copy=False)
