"""Numbers that the element type does not hold: what takes them over is refused, what computes with
them computes in float32. Expected values are NumPy's in float64, of the same halves."""

import mithril as ml
import numpy as np
import pytest
from mithril.errors import DataOverflowError

HALVES = ("float16", "bfloat16")
BEYOND = {"float16": 1e9, "bfloat16": 1e39, "float32": 1e39}
MOVED = {
    "masked_fill": lambda x, n: ml.MaskedFill()(x, x > 0, -n),
    "where": lambda x, n: ml.Where()(x > 0, n, x),
    "full": lambda x, n: ml.Full(shape=(2,), value=n)() + x,
    "pad": lambda x, n: ml.Pad(pad_width=((1, 0),), value=n)(x),
    "constant": lambda x, n: x * ml.Tensor([1.0, n]),
}


def compiled(formula, backend_name, dtype, number):
    x = ml.IOKey("x", shape=[2])
    backend = ml.get_backend(backend_name, dtype=dtype)
    return ml.compile(ml.Model.create(y=formula(x, number)), backend, data_keys={"x"})


@pytest.mark.parametrize("dtype", BEYOND)
@pytest.mark.parametrize("what", MOVED)
def test_a_number_that_would_become_infinite_is_refused(what, dtype, backend_name):
    with pytest.raises(DataOverflowError, match=f"in the range of {dtype}, got"):
        compiled(MOVED[what], backend_name, dtype, BEYOND[dtype])


@pytest.mark.parametrize("what", MOVED)
@pytest.mark.parametrize("dtype, number", [("float16", 65504.0), ("bfloat16", 1e38)])
def test_what_it_holds_and_infinity_are_taken(what, dtype, number, backend_name):
    for given in (number, np.inf):
        pm = compiled(MOVED[what], backend_name, dtype, given)
        found = pm.evaluate({}, {"x": np.array([0.5, 1.0])})["y"]
        found = np.asarray(pm.backend.to_numpy(found)).astype("float64")
        assert np.isclose(abs(found).max(), given, rtol=1e-2)


def test_the_text_of_the_error():
    with pytest.raises(DataOverflowError) as error:
        compiled(MOVED["masked_fill"], "numpy", "float16", 1e9)
    said = str(error.value)
    assert "masked_fill: 'value' must be in the range of float16, got -1000000000.0" in said
    assert "give -inf, a number nearer to 0, or a wider type" in said


COMPUTED = {
    "product": (lambda x, n: x * n, lambda x, n: x * n),
    "quotient": (lambda x, n: x / n, lambda x, n: x / n),
    "quotient of it": (lambda x, n: n / x, lambda x, n: n / x),
    "sum": (lambda x, n: x + n, lambda x, n: x + n),
    "difference": (lambda x, n: n - x, lambda x, n: n - x),
    "maximum": (lambda x, n: ml.Maximum()(x, -n), lambda x, n: np.maximum(x, -n)),
    "minimum": (lambda x, n: ml.Minimum()(x, n), lambda x, n: np.minimum(x, n)),
    "less": (lambda x, n: x < n, lambda x, n: x < n),
    "equal": (lambda x, n: ml.Equal()(x, n), lambda x, n: x == n),
    "error": (lambda x, n: ml.AbsoluteError()(x, n), lambda x, n: abs(x - n)),
}


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("what", COMPUTED)
def test_numbers_are_computed_with_in_float32(what, dtype, backend_name):
    if (backend_name, dtype, what) == ("jax", "bfloat16", "quotient"):
        pytest.skip("XLA multiplies by the reciprocal, which is subnormal: 0")
    formula, exact = COMPUTED[what]
    number = 1e6 if dtype == "float16" else 3.395e38  # float32 holds the second one
    pm = compiled(formula, backend_name, dtype, number)
    half = ml.Dtype(dtype).numpy()
    x = np.array([1e-3, np.inf]).astype(half)
    found = np.asarray(pm.backend.to_numpy(pm.evaluate({}, {"x": x})["y"]))
    with np.errstate(all="ignore"):
        want = np.float64(exact(x.astype("float64"), number))
        want = want.astype("float32").astype(half)
    np.testing.assert_allclose(found.astype("float64"), want.astype("float64"), rtol=2**-7)
    assert found.dtype == (bool if what in ("less", "equal") else half)


def test_gradients_beside_such_numbers(backend_name):
    pm = compiled(lambda x, n: x * n * 1e-3, backend_name, "float16", 1e6)
    ones = {"y": pm.backend.ones(2)}
    data = {"x": np.array([1e-3, 2e-3])}
    found = pm.evaluate({}, data, output_gradients=ones, wrt=["x"]).gradients["x"]
    found = np.asarray(pm.backend.to_numpy(found))
    assert found.dtype == np.float16
    between = float(np.float16(1e-3))  # the cotangent of the first product is a half
    np.testing.assert_array_equal(found, np.float16([between * 1e6] * 2))
