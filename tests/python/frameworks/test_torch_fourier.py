"""The two oracles agree on Fourier transforms."""

import numpy as np
import pytest
from mithril.testing import oracle_fourier

torch = pytest.importorskip("torch")
torch_fourier = pytest.importorskip("mithril.testing.torch_fourier")

X = np.random.default_rng(0).standard_normal((4, 3))
Y = np.random.default_rng(1).standard_normal((4, 3))
NONE = np.zeros((0, 3))
CALLS = [
    ("dft", (X, Y), {}),
    ("dft", (X,), {"axis": 0, "inverse": True}),
    ("dft", (NONE, NONE), {}),
    ("rdft", (X,), {"axis": 0}),
    ("rdft", (NONE,), {}),
    ("fft", (X, Y), {"n": 5, "norm": "ortho"}),
    ("fft", (NONE, NONE), {}),
    ("ifft", (X, Y), {"axis": 0, "norm": "forward"}),
    ("ifft", (NONE, NONE), {}),
    ("rfft", (X,), {"axis": 0}),
    ("irfft", (X, Y), {"n": 5}),
    ("fft2", (X, Y), {"norm": "forward"}),
    ("ifft2", (X, Y), {"axes": (1, 0)}),
    ("rfft2", (X,), {"axes": (1, 0)}),
    ("irfft2", (X, Y), {"n": 3, "norm": "ortho"}),
    ("fftshift", (X,), {"axes": 1}),
    ("ifftshift", (X,), {}),
]


@pytest.mark.frameworks
@pytest.mark.parametrize("call", CALLS)
def test_both_oracles_agree(call):
    name, args, attrs = call
    want = oracle_fourier.FOURIER[name](*args, **attrs)
    got = torch_fourier.FOURIER[name](*(torch.tensor(x) for x in args), **attrs)
    several = isinstance(want, tuple)
    for g, w in zip(got if several else [got], want if several else [want], strict=True):
        np.testing.assert_allclose(g.numpy(), w, atol=1e-13)
