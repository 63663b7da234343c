"""Fourier transforms of pairs of real and imaginary parts, as emitted programs call them."""

from __future__ import annotations

import numpy as np


def dft(real, imag=None, axis=-1, inverse=False):
    x = real if imag is None else real + 1j * imag
    transform = np.fft.ifft if inverse else np.fft.fft
    y = transform(x, axis=axis, norm="forward" if inverse else "backward")
    return y.real.astype(real.dtype), y.imag.astype(real.dtype)


def rdft(input, axis=-1):
    y = np.fft.rfft(input, axis=axis)
    return y.real.astype(input.dtype), y.imag.astype(input.dtype)
