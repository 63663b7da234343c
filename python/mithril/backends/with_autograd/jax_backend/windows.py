"""Convolution and pooling over the last two axes, on JAX arrays.

Arguments are canonical: pairs for rows and columns, padding as ((top, bottom), (left, right)).
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from .wide import in_wide

# ------------------------------------------------------------------------------- convolution


def conv2d(
    input, weight, stride=(1, 1), padding=((0, 0), (0, 0)), dilation=(1, 1), groups=1
):  # fmt: skip
    return jax.lax.conv_general_dilated(
        input, weight, stride, padding, rhs_dilation=dilation, feature_group_count=groups,
        dimension_numbers=("NCHW", "OIHW", "NCHW"),
    )  # fmt: skip


def _transposed(linear, shape, dtype, cotangent):
    (out,) = jax.linear_transpose(linear, jax.ShapeDtypeStruct(shape, dtype))(cotangent)
    return out


def conv2d_dx(
    cotangent, weight, shape, stride=(1, 1), padding=((0, 0), (0, 0)), dilation=(1, 1), groups=1
):  # fmt: skip
    def linear(x):
        return conv2d(x, weight, stride, padding, dilation, groups)

    return _transposed(linear, shape, weight.dtype, cotangent)


def conv2d_dw(
    input, cotangent, shape, stride=(1, 1), padding=((0, 0), (0, 0)), dilation=(1, 1), groups=1
):  # fmt: skip
    def linear(w):
        return conv2d(input, w, stride, padding, dilation, groups)

    return _transposed(linear, shape, input.dtype, cotangent)


# ----------------------------------------------------------------------------------- pooling


def _taps(input, kernel_size, stride, padding, dilation, fill):
    """The padded input at each place of the kernel, on a last axis in row-major order."""
    widths = ((0, 0),) * (input.ndim - 2) + tuple(padding)
    x = jnp.pad(input, widths, constant_values=fill)
    counts = [
        max(0, (n - (k - 1) * d - 1) // s + 1)
        for n, k, s, d in zip(x.shape[-2:], kernel_size, stride, dilation, strict=True)
    ]
    places = [(i * dilation[0], j * dilation[1])
              for i in range(kernel_size[0]) for j in range(kernel_size[1])]  # fmt: skip
    parts = []
    for place in places:
        rows, columns = (
            slice(a, a + s * (n - 1) + 1, s) for a, s, n in zip(place, stride, counts, strict=True)
        )
        parts.append(x[..., rows, columns])
    return jnp.stack(parts, -1)


def max_pool2d(input, kernel_size, stride, padding=((0, 0), (0, 0)), dilation=(1, 1)):
    return max_pool2d_pick(input, input, None, kernel_size, stride, padding, dilation)


def max_pool2d_pick(
    input, value, like, kernel_size, stride, padding=((0, 0), (0, 0)), dilation=(1, 1)
):  # fmt: skip
    window = (kernel_size, stride, padding, dilation)
    taps = _taps(jax.lax.stop_gradient(input), *window, -math.inf)
    # The first maximum, and only that one, takes the gradient, whatever XLA does with ties.
    chosen = jnp.argmax(taps, -1)[..., None]
    fill = -math.inf if value is input else 0
    return jnp.take_along_axis(_taps(value, *window, fill), chosen, -1)[..., 0]


def max_pool2d_grad(
    input, cotangent, kernel_size, stride, padding=((0, 0), (0, 0)), dilation=(1, 1)
):  # fmt: skip
    def linear(value):
        window = (kernel_size, stride, padding, dilation)
        return max_pool2d_pick(jax.lax.stop_gradient(input), value, None, *window)

    dy = cotangent.astype(jnp.promote_types(cotangent.dtype, jnp.float32))
    return _transposed(linear, input.shape, dy.dtype, dy).astype(cotangent.dtype)


@in_wide
def avg_pool2d(input, kernel_size, stride, padding=((0, 0), (0, 0)), dilation=(1, 1)):
    return jnp.mean(_taps(input, kernel_size, stride, padding, dilation, 0), -1)


@in_wide
def avg_pool2d_grad(
    cotangent, shape, kernel_size, stride, padding=((0, 0), (0, 0)), dilation=(1, 1)
):  # fmt: skip
    def linear(x):
        return avg_pool2d(x, kernel_size, stride, padding, dilation)

    return _transposed(linear, shape, cotangent.dtype, cotangent)
