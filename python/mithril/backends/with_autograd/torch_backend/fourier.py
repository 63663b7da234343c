"""Fourier transforms of pairs of real and imaginary parts, as emitted programs call them."""

from __future__ import annotations

import torch


def dft(real, imag=None, axis=-1, inverse=False):
    if real.numel() == 0:
        return real, real
    transform = torch.fft.ifft if inverse else torch.fft.fft
    norm = "forward" if inverse else "backward"
    y = transform(_joined(real, imag), dim=axis, norm=norm)
    return y.real, y.imag


def rfft(input, axis=-1, n=None, norm="backward"):
    y = torch.fft.rfft(_wide(input), n, axis, norm)
    return y.real.to(input.dtype), y.imag.to(input.dtype)


def _joined(real, imag):
    if imag is None:
        return torch.complex(real, torch.zeros_like(real))
    return torch.complex(real, imag)


def _wide(x):
    """float16 and bfloat16 as float32: they have no complex type, or no transforms."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
