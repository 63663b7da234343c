"""Fourier transforms of pairs of real and imaginary parts, as emitted programs call them."""

from __future__ import annotations

import torch


def dft(real, imag=None, axis=-1, inverse=False):
    if real.numel() == 0:
        return real, real
    transform = torch.fft.ifft if inverse else torch.fft.fft
    norm = "forward" if inverse else "backward"
    y = transform(_joined(real, imag), dim=axis, norm=norm)
    return y.real.to(real.dtype), y.imag.to(real.dtype)


def rdft(input, axis=-1):
    if input.numel() == 0:
        kept = input.narrow(axis, 0, input.shape[axis] // 2 + 1)
        return kept, kept
    y = torch.fft.rfft(_wide(input), dim=axis)
    return y.real.to(input.dtype), y.imag.to(input.dtype)


def _wide(x):
    """Halves in float32: PyTorch has no complex type of bfloat16, nor transforms of halves."""
    return x.float() if x.dtype.itemsize < 4 else x


def _joined(real, imag):
    real = _wide(real)
    return torch.complex(real, torch.zeros_like(real) if imag is None else _wide(imag))
