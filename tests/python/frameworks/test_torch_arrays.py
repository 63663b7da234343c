"""The two oracles agree on what moves and orders elements."""

import numpy as np
import pytest
from mithril.testing import oracle_arrays

torch = pytest.importorskip("torch")
torch_arrays = pytest.importorskip("mithril.testing.torch_arrays")

X = np.random.default_rng(0).standard_normal((4, 3))
AT = np.array([[0, 2], [1, 1], [-1, 0], [2, 2]])
VALUE = np.random.default_rng(1).standard_normal((4, 2))
CALLS = {
    "stack": ((0, X, X), {}),
    "chunk": ((X, 2), {}),
    "roll": ((X, 2), {"axis": 0}),
    "flip": ((X,), {"axis": 1}),
    "tile": ((X, (2, 1)), {}),
    "repeat_interleave": ((X, 2), {"axis": 1}),
    "tril": ((X,), {"diagonal": -1}),
    "diagonal": ((X,), {"offset": 1}),
    "diag": ((X[0],), {"diagonal": 1}),
    "positional_encoding": ((X, 3), {}),
    "linear_scan": ((X, X), {"axis": 0, "reverse": True}),
    "cumprod": ((X,), {"axis": 0}),
    "sort": ((X,), {"descending": True}),
    "topk": ((X, 2), {}),
    "take_along_axis": ((X, AT), {}),
    "scatter": ((X, VALUE, AT), {}),
    "scatter_add": ((X, VALUE, AT), {}),
    "qr": ((X,), {}),
    "svd": ((X,), {}),
}


@pytest.mark.frameworks
@pytest.mark.parametrize("name", CALLS)
def test_both_oracles_agree(name):
    args, attrs = CALLS[name]
    want = oracle_arrays.ARRAYS[name](*args, **attrs)
    tensors = [torch.tensor(a) if isinstance(a, np.ndarray) else a for a in args]
    got = torch_arrays.ARRAYS[name](*tensors, **attrs)
    several = isinstance(want, tuple | list)
    for g, w in zip(got if several else [got], want if several else [want], strict=True):
        np.testing.assert_allclose(g.numpy(), w, atol=1e-13)
