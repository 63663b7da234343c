"""Fourier transforms as `numpy.fft` has them; see `oracle_ops.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

LAST_TWO = (-2, -1)


def joined(real: Any, imag: Any) -> np.ndarray:
    return np.asarray(real, np.float64) + 1j * (0.0 if imag is None else np.asarray(imag))


def parts(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return y.real.copy(), y.imag.copy()


def dft(real, imag=None, axis=-1, inverse=False):
    x = joined(real, imag)
    return parts(np.fft.ifft(x, axis=axis, norm="forward") if inverse else np.fft.fft(x, axis=axis))


def rdft(input, axis=-1):
    return parts(np.fft.rfft(input, axis=axis))


def fft(real, imag=None, axis=-1, n=None, norm="backward", use_imag=True):
    return parts(np.fft.fft(joined(real, imag), n, axis, norm))


def ifft(real, imag=None, axis=-1, n=None, norm="backward", use_imag=True):
    return parts(np.fft.ifft(joined(real, imag), n, axis, norm))


def rfft(input, axis=-1, n=None, norm="backward"):
    return parts(np.fft.rfft(input, n, axis, norm))


def irfft(real, imag=None, axis=-1, n=None, norm="backward", use_imag=True):
    return np.fft.irfft(joined(real, imag), n, axis, norm)


def fft2(real, imag=None, axes=LAST_TWO, norm="backward", use_imag=True):
    return parts(np.fft.fftn(joined(real, imag), None, axes, norm))


def ifft2(real, imag=None, axes=LAST_TWO, norm="backward", use_imag=True):
    return parts(np.fft.ifftn(joined(real, imag), None, axes, norm))


def rfft2(input, axes=LAST_TWO, norm="backward"):
    return parts(np.fft.rfftn(input, None, axes, norm))


def irfft2(real, imag=None, axes=LAST_TWO, norm="backward", n=None, use_imag=True):
    x = joined(real, imag)
    sizes = [x.shape[axis] for axis in axes]
    sizes[-1] = 2 * (sizes[-1] - 1) if n is None else n
    return np.fft.irfftn(x, sizes, axes, norm)


FOURIER: dict[str, Callable[..., Any]] = {
    "dft": dft,
    "rdft": rdft,
    "fft": fft,
    "ifft": ifft,
    "rfft": rfft,
    "irfft": irfft,
    "fft2": fft2,
    "ifft2": ifft2,
    "rfft2": rfft2,
    "irfft2": irfft2,
    "fftshift": lambda input, axes=None: np.fft.fftshift(input, axes),
    "ifftshift": lambda input, axes=None: np.fft.ifftshift(input, axes),
}

__all__ = ["FOURIER"]
