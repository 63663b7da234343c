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


def rdft(input, axis=-1):
    if input.numel() == 0:
        kept = input.narrow(axis, 0, input.shape[axis] // 2 + 1)
        return kept, kept
    y = torch.fft.rfft(input, dim=axis)
    return y.real, y.imag


def _joined(real, imag):
    if imag is None:
        return torch.complex(real, torch.zeros_like(real))
    return torch.complex(real, imag)
