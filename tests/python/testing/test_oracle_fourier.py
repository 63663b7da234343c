"""What the oracle says of Fourier transforms, against sums written from the definition."""

import numpy as np
import pytest
from mithril.testing import oracle_fourier as oracle

X = np.random.default_rng(0).standard_normal((2, 5))
Y = np.random.default_rng(1).standard_normal((2, 5))


def matrix(n, sign):
    return np.exp(sign * 2j * np.pi * np.outer(np.arange(n), np.arange(n)) / n)


def same(got, want):
    np.testing.assert_allclose(got[0], want.real, atol=1e-13)
    np.testing.assert_allclose(got[1], want.imag, atol=1e-13)


def test_whole_transforms():
    z = X + 1j * Y
    same(oracle.dft(X, Y), z @ matrix(5, -1))
    same(oracle.dft(X, Y, inverse=True), z @ matrix(5, 1))
    same(oracle.fft(X, Y, norm="ortho"), z @ matrix(5, -1) / np.sqrt(5))
    same(oracle.ifft(X, Y, n=3), z[:, :3] @ matrix(3, 1) / 3)
    same(oracle.fft(X, axis=0, norm="forward"), matrix(2, -1) @ X / 2)
    same(oracle.fft2(X, Y), matrix(2, -1) @ z @ matrix(5, -1))
    same(oracle.ifft2(X, Y, norm="forward"), matrix(2, 1) @ z @ matrix(5, 1))


def test_halves():
    same(oracle.rdft(X), (X @ matrix(5, -1))[:, :3])
    same(oracle.rfft(X), (X @ matrix(5, -1))[:, :3])
    np.testing.assert_allclose(oracle.irfft(*oracle.rfft(X), n=5), X)
    same(oracle.rfft2(X), (matrix(2, -1) @ X @ matrix(5, -1))[:, :3])
    np.testing.assert_allclose(oracle.irfft2(*oracle.rfft2(X), n=5), X)
    assert oracle.irfft2(X, Y).shape == (2, 8)


@pytest.mark.parametrize("n", [4, 5])
def test_places_change(n):
    x = np.arange(n)
    middle = n // 2
    shifted = oracle.FOURIER["fftshift"](x)
    assert shifted[middle] == 0
    np.testing.assert_array_equal(oracle.FOURIER["ifftshift"](shifted), x)
