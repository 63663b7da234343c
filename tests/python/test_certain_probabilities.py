"""Losses of probabilities that are exactly 0 and 1, plain and `robust`, on every backend.

A plain loss is the limit of its formula: what has the share 0 counts 0, a target that is held
impossible costs inf. A robust one continues each logarithm below the threshold by its tangent.
"""

import math

import mithril as ml
import numpy as np
import pytest
from mithril.errors import ShapeError

INF = math.inf
TINY = {"float32": float(np.finfo("f4").tiny), "float64": float(np.finfo("f8").tiny)}
FLOATS = ["float32", "float64"]


def loss_and_gradient(loss, backend_name, dtype, given, types=None, wrt="x", **keys):
    """The loss of `x` and `t`, and the gradient of its sum."""
    backend = ml.get_backend(backend_name, dtype=dtype)
    model = ml.Model()
    model |= loss(input="x", target="t", output="y", **keys)
    arrays = {key: np.asarray(value) for key, value in given.items()}
    shapes = {key: list(value.shape) for key, value in arrays.items()}
    pm = ml.compile(model, backend, data_keys=set(arrays), shapes=shapes, types=types or {})
    ones = {"y": np.ones(pm.shapes["y"])}
    data = {key: backend.array(value) for key, value in arrays.items()}
    found = pm.evaluate({}, data, output_gradients=ones, wrt=[wrt])
    return (np.asarray(backend.to_numpy(v)) for v in (found.outputs["y"], found.gradients[wrt]))


def continued(p, limit):
    """ln p and its slope, below the limit those of the tangent there, at 0 too."""
    p = np.asarray(p, "f8")
    near, safe = p < limit, np.maximum(p, limit)
    value = np.where(near, math.log(limit) + p / limit - 1, np.log(safe))
    return value, np.where(p < 0, -1, 1) / safe


def dtypes_of(backend_name):
    return ["float32"] if backend_name == "mlx" else FLOATS


def close(found, want):
    np.testing.assert_allclose(found, want, rtol=3e-6)


def test_plain_binary_entropy(backend_name):
    x, t = [1.0, 0.0, 0.0, 1.0, 0.5], [1.0, 0.0, 1.0, 0.0, 1.0]
    for dtype in dtypes_of(backend_name):
        loss = ml.BinaryCrossEntropy(input_type="probs")
        y, dx = loss_and_gradient(loss, backend_name, dtype, {"x": x, "t": t})
        close(y, [0.0, 0.0, INF, INF, math.log(2)])
        close(dx, [-1.0, 1.0, -INF, INF, -2.0])


@pytest.mark.parametrize("limit", [None, 0.25])
def test_robust_binary_entropy(limit, backend_name):
    x, t = np.array([1.0, 0.0, 0.0, 1.0, 0.5, 0.125]), np.array([1.0, 0.0, 1.0, 0.0, 1.0, 0.75])
    for dtype in dtypes_of(backend_name):
        options = {} if limit is None else {"threshold": limit}
        loss = ml.BinaryCrossEntropy(input_type="probs", robust=True, **options)
        y, dx = loss_and_gradient(loss, backend_name, dtype, {"x": x, "t": t})
        (yes, slope), (no, fall) = (continued(p, limit or TINY[dtype]) for p in (x, 1 - x))
        close(y, -(t * yes + (1 - t) * no))
        close(dx, (1 - t) * fall - t * slope)


def test_plain_cross_entropy_of_classes(backend_name):
    x, t = [[0.0, 1.0], [0.0, 1.0], [0.25, 0.75]], np.array([0, 1, 0], "i4")
    for dtype in dtypes_of(backend_name):
        loss = ml.CrossEntropy(input_type="probs")
        y, dx = loss_and_gradient(loss, backend_name, dtype, {"x": x, "t": t}, {"t": "int32"})
        close(y, [INF, 0.0, -math.log(0.25)])
        close(dx, [[-INF, 0.0], [0.0, -1.0], [-4.0, 0.0]])


def test_robust_cross_entropy_of_classes(backend_name):
    x, t = [[0.0, 1.0], [0.3, 0.7]], np.array([0, 1], "i4")
    for dtype in dtypes_of(backend_name):
        loss = ml.CrossEntropy(input_type="probs", robust=True)
        y, dx = loss_and_gradient(loss, backend_name, dtype, {"x": x, "t": t}, {"t": "int32"})
        # -(ln thr - 1): 709.396… in float64, 88.336… in float32.
        close(y, [{"float32": 88.33654475, "float64": 709.396418532264}[dtype], -math.log(0.7)])
        close(dx, [[-1 / TINY[dtype], 0.0], [0.0, -1 / 0.7]])


@pytest.mark.parametrize("robust", [False, True])
def test_cross_entropy_of_shares(robust, backend_name):
    x, t = np.array([[0.0, 1.0], [0.25, 0.75]]), np.array([[0.0, 1.0], [0.5, 0.5]])
    for dtype in dtypes_of(backend_name):
        loss = ml.CrossEntropy(input_type="probs", categorical=False, robust=robust)
        y, dx = loss_and_gradient(loss, backend_name, dtype, {"x": x, "t": t})
        log, slope = continued(x, TINY[dtype])
        close(y, -(t * log).sum(1))
        close(dx, -t * slope)


@pytest.mark.parametrize("given", ["tensor", "wire"])
def test_thresholds_are_tensors_or_wires(given, backend_name):
    x, t = np.array([0.125, 0.0, 1.0]), np.array([1.0, 1.0, 0.25])
    limit, data, keys = 0.5, {"x": x, "t": t}, {}
    if given == "wire":
        data["limit"], keys["threshold"] = np.array(limit), "limit"
    for dtype in dtypes_of(backend_name):
        threshold = ml.Tensor(limit) if given == "tensor" else ml.TBD
        loss = ml.BinaryCrossEntropy(input_type="probs", robust=True, threshold=threshold)
        y, dx = loss_and_gradient(loss, backend_name, dtype, data, **keys)
        (yes, slope), (no, fall) = (continued(p, limit) for p in (x, 1 - x))
        close(y, -(t * yes + (1 - t) * no))
        close(dx, (1 - t) * fall - t * slope)


@pytest.mark.parametrize("loss", [ml.CrossEntropy, ml.BinaryCrossEntropy])
def test_thresholds_have_no_axes(loss):
    model = ml.Model()
    with pytest.raises(ShapeError, match="rank 0"):
        model |= loss(input_type="probs", robust=True, threshold=ml.Tensor([0.1, 0.2]))(
            input="x", target="t"
        )


def test_divergence_of_certain_classes(backend_name):
    x, t = np.array([0.0, 1.0, 0.0, 0.5]), np.array([0.0, 1.0, 0.5, 0.5])
    for dtype in dtypes_of(backend_name):
        loss, limit = ml.KLDivergence(), TINY[dtype]
        y, dx = loss_and_gradient(loss, backend_name, dtype, {"x": x, "t": t})
        (of_x, slope), (of_t, _) = continued(x, limit), continued(t, limit)
        close(y, t * (of_t - of_x))
        close(dx, -t * slope)
