"""Gradients whose squares would overflow or vanish: of angles, inverse hyperbolic functions and
cosines far from 1, against formulas in float64. They are the engine's, on every backend; those of
atan2 and of quotients the frameworks', too.
"""

import mithril as ml
import numpy as np
import pytest

FAR = np.array([1e18, 1e20, 1e30, 3e37], "f4")
NEAR = np.array([0.0, 1e-30, 0.5, 1.0, 7.0, 1e8], "f4")


def run(op, backend_name, dtype="float32", autodiff="engine", **arrays):
    backend = ml.get_backend(backend_name, dtype=dtype)
    model = ml.Model.create(out=op(*(ml.IOKey(key) for key in arrays)))
    shapes = {key: list(x.shape) for key, x in arrays.items()}
    pm = ml.compile(model, backend, data_keys=set(arrays), shapes=shapes, autodiff=autodiff)
    data = {key: backend.array(x) for key, x in arrays.items()}
    ones = {"out": np.ones(pm.shapes["out"])}
    found = pm.evaluate({}, data, output_gradients=ones, wrt=list(arrays))
    plain = lambda x: np.asarray(backend.to_numpy(x)).astype("f8")  # noqa: E731
    return plain(found.outputs["out"]), {key: plain(x) for key, x in found.gradients.items()}


def close(found, want):
    np.testing.assert_allclose(found, want, rtol=2e-6, atol=1e-44)


def test_asinh(backend_name):
    x = np.concatenate([FAR, NEAR, -FAR])
    _, grads = run(ml.Asinh(), backend_name, x=x)
    close(grads["x"], 1 / np.hypot(x.astype("f8"), 1))


def test_acosh(backend_name):
    x = np.concatenate([FAR, np.array([1.5, 2.0, 7.0, 1e8], "f4")])
    _, grads = run(ml.Acosh(), backend_name, x=x)
    wide = x.astype("f8")
    close(grads["x"], 1 / (np.sqrt(wide - 1) * np.sqrt(wide + 1)))


@pytest.mark.parametrize("autodiff", ["engine", None])
def test_atan2(autodiff, backend_name):
    y = np.array([1e30, 3e-30, -2e25, 1e-20, 0.0, 5.0, 1e-37], "f4")
    x = np.array([1e30, 4e-30, 1e-25, 1e20, -3e-30, -2.0, 1e-37], "f4")
    angle, grads = run(ml.Atan2(), backend_name, autodiff=autodiff, y=y, x=x)
    a, b = y.astype("f8"), x.astype("f8")
    np.testing.assert_allclose(angle, np.arctan2(a, b), rtol=2e-6, atol=1e-38)  # XLA's subnormals
    close(grads["y"], b / (a * a + b * b))
    close(grads["x"], -a / (a * a + b * b))


def test_angles_keep_signs_of_zero_and_far_points(backend_name):
    y = np.array([-0.0, 0.0, -0.0, np.inf, -np.inf, np.nan, 3e38, -1e-35], "f4")
    x = np.array([1.0, -1.0, -1.0, np.inf, 2.0, 1.0, -3e38, 1e-37], "f4")
    angle, _ = run(ml.Atan2(), backend_name, autodiff=None, y=y, x=x)
    close(angle, np.arctan2(y.astype("f8"), x.astype("f8")))
    np.testing.assert_array_equal(np.signbit(angle[:3]), [True, False, True])


@pytest.mark.parametrize("autodiff", ["engine", None])
def test_quotients(autodiff, backend_name):
    x = np.array([1e30, 3e-30, -2e25, 1e-10, 0.0, 5.0], "f4")
    y = np.array([1e30, 4e-30, 1e25, 1e20, -3e-30, -2.0], "f4")
    _, grads = run(ml.Divide(), backend_name, autodiff=autodiff, numerator=x, denominator=y)
    a, b = x.astype("f8"), y.astype("f8")
    close(grads["numerator"], 1 / b)
    close(grads["denominator"], -a / b / b)


@pytest.mark.parametrize("size", [1e25, 1e-25, 1.0])
def test_cosine_similarity(size, backend_name):
    rng = np.random.default_rng(3)
    a, b = ((rng.standard_normal((4, 5)) * size).astype("f4") for _ in range(2))
    cosine, grads = run(ml.CosineSimilarity(axis=1, eps=1e-30), backend_name, a=a, b=b)
    p, q = a.astype("f8"), b.astype("f8")
    np_, nq = (np.linalg.norm(v, axis=1, keepdims=True) for v in (p, q))
    want = (p * q).sum(1) / (np_ * nq)[:, 0]
    np.testing.assert_allclose(cosine, want, rtol=1e-5, atol=1e-6)
    slope = (q / nq - want[:, None] * p / np_) / np_
    np.testing.assert_allclose(grads["a"] * size, slope * size, rtol=1e-4, atol=1e-6)


def test_cosine_similarity_of_nothing(backend_name):
    """Vectors shorter than eps count as eps long: cosine 0 of zeros, and a finite gradient."""
    zeros, ones = np.zeros((1, 3), "f4"), np.ones((1, 3), "f4")
    cosine, grads = run(ml.CosineSimilarity(axis=1, eps=1e-4), backend_name, a=zeros, b=ones)
    assert cosine == 0
    np.testing.assert_allclose(grads["a"], ones / np.sqrt(3) / 1e-4, rtol=1e-5)
    np.testing.assert_allclose(grads["b"], zeros)
