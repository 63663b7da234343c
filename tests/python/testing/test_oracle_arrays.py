"""What the oracle says of ops that move and order elements, against NumPy's own functions."""

import numpy as np
import pytest
from mithril.testing import oracle_arrays as oracle


def random(*shape):
    return np.random.default_rng(0).standard_normal(shape)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_orders(axis):
    x = np.round(random(3, 6, 4))
    x[0, 0, 0] = np.nan
    np.testing.assert_array_equal(oracle.argsort(x, axis), np.argsort(x, axis, kind="stable"))
    rest = np.round(random(3, 6, 4))
    falling = oracle.argsort(rest, axis, True)
    np.testing.assert_array_equal(falling, np.argsort(-rest, axis, kind="stable"))
    values, places = oracle.topk(rest, 2, axis)
    np.testing.assert_array_equal(values, np.take(-np.sort(-rest, axis), [0, 1], axis))
    np.testing.assert_array_equal(np.take_along_axis(rest, places, axis), values)


def test_recurrences():
    x = random(2, 5)
    np.testing.assert_allclose(oracle.linear_scan(np.ones((2, 5)), x), np.cumsum(x, -1))
    back = np.cumsum(x[:, ::-1], -1)[:, ::-1]
    np.testing.assert_allclose(oracle.linear_scan(np.ones((2, 5)), x, reverse=True), back)


@pytest.mark.parametrize("offset", [-1, 0, 2])
def test_diagonals(offset):
    x = random(3, 4, 2)
    want = np.diagonal(x, offset, 1, 0)
    np.testing.assert_array_equal(oracle.diagonal(x, offset, 1, 0), want)


def test_places():
    x, value = random(3, 4), random(3, 2)
    at = np.array([[0, 3], [1, 2], [-1, 0]])
    want = x.copy()
    np.put_along_axis(want, at, value, -1)
    np.testing.assert_array_equal(oracle.scatter(x, value, at), want)
    added = x + oracle.scatter(np.zeros((3, 4)), value, at)
    np.testing.assert_allclose(oracle.scatter_add(x, value, at), added)
    assert oracle.last_writers(np.array([2, 0, 2]), 4).tolist() == [1, -1, 2, -1]


def test_factors():
    for shape in ((4, 3), (3, 3), (2, 4)):
        x = random(*shape)
        q, r = oracle.qr(x)
        np.testing.assert_allclose(q @ r, x, atol=1e-13)
        assert (np.diag(r) >= 0).all()
        u, values, vt = oracle.svd(x)
        np.testing.assert_allclose(u * values @ vt, x, atol=1e-13)
        assert (u.max(0) >= -u.min(0)).all()
