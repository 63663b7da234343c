"""Fourier transforms of pairs of real and imaginary parts, as emitted programs call them.

MLX has one complex type, of float32: transforms of float64 are products with matrices of roots of
unity, of factors of the size one after the other. A large prime takes a matrix of its square.
"""

from __future__ import annotations

import mlx.core as mx
import numpy as np

MOST = 64  # rows of a matrix, where the size has such factors


def dft(real, imag=None, axis=-1, inverse=False):
    if real.size == 0:
        return real, real
    imag = mx.zeros_like(real) if imag is None else imag
    if real.dtype == mx.float64:
        parts = [mx.swapaxes(x, axis, -1) for x in (real, imag)]
        re, im = _double(*reversed(parts))[::-1] if inverse else _double(*parts)
        return mx.swapaxes(re, axis, -1), mx.swapaxes(im, axis, -1)
    x = real + 1j * imag
    if not inverse:
        y = mx.fft.fft(x, axis=axis)
    else:
        y = mx.conj(mx.fft.fft(mx.conj(x), axis=axis))
    return mx.real(y).astype(real.dtype), mx.imag(y).astype(real.dtype)


def rdft(input, axis=-1):
    kept = input.shape[axis] // 2 + 1
    if input.size == 0 or input.dtype == mx.float64:
        re, im = dft(input, None, axis)
        return _first(re, kept, axis), _first(im, kept, axis)
    y = mx.fft.rfft(input, axis=axis)
    return mx.real(y).astype(input.dtype), mx.imag(y).astype(input.dtype)


def _first(x, size, axis):
    return x if x.shape[axis] == size else mx.split(x, [size], axis)[0]


def _double(real, imag):
    """Along the last axis, forwards."""
    n = real.shape[-1]
    rows = next((p for p in range(min(MOST, n - 1), 1, -1) if n % p == 0), n)
    if n <= MOST or rows == n:
        return _product(real, imag, n)
    # Place j = a (n / rows) + b: transforms over a, roots, transforms over b; place k = c + d rows.
    shape, rest = real.shape[:-1], n // rows
    re, im = (mx.swapaxes(x.reshape(*shape, rows, rest), -1, -2) for x in (real, imag))
    re, im = _product(re, im, rows)  # [..., b, c]
    cosine, sine = _roots(np.outer(np.arange(rest), np.arange(rows)), n)
    re, im = re * cosine + im * sine, im * cosine - re * sine
    re, im = _double(mx.swapaxes(re, -1, -2), mx.swapaxes(im, -1, -2))  # [..., c, d]
    return tuple(mx.swapaxes(x, -1, -2).reshape(*shape, n) for x in (re, im))


def _product(real, imag, n):
    cosine, sine = _roots(np.outer(np.arange(n), np.arange(n)), n)
    return real @ cosine + imag @ sine, imag @ cosine - real @ sine


def _roots(places, n):
    angles = 2 * np.pi * (places % n) / n
    return mx.array(np.cos(angles), mx.float64), mx.array(np.sin(angles), mx.float64)
