"""The rows of "Single operations" in docs/numerics.md, on every backend; values are written out."""

import math

import mithril as ml
import numpy as np
import pytest

INF, NAN = math.inf, math.nan
TINY = 1e-40  # subnormal in float32

# op, what it is made with, operands of float32 (or told), the result
FLOATS = {
    "minimum propagates NaN": (ml.Minimum, {}, ([NAN, 1.0], [1.0, NAN]), [NAN, NAN]),
    "maximum propagates NaN": (ml.Maximum, {}, ([NAN, 1.0], [1.0, NAN]), [NAN, NAN]),
    "min propagates NaN": (ml.Min, {}, ([1.0, NAN, 3.0],), NAN),
    "max propagates NaN": (ml.Max, {}, ([1.0, NAN, 3.0],), NAN),
    "clamp propagates NaN": (
        ml.Clamp, {"min_val": -1.0, "max_val": 1.0}, ([NAN, 2.0],), [NAN, 1.0],
    ),
    "-0 is the smaller in maximum": (
        ml.Maximum, {}, ([-0.0, 0.0, -0.0, 0.0], [0.0, -0.0, -0.0, 0.0]), [0.0, 0.0, -0.0, 0.0],
    ),
    "-0 is the smaller in minimum": (
        ml.Minimum, {}, ([-0.0, 0.0, -0.0, 0.0], [0.0, -0.0, -0.0, 0.0]), [-0.0, -0.0, -0.0, 0.0],
    ),
    "other zeros of maximum": (ml.Maximum, {}, ([-5.0, 0.0], [-0.0, -3.0]), [-0.0, 0.0]),
    "argmax: the first NaN": (ml.ArgMax, {}, ([1.0, NAN, 5.0, NAN],), 1),
    "argmin: the first NaN": (ml.ArgMin, {}, ([1.0, NAN, -5.0, NAN],), 1),
    "argmax: the first extreme": (ml.ArgMax, {}, ([1.0, 5.0, 5.0],), 1),
    "less with NaN": (ml.Less, {}, ([NAN, 1.0], [1.0, NAN]), [False, False]),
    "equal with NaN": (ml.Equal, {}, ([NAN], [NAN]), [False]),
    "not_equal with NaN": (ml.NotEqual, {}, ([NAN], [NAN]), [True]),
    "sign": (ml.Sign, {}, ([NAN, 0.0, -0.0, -7.0],), [NAN, 0.0, -0.0, -1.0]),
    "round": (ml.Round, {}, ([0.5, 1.5, 2.5, -0.5, -1.5],), [0.0, 2.0, 2.0, -0.0, -2.0]),
    "float to int8": (
        ml.Cast, {"dtype": ml.int8}, ([NAN, INF, -INF, 300.0, -300.0, -1.9],),
        [0, 127, -128, 127, -128, -1],
    ),
    "float to bool": (ml.Cast, {"dtype": ml.bool}, ([NAN, 0.0, -0.0, 0.5],), [1, 0, 0, 1]),
    "float to float16": (
        ml.Cast, {"dtype": ml.float16}, ([65519.0, 65520.0, 2049.0, 2051.0],),
        [65504.0, INF, 2048.0, 2052.0],
    ),
    "floor_divide": (
        ml.FloorDivide, {}, ([7.0, -7.0, 7.0, -7.0], [2.0, 2.0, -2.0, -2.0]),
        [3.0, -4.0, -4.0, 3.0],
    ),
    "floor_divide by infinities": (
        ml.FloorDivide, {}, ([1.0, -1.0, 1.0, -1.0, 0.0, INF], [-INF, INF, INF, -INF, INF, INF]),
        [-1.0, -1.0, 0.0, 0.0, 0.0, NAN],
    ),
    "modulo": (
        ml.Remainder, {}, ([7.0, -7.0, 7.0, -7.0, -3.0, 3.0], [2.0, 2.0, -2.0, -2.0, 3.0, -3.0]),
        [1.0, 1.0, -1.0, -1.0, 0.0, -0.0],
    ),
    "subnormal numbers": (ml.Add, {}, ([TINY], [TINY]), [np.float32(TINY) * 2]),
    "max of nothing": (ml.Max, {"axis": 1}, (np.zeros((1, 0)),), [-INF]),
    "min of nothing": (ml.Min, {"axis": 1}, (np.zeros((1, 0)),), [INF]),
    "sum of nothing": (ml.Sum, {"axis": 1}, (np.zeros((1, 0)),), [0.0]),
    "prod of nothing": (ml.Prod, {"axis": 1}, (np.zeros((1, 0)),), [1.0]),
    "mean of nothing": (ml.Mean, {"axis": 1}, (np.zeros((1, 0)),), [NAN]),
    "softmax of -inf": (ml.Softmax, {}, ([[-INF, -INF]],), [[NAN, NAN]]),
    "gelu of infinities": (ml.Gelu, {}, ([-INF, INF, -200.0, 200.0],), [-0.0, INF, -0.0, 200.0]),
    "gelu of infinities, by tanh": (
        ml.Gelu, {"approximate": True}, ([-INF, INF, -200.0, 200.0],), [-0.0, INF, -0.0, 200.0],
    ),
    "silu of infinities": (ml.SiLU, {}, ([-INF, INF, 200.0],), [-0.0, INF, 200.0]),
    "max pooling of NaN": (
        ml.MaxPool2D, {"kernel_size": 2}, ([[[[1.0, NAN], [2.0, 3.0]]]],), [[[[NAN]]]],
    ),
}  # fmt: skip
INTEGERS = {
    "overflow wraps": (ml.Add, ([127, -128], [1, -1]), [-128, 127]),
    "// 0": (ml.FloorDivide, ([7, -7, 0], [0, 0, 0]), [0, 0, 0]),
    "% 0": (ml.Remainder, ([7, -7, 0], [0, 0, 0]), [0, 0, 0]),
    "// rounds down": (ml.FloorDivide, ([7, -7, 7, -7], [2, 2, -2, -2]), [3, -4, -4, 3]),
    "% has the divisor's sign": (ml.Remainder, ([7, -7, 7, -7], [2, 2, -2, -2]), [1, 1, -1, -1]),
    "<< by the width": (ml.ShiftLeft, ([1, -1, 1], [8, 9, -1]), [0, 0, 0]),
    ">> by the width": (ml.ShiftRight, ([64, -64, -1], [8, 9, -1]), [0, -1, -1]),
}


def result(backend, model, arrays, types=None):
    keys = [f"x{i}" for i in range(len(arrays))]
    kind = ml.Tensor[int] if types else ml.Tensor[float]
    given = {k: np.asarray(a, types or "float64") for k, a in zip(keys, arrays, strict=True)}
    inputs = [ml.IOKey(k, shape=list(a.shape), type=kind) for k, a in given.items()]
    widths = dict.fromkeys(keys, types) if types else {}
    made = ml.Model.create(y=model(*inputs))
    pm = ml.compile(made, backend, data_keys=set(keys), types=widths)
    return np.asarray(backend.to_numpy(pm.evaluate({}, given)["y"]))


def same(got, want):
    """Equal, signs of zeros included."""
    np.testing.assert_array_equal(got.astype("float64"), np.asarray(want, "float64"))
    zeros = np.asarray(want, "float64") == 0
    if got.dtype.kind not in "iub":
        np.testing.assert_array_equal(
            np.signbit(got.astype("float64"))[zeros], np.signbit(want)[zeros]
        )


@pytest.mark.parametrize("row", FLOATS)
def test_floats(row, backend_name):
    op, options, arrays, want = FLOATS[row]
    if (row, backend_name) == ("subnormal numbers", "jax"):
        pytest.skip("XLA flushes subnormal numbers of the CPU to 0")
    same(result(ml.get_backend(backend_name), op(**options), arrays), want)


@pytest.mark.parametrize("dtype", ("float16", "bfloat16"))
@pytest.mark.parametrize(
    "row", [row for row in FLOATS if "subnormal" not in row and "float16" not in row]
)
def test_halves(row, dtype, backend_name):
    op, options, arrays, want = FLOATS[row]
    same(result(ml.get_backend(backend_name, dtype=dtype), op(**options), arrays), want)


@pytest.mark.parametrize("row", INTEGERS)
def test_integers(row, backend_name):
    op, arrays, want = INTEGERS[row]
    same(result(ml.get_backend(backend_name), op(), arrays, "int8"), want)


@pytest.mark.parametrize("name, slopes", [("gelu", [0.0, 1.0]), ("silu", [0.0, 1.0])])
def test_slopes_far_out(name, slopes, backend_name):
    """0 and 1, where a factor that is 0 meets one that is large."""
    backend = ml.get_backend(backend_name)
    layer = ml.Gelu() if name == "gelu" else ml.SiLU()
    model = ml.Model.create(y=layer(input=ml.IOKey("x", shape=[2])))
    pm = ml.compile(model, backend, data_keys={"x"})
    ones = {"y": np.ones(2, "float32")}
    x = {"x": np.array([-1e30, 1e30], "float32")}
    got = pm.evaluate({}, x, output_gradients=ones, wrt=["x"]).gradients["x"]
    np.testing.assert_allclose(np.asarray(backend.to_numpy(got)), slopes, atol=1e-12)


@pytest.mark.parametrize("op", [ml.Maximum, ml.Minimum])
def test_ties_of_zeros_share_gradients(op, backend_name):
    backend = ml.get_backend(backend_name)
    a, b = (ml.IOKey(k, shape=[2]) for k in "ab")
    pm = ml.compile(ml.Model.create(y=op()(a, b)), backend, data_keys={"a", "b"})
    data = {"a": np.array([0.0, -0.0], "f4"), "b": np.array([-0.0, 0.0], "f4")}
    ones = {"y": np.ones(2, "f4")}
    for slope in pm.evaluate({}, data, output_gradients=ones, wrt=["a", "b"]).gradients.values():
        np.testing.assert_array_equal(np.asarray(backend.to_numpy(slope)), [0.5, 0.5])


def test_slopes_of_remainders(backend_name):
    """1, and what the quotient rounded down takes away."""
    backend = ml.get_backend(backend_name)
    a, b = (ml.IOKey(k, shape=[3]) for k in "ab")
    pm = ml.compile(ml.Model.create(y=ml.Remainder()(a, b)), backend, data_keys={"a", "b"})
    data = {"a": np.array([7.5, -7.5, 7.5], "f4"), "b": np.array([2.0, 2.0, -2.0], "f4")}
    ones = {"y": np.ones(3, "f4")}
    slopes = pm.evaluate({}, data, output_gradients=ones, wrt=["a", "b"]).gradients
    np.testing.assert_array_equal(np.asarray(backend.to_numpy(slopes["a"])), [1.0, 1.0, 1.0])
    np.testing.assert_array_equal(np.asarray(backend.to_numpy(slopes["b"])), [-3.0, 4.0, 4.0])
