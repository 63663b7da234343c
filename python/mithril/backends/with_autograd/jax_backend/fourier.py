"""Fourier transforms of pairs of real and imaginary parts, as emitted programs call them."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def dft(real, imag=None, axis=-1, inverse=False):
    transform = jnp.fft.ifft if inverse else jnp.fft.fft
    y = transform(_joined(real, imag), axis=axis, norm="forward" if inverse else "backward")
    return y.real, y.imag


def rfft(input, axis=-1, n=None, norm="backward"):
    y = jnp.fft.rfft(_wide(input), n, axis, norm)
    return y.real.astype(input.dtype), y.imag.astype(input.dtype)


def _joined(real, imag):
    return jax.lax.complex(real, jnp.zeros_like(real) if imag is None else imag)


def _wide(x):
    """float16 and bfloat16 as float32: no complex type is made of them."""
    return x.astype(jnp.float32) if x.dtype in (jnp.float16, jnp.bfloat16) else x
