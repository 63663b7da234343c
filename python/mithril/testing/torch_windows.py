"""Layers of windows and norms by PyTorch's own functions; part of the table of `torch_oracle.py`.

Padding is made by itself, so that it may differ on the two sides of an axis.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812

from mithril.testing.oracle_windows import each, pairs, sides_of


def real(x: Any) -> torch.Tensor:
    return torch.as_tensor(x).to(torch.float64)


def padded(x: torch.Tensor, padding: tuple, value: float = 0.0) -> torch.Tensor:
    return F.pad(x, [n for pair in reversed(padding) for n in pair], value=value)


# --- convolution ----------------------------------------------------------------------------------

CONVOLUTIONS = (F.conv1d, F.conv2d, F.conv3d)
TRANSPOSED = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)


def convolution(weight, padding=0, stride=1, dilation=1, input=None, bias=None, groups=1,
                kernel_size=None, out_channels=None, use_bias=True):  # fmt: skip
    x = padded(real(input), pairs(padding, tuple(weight.shape[2:]), dilation))
    y = CONVOLUTIONS[weight.ndim - 3](x, real(weight), None, stride, 0, dilation, groups)
    return y if bias is None else y + bias


def convolution1d(weight, padding=0, stride=1, dilation=1, input=None, bias=None,
                  kernel_size=None, out_channels=None, use_bias=True, groups=1):  # fmt: skip
    return convolution(weight, padding, stride, dilation, input, bias, groups)


def primitive_convolution1d(input, weight, stride, padding, dilation, bias=None, use_bias=True,
                            groups=1):  # fmt: skip
    return convolution(weight, padding, stride, dilation, input, bias, groups)


def primitive_convolution2d(input, weight, stride, padding, dilation, groups, bias=None,
                            use_bias=True):  # fmt: skip
    return convolution(weight, padding, stride, dilation, input, bias, groups)


def conv_transpose(weight, input, bias=None, kernel_size=None, out_channels=None, stride=1,
                   padding=0, output_padding=0, dilation=1, groups=1, use_bias=True):  # fmt: skip
    is_same = padding == "same"
    y = TRANSPOSED[weight.ndim - 3](
        real(input), real(weight), None, stride, 0 if is_same else padding, output_padding, groups,
        dilation,
    )  # fmt: skip
    if is_same:
        steps = each(stride, weight.ndim - 2)
        for axis, step in enumerate(steps, start=2):
            wanted = input.shape[axis] * step
            start = max(y.shape[axis] - wanted, 0) // 2
            y = y.movedim(axis, -1)[..., start : start + wanted]
            y = F.pad(y, (0, wanted - y.shape[-1])).movedim(-1, axis)
    return y if bias is None else y + bias


# --- pooling --------------------------------------------------------------------------------------

LARGEST = (F.max_pool1d, F.max_pool2d, F.max_pool3d)
SUMS = (F.conv1d, F.conv2d, F.conv3d)


def pool(x, kernel_size, stride, padding, dilation, axes, kind, ceil_mode=False, include=True,
         divisor=None):  # fmt: skip
    size, gap = each(kernel_size, axes), each(dilation, axes)
    step = size if stride is None else each(stride, axes)
    x = real(x)
    sides, beyond = sides_of(x, size, step, gap, padding, ceil_mode)
    flat = x.reshape(-1, 1, *x.shape[x.ndim - axes :])

    def sums(y):
        ones = torch.ones(1, 1, *size, dtype=torch.float64)
        return SUMS[axes - 1](y, ones, None, step, 0, gap)

    if kind == "mean":
        given = torch.ones_like(flat[:1])
        if include:
            own = tuple((low, high - b) for (low, high), b in zip(sides, beyond, strict=True))
            given = padded(padded(given, own, 1.0), tuple((0, b) for b in beyond))
        else:
            given = padded(given, sides)
        y = sums(padded(flat, sides)) / (divisor or sums(given))
    else:
        sign = 1.0 if kind == "max" else -1.0
        whole = padded(sign * flat, sides, -torch.inf)
        y = sign * LARGEST[axes - 1](whole, size, step, 0, gap)
    return y.reshape(*x.shape[: x.ndim - axes], *y.shape[2:])


def pooling(axes: int, kind: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    def layer(kernel_size, stride=None, padding=0, input=None, dilation=1, ceil_mode=False,
              count_include_pad=True, divisor_override=None):  # fmt: skip
        return pool(input, kernel_size, stride, padding, dilation, axes, kind, ceil_mode,
                    count_include_pad, divisor_override)  # fmt: skip

    def primitive(input, kernel_size, stride, padding, dilation):
        return pool(input, kernel_size, stride, padding, dilation, axes, kind)

    return layer, primitive


def adaptive(function: Callable[..., Any]) -> Callable[..., Any]:
    def layer(input, output_size):
        return function(real(input), output_size)

    return layer


def over_space(reduce: Callable[..., Any]) -> Callable[..., Any]:
    return lambda input: reduce(real(input), tuple(range(2, input.ndim)), keepdim=True)


# --- norms ----------------------------------------------------------------------------------------


def scaled(y, weight, bias):
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def group_norm(input, eps=1e-5, weight=None, bias=None, num_groups=32, use_scale=True,
               use_bias=True):  # fmt: skip
    return scaled(F.group_norm(real(input), num_groups, eps=float(eps)), weight, bias)


def instance_norm(input, eps=1e-5, weight=None, bias=None, use_scale=True, use_bias=True):
    return scaled(F.instance_norm(real(input), eps=float(eps)), weight, bias)


def rms_norm(input, eps=1e-6, weight=None, use_scale=True):
    x = real(input)
    return scaled(x / torch.sqrt((x * x).mean(-1, keepdim=True) + float(eps)), weight, None)


# --- padding, resizing ----------------------------------------------------------------------------


def pad_with(mode: str) -> Callable[..., Any]:
    def pad(input, pad_width):
        widths = [each(pair, 2) for pair in pairs_of(pad_width, input.ndim)]
        for axis, (low, high) in enumerate(widths):  # PyTorch pads the last axes of batches alone
            if low or high:
                last = input.movedim(axis, -1)
                flat = last.reshape(1, -1, last.shape[-1])
                # PyTorch mirrors nothing of an empty batch.
                wide = F.pad(flat, (low, high), mode=mode if flat.numel() else "constant")
                input = wide.reshape(*last.shape[:-1], wide.shape[-1]).movedim(-1, axis)
        return input

    return pad


def pairs_of(pad_width: Any, rank: int) -> tuple:
    """One pair is that of the last axis."""
    is_nested = isinstance(pad_width[0], tuple | list)
    return tuple(pad_width) if is_nested else ((0, 0),) * (rank - 1) + (tuple(pad_width),)


def constant_pad(input, pad_width, value=0.0):
    return padded(input, pairs_of(pad_width, input.ndim), float(value))


def interpolate(input, size=None, scale_factor=None, align_corners=False, mode="nearest"):
    aligned = None if mode.startswith("nearest") else align_corners
    scale = tuple(scale_factor) if isinstance(scale_factor, tuple | list) else scale_factor
    return F.interpolate(real(input), size, scale, mode, aligned)


TABLE: dict[str, Callable[..., Any]] = {
    "convolution1d": convolution1d,
    "convolution2d": convolution,
    "convolution3d": convolution,
    "primitive_convolution1d": primitive_convolution1d,
    "primitive_convolution2d": primitive_convolution2d,
    **{f"convtranspose{n}d": conv_transpose for n in (1, 2, 3)},
    **{
        f"{name}_pooling{n}d": pooling(n, kind)[0]
        for n in (1, 2, 3)
        for name, kind in (("max", "max"), ("min", "min"), ("avg", "mean"))
    },
    "primitive_max_pooling1d": pooling(1, "max")[1],
    "primitive_max_pooling2d": pooling(2, "max")[1],
    "primitive_avg_pooling2d": pooling(2, "mean")[1],
    "adaptiveavgpool1d": adaptive(F.adaptive_avg_pool1d),
    "adaptiveavgpool2d": adaptive(F.adaptive_avg_pool2d),
    "adaptiveavgpool3d": adaptive(F.adaptive_avg_pool3d),
    "adaptivemaxpool1d": adaptive(F.adaptive_max_pool1d),
    "adaptivemaxpool2d": adaptive(F.adaptive_max_pool2d),
    "adaptivemaxpool3d": adaptive(F.adaptive_max_pool3d),
    "global_avg_pool": over_space(torch.mean),
    "global_max_pool": over_space(torch.amax),
    "interpolate": interpolate,
    "constantpad": constant_pad,
    "reflectionpad": pad_with("reflect"),
    "replicationpad": pad_with("replicate"),
    "circularpad": pad_with("circular"),
    "group_norm": group_norm,
    "instance_norm": instance_norm,
    "rms_norm": rms_norm,
}

__all__ = ["TABLE"]
