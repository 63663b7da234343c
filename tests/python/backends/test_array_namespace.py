"""`x.__array_namespace__()`: the same lines as on NumPy, which has the Array API standard, too."""

import mithril as ml
import numpy as np
import pytest
from backends.test_device_arrays import device  # noqa: F401
from formats.c_cases import drawn
from mithril.errors import ArgumentError, DeviceNotAvailable

pytestmark = pytest.mark.device
X, Y = drawn([3, 4]), np.abs(drawn([3, 4], 1)) + 0.5
DATA = {
    "x": X, "y": Y, "p": np.abs(X) + 0.5, "u": X / 4, "row": Y[0], "cube": drawn([2, 3, 4], 2),
    "i": np.array([[1, 5, 2, 7], [3, 0, 1, 4], [6, 6, 2, 1]]), "b": X > 0, "c": Y > 1,
    "far": np.array([1e30, -np.inf, np.nan, 2.5, -2.5], "f4"),
    "at": np.array([2, 0]), "places": np.array([[0, 2, 1, 1]]),
}  # fmt: skip
UNARY = [
    "abs", "atan", "asinh", "ceil", "cos", "cosh", "exp", "expm1", "floor", "isfinite", "isinf",
    "isnan", "negative", "positive", "round", "sign", "sin", "sinh", "square", "tan", "tanh",
    "trunc",
]  # fmt: skip
BINARY = [
    "add", "atan2", "divide", "equal", "floor_divide", "greater", "greater_equal", "less",
    "less_equal", "maximum", "minimum", "multiply", "not_equal", "remainder", "subtract",
]  # fmt: skip
ELEMENTWISE = [
    *(f"xp.{name}(x)" for name in UNARY),
    *(f"xp.{name}(p)" for name in ["log", "log1p", "log2", "log10", "sqrt", "reciprocal"]),
    *(f"xp.{name}(u)" for name in ["acos", "asin", "atanh"]),
    "xp.acosh(p + 1)",
    *(f"xp.{name}(x, y)" for name in BINARY),
    "xp.pow(p, y)", "xp.add(x, 2)", "xp.multiply(x, 0.5)", "xp.clip(x, -0.5, 0.5)",
    *(f"xp.logical_{name}(b, c)" for name in ("and", "or", "xor")), "xp.logical_not(b)",
    *(f"xp.bitwise_{name}(i, i + 3)" for name in ["and", "or", "xor", "left_shift", "right_shift"]),
    "xp.bitwise_invert(i)", "xp.where(b, x, y)", "xp.floor(i)",
    *(f"xp.{name}(far)" for name in ["ceil", "floor", "round", "trunc"]),
]  # fmt: skip
WHOLE = [
    *(f"xp.{name}({arguments})" for name in ["max", "mean", "min", "prod", "sum", "var", "std"]
      for arguments in ("x", "x, axis=1", "x, axis=(0, 1), keepdims=True", "x, axis=-1")),
    "xp.var(x, correction=1.0)", "xp.std(x, axis=0, correction=1.0)",
    *(f"xp.{name}({arguments})" for name in ("all", "any") for arguments in ("b", "b, axis=0")),
    *(f"xp.{name}({arguments})" for name in ("argmax", "argmin", "argsort", "sort")
      for arguments in ("x, axis=1", "x, axis=0")),
    "xp.cumulative_sum(x, axis=1)", "xp.cumulative_prod(row)", "xp.count_nonzero(b, axis=1)",
    "xp.matmul(x, xp.matrix_transpose(y))", "xp.vecdot(x, y)", "xp.vecdot(x, y, axis=0)",
    "xp.concat([x, y])", "xp.concat((x, y), axis=1)", "xp.stack([x, y], axis=1)",
    "xp.expand_dims(x, axis=1)", "xp.squeeze(xp.expand_dims(x, axis=0), axis=0)",
    "xp.permute_dims(cube, (2, 0, 1))", "xp.moveaxis(cube, 0, -1)", "xp.matrix_transpose(cube)",
    "cube.mT", "xp.reshape(x, (4, 3))", "xp.flip(x, axis=1)", "xp.roll(x, 2, axis=1)",
    "xp.tile(x, (2, 1))", "xp.tril(x)", "xp.triu(x, k=1)", "xp.broadcast_to(row, (3, 4))",
    "xp.broadcast_arrays(x, row)[1]", "xp.take(x, at, axis=1)", "xp.take(row, at)",
    "xp.take_along_axis(x, places, axis=0)", "xp.unstack(cube, axis=1)[2]",
    "xp.nonzero(b)[1]", "xp.sort(xp.unique_values(i))", "xp.meshgrid(row, row)[0]",
    "xp.meshgrid(row, row, indexing='ij')[0]", "xp.astype(x, xp.float64)", "xp.astype(x, xp.int32)",
]  # fmt: skip
NEW = [
    "xp.zeros((2, 3))", "xp.ones(3, dtype=xp.int32)", "xp.full((2, 2), 1.5)", "xp.full(3, 7)",
    "xp.full_like(x, 2)", "xp.zeros_like(i)", "xp.ones_like(x, dtype=xp.bool)", "xp.eye(3)",
    "xp.eye(2, 4, k=1)", "xp.arange(5)", "xp.arange(2, 7, 2)", "xp.arange(5, step=2)",
    "xp.arange(0.0, 1.0, 0.25)", "xp.linspace(0, 1, 5)", "xp.linspace(0, 1, 4, endpoint=False)",
    "xp.asarray([[1, 2], [3, 4]])", "xp.asarray(x, dtype=xp.float64)", "xp.asarray(x, copy=True)",
    "xp.empty((2, 0))", "xp.empty_like(x[:0])",
]  # fmt: skip


@pytest.mark.parametrize("lines", [ELEMENTWISE, WHOLE, NEW], ids=["elements", "whole", "new"])
def test_lines_that_numpy_takes(lines, device):  # noqa: F811
    backend = device()
    placed = {name: backend.to_device(value) for name, value in DATA.items()}
    xp = placed["x"].__array_namespace__()
    for line in lines:
        want = np.asarray(eval(line, {"xp": np, **DATA}))
        got = eval(line, {"xp": xp, **placed})
        assert type(got) is ml.Array, line
        assert got.shape == want.shape and got.dtype.kind == want.dtype.kind, line
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-6, err_msg=line)


def test_dtypes_and_constants(device):  # noqa: F811
    x = device().to_device(X)
    xp = x.__array_namespace__(api_version="2023.12")
    assert xp.__array_api_version__ == "2023.12"
    assert x.dtype == xp.float32 and xp.result_type(x, xp.float64) == xp.float64
    assert xp.isdtype(x.dtype, "real floating") and not xp.isdtype(xp.int8, "bool")
    assert xp.finfo(x).eps == np.finfo("f4").eps and xp.can_cast(xp.int8, xp.int16)
    assert (xp.pi, xp.newaxis) == (np.pi, None) and xp.iinfo(xp.uint8).max == 255
    assert {"sum", "zeros", "float32", "pi"} <= set(dir(xp))
    np.testing.assert_array_equal(x.to_device("cpu"), X)
    assert x.to_device(x.device) is x


def test_wrong_arguments(device):  # noqa: F811
    x = device().to_device(X)
    with pytest.raises(ArgumentError, match=r"one of 2022\.12.*got '1999'"):
        x.__array_namespace__(api_version="1999")
    xp = x.__array_namespace__()
    with pytest.raises(AttributeError, match="has no hypotenuse"):
        xp.hypotenuse  # noqa: B018
    for call in (xp.cumulative_sum, xp.cumulative_prod, lambda x: xp.take(x, x)):
        with pytest.raises(ValueError, match="axis is required for an array of 2 dimensions"):
            call(x)
    with pytest.raises(ValueError, match="copy=False, and the values are not on the device"):
        xp.asarray([1.0], copy=False)


def test_dlpack_with_and_without_a_copy(device):  # noqa: F811
    backend = device()
    xp = backend.to_device(X).__array_namespace__()
    given = X.copy()
    copied = xp.from_dlpack(given, copy=True)
    given[:] = 7
    np.testing.assert_array_equal(copied, X)
    shared = xp.from_dlpack(copied, copy=False)  # its own arrays are where they are
    assert shared.device == copied.device and type(shared) is ml.Array
    np.testing.assert_array_equal(xp.from_dlpack(X, device="cpu"), X)
    for turned, place in ((X.T, None), (copied, "cpu")):
        with pytest.raises(BufferError, match="copy=False, and the values are on another device"):
            xp.from_dlpack(turned, copy=False, device=place)


def test_where_results_lie(device):  # noqa: F811
    x = device().to_device(X)
    xp = x.__array_namespace__()
    for dtype in (xp.float64, xp.float32):
        there, here = xp.astype(x, dtype, device=x.device), xp.astype(x, dtype, device="cpu")
        assert type(there) is ml.Array and type(here) is np.ndarray
        assert there.dtype == here.dtype == dtype
        np.testing.assert_array_equal(there, here)
    assert xp.astype(x, xp.float32, copy=False, device=x.device) is x
    with pytest.raises(DeviceNotAvailable, match="to_device requires"):
        xp.astype(x, xp.int32, device="cuda:7")
    for indexing in ("yx", None):
        with pytest.raises(ValueError, match="meshgrid: indexing requires 'xy' or 'ij'"):
            xp.meshgrid(x[0], x[0], indexing=indexing)
