"""Fourier transforms of pairs of real and imaginary parts, as emitted programs call them."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from .wide import in_wide


@in_wide
def dft(real, imag=None, axis=-1, inverse=False):
    transform = jnp.fft.ifft if inverse else jnp.fft.fft
    y = transform(_joined(real, imag), axis=axis, norm="forward" if inverse else "backward")
    return y.real, y.imag


@in_wide
def rdft(input, axis=-1):
    y = jnp.fft.rfft(input, axis=axis)
    return y.real, y.imag


def _joined(real, imag):
    return jax.lax.complex(real, jnp.zeros_like(real) if imag is None else imag)
