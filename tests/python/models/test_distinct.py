"""Results as large as data say: elements by a mask, distinct elements, places of what is not zero,
points of a ROC curve; against NumPy and scikit-learn."""

import mithril as ml
import numpy as np
import pytest
from mithril.models import IOKey
from models.composite_cases import BACKENDS, far

NAN = float("nan")
SIZED_BY_DATA = [
    *(pytest.param(name, marks=pytest.mark.device) for name in ("numpy", "cpu")),
    *(pytest.param(name, marks=pytest.mark.frameworks) for name in ("torch", "jax", "mlx")),
]
by_backend = pytest.mark.parametrize("name", SIZED_BY_DATA)


def compiled(model, name, data_keys, **options):
    return ml.compile(model, getattr(ml, BACKENDS[name])(), data_keys=data_keys, **options)


def picked():
    """y = x[k > 0] · 3"""
    x, k = ml.IOKey("x", shape=["n", 3]), ml.IOKey("k", shape=["n", 3])
    return ml.Model.create(y=x[k > 0] * 3.0)


@by_backend
@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("autodiff", ["engine", "framework"])
def test_elements_by_a_mask(name, jit, autodiff):
    if name in ("numpy", "cpu") and (autodiff == "framework" or jit):
        pytest.skip("neither gradients nor a compiler of its own")
    pm = compiled(picked(), name, {"x", "k"}, jit=jit, autodiff=autodiff)
    rng = np.random.default_rng(2)
    for n in (2, 4):  # two masks, two sizes of results
        x, k = rng.standard_normal((2, n, 3)).astype("f4")
        wanted = 3 * x[k > 0]
        seeds = np.arange(len(wanted), dtype="f4")
        found = pm.evaluate({}, {"x": x, "k": k}, output_gradients={"y": seeds}, wrt=["x"])
        slopes = np.zeros_like(x)
        slopes[k > 0] = 3 * seeds
        to_numpy = pm.backend.to_numpy
        assert far(to_numpy(found[0]["y"]), wanted, 1e-6) is None
        assert far(to_numpy(found[1]["x"]), slopes, 1e-6) is None


@by_backend
def test_a_mask_of_rows_beside_a_slice(name):
    x, rows = ml.IOKey("x", shape=[4, 3]), ml.IOKey("rows", shape=[4])
    pm = compiled(ml.Model.create(y=x[rows > 0, 1:]), name, {"x", "rows"}, inference=True)
    x = np.arange(12.0, dtype="f4").reshape(4, 3)
    rows = np.array([1, -1, 0, 2], "f4")
    found = pm.backend.to_numpy(pm.evaluate({}, {"x": x, "rows": rows})["y"])
    assert found.tolist() == x[rows > 0, 1:].tolist()


ARRAYS = {
    "repeated": np.array([[3.0, 1.0], [2.0, 1.0]], "f4"),
    "several NaN": np.array([NAN, 2.0, NAN, -np.inf, 2.0], "f4"),
    "ints": np.array([3, -1, 3, 0]),
    "bools": np.array([True, False, True]),
    "one": np.array(5.0, "f4"),
    "none": np.zeros((0, 2), "f4"),
}
KINDS = {"f": float, "i": int, "b": bool}


def result_of(layer, name, x):
    """The layer's result for an array of its own kind, as NumPy's."""
    model = ml.Model()
    model |= layer(input="x", output="y")
    model.set_types(x=ml.Tensor[KINDS[x.dtype.kind]])
    pm = compiled(model, name, {"x"}, inference=True)
    return pm.backend.to_numpy(pm.evaluate({}, {"x": x})["y"])


@by_backend
@pytest.mark.parametrize("case", ARRAYS)
def test_unique(name, case):
    x = ARRAYS[case]
    found = result_of(ml.Unique(), name, x)
    np.testing.assert_array_equal(found, np.unique(x))
    assert found.dtype.kind == x.dtype.kind


@by_backend
def test_roc_curves(name):
    metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(8)
    scores = rng.integers(0, 12, 40).astype("f4") / 8  # with ties
    label = rng.random(40) < 0.4
    pm = compiled(ml.AUCCore(), name, {"input", "label"}, inference=True)
    found = pm.backend.to_numpy(pm.evaluate({}, {"input": scores, "label": label})["output"])
    fpr, tpr, _ = metrics.roc_curve(label, scores, drop_intermediate=False)
    assert far(found, np.array([tpr[1:], fpr[1:]]), 1e-6) is None
    tpr, fpr = np.concatenate([np.zeros((2, 1)), found], 1)
    assert np.trapezoid(tpr, fpr) == pytest.approx(metrics.roc_auc_score(label, scores))


def test_a_curve_of_one_kind_of_samples_is_nan():
    pm = compiled(ml.AUCCore(), "numpy", {"input", "label"}, inference=True)
    data = {"input": np.array([0.5, 1.0], "f4"), "label": np.array([True, True])}
    found = pm.evaluate({}, data)["output"]
    assert found[0].tolist() == [0.5, 1.0] and np.isnan(found[1]).all()


PLACES = {
    "floats": np.array([[0.0, NAN, -1.0], [0.0, -0.0, 2.0]], "f4"),
    "ints": np.array([[[3], [0]], [[0], [5]]]),
    "bools": np.array([False, True, True]),
    "one": np.array(5.0, "f4"),
    "zero": np.array(0.0, "f4"),
    "none": np.zeros((0, 2), "f4"),
    "all zero": np.zeros((2, 2), "f4"),
}


@by_backend
@pytest.mark.parametrize("case", PLACES)
def test_places_of_what_is_not_zero(name, case):
    x = PLACES[case]
    found = result_of(ml.NonZero(), name, x)
    np.testing.assert_array_equal(found, np.argwhere(x))
    assert found.shape == np.argwhere(x).shape


@by_backend
def test_elements_at_places(name):
    x = IOKey("x", shape=["n", 3])
    model = ml.Model()
    model |= ml.NonZero()(input=x, output="places")
    model |= ml.Buffer()(input=x[model.places[:, 0], model.places[:, 1]], output="y")
    model.expose_keys("y")
    pm = compiled(model, name, {"x"})
    x = np.array([[0.0, 1.0, 2.0], [3.0, 0.0, 0.0]], "f4")
    found = pm.evaluate({}, {"x": x}, output_gradients={"y": np.array([1, 2, 3], "f4")}, wrt=["x"])
    assert pm.backend.to_numpy(found[0]["y"]).tolist() == [1, 2, 3]
    assert pm.backend.to_numpy(found[1]["x"]).tolist() == [[0, 1, 2], [3, 0, 0]]
