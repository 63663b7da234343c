"""Fourier transforms of pairs of real and imaginary parts, as emitted programs call them."""

from __future__ import annotations

import numpy as np


def dft(real, imag=None, axis=-1, inverse=False):
    x = real if imag is None else real + 1j * imag
    transform = np.fft.ifft if inverse else np.fft.fft
    y = transform(x, axis=axis, norm="forward" if inverse else "backward")
    return y.real.astype(real.dtype), y.imag.astype(real.dtype)


def rfft(input, axis=-1, n=None, norm="backward"):
    y = np.fft.rfft(_wide(input), n, axis, norm)
    return y.real.astype(input.dtype), y.imag.astype(input.dtype)


def _wide(x):
    """NumPy takes float16, but transforms in it."""
    return x if x.dtype in (np.float32, np.float64) else x.astype(np.float32)
