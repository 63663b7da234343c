"""Fourier transforms as `torch.fft` has them; see `torch_oracle.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

LAST_TWO = (-2, -1)


def joined(real: Any, imag: Any) -> torch.Tensor:
    return torch.complex(real, torch.zeros_like(real) if imag is None else imag)


def parts(y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return y.real, y.imag


def dft(real, imag=None, axis=-1, inverse=False):
    if not real.numel():
        return real, real
    if inverse:
        return parts(torch.fft.ifft(joined(real, imag), dim=axis, norm="forward"))
    return parts(torch.fft.fft(joined(real, imag), dim=axis))


def rdft(input, axis=-1):
    if not input.numel():
        return (input.narrow(axis, 0, input.shape[axis] // 2 + 1),) * 2
    return parts(torch.fft.rfft(input, dim=axis))


def fft(real, imag=None, axis=-1, n=None, norm="backward", use_imag=True):
    if not real.numel():
        return real, real
    return parts(torch.fft.fft(joined(real, imag), n, axis, norm))


def ifft(real, imag=None, axis=-1, n=None, norm="backward", use_imag=True):
    if not real.numel():
        return real, real
    return parts(torch.fft.ifft(joined(real, imag), n, axis, norm))


def rfft(input, axis=-1, n=None, norm="backward"):
    return parts(torch.fft.rfft(input, n, axis, norm))


def irfft(real, imag=None, axis=-1, n=None, norm="backward", use_imag=True):
    return torch.fft.irfft(joined(real, imag), n, axis, norm)


def fft2(real, imag=None, axes=LAST_TWO, norm="backward", use_imag=True):
    return parts(torch.fft.fftn(joined(real, imag), None, axes, norm))


def ifft2(real, imag=None, axes=LAST_TWO, norm="backward", use_imag=True):
    return parts(torch.fft.ifftn(joined(real, imag), None, axes, norm))


def rfft2(input, axes=LAST_TWO, norm="backward"):
    return parts(torch.fft.rfftn(input, None, axes, norm))


def irfft2(real, imag=None, axes=LAST_TWO, norm="backward", n=None, use_imag=True):
    x = joined(real, imag)
    sizes = [x.shape[axis] for axis in axes]
    sizes[-1] = 2 * (sizes[-1] - 1) if n is None else n
    return torch.fft.irfftn(x, sizes, axes, norm)


def shift(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def run(input, axes=None):
        return function(input, (axes,) if isinstance(axes, int) else axes)

    return run


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
    "fftshift": shift(torch.fft.fftshift),
    "ifftshift": shift(torch.fft.ifftshift),
}

__all__ = ["FOURIER"]
