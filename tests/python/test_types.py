"""Element types: members, spellings, dtypes of other libraries."""

import mithril as ml
import ml_dtypes
import numpy as np
import pytest
from mithril.errors import DTypeError
from mithril.types import Dtype, as_dtype, epsilon_table


def test_members_are_strings():
    assert ml.float32 == "float32"
    assert hash(ml.float32) == hash("float32")
    assert str(ml.float32) == f"{ml.float32}" == "float32"
    assert {"float32": 1}.get(ml.float32) == 1


@pytest.mark.parametrize("dtype", Dtype)
def test_sizes_are_numpys(dtype):
    assert dtype.itemsize == dtype.numpy().itemsize
    assert as_dtype(dtype.numpy()) is dtype


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("float32", "float32"),
        ("f32", "float32"),
        ("half", "float16"),
        ("double", "float64"),
        (np.float64, "float64"),
        (np.dtype("int16"), "int16"),
        (np.bool_, "bool"),
        (ml_dtypes.bfloat16, "bfloat16"),
        (float, "float32"),
        (int, "int64"),
        (bool, "bool"),
        (ml.int, "int32"),
    ],
)
def test_spellings(given, expected):
    assert as_dtype(given) == expected


@pytest.mark.frameworks
def test_dtypes_of_torch():
    torch = pytest.importorskip("torch")
    for name in ("float16", "bfloat16", "float32", "float64", "int8", "uint8", "int64", "bool"):
        assert as_dtype(getattr(torch, name)) == name


@pytest.mark.frameworks
def test_dtypes_of_jax():
    jnp = pytest.importorskip("jax.numpy")
    assert as_dtype(jnp.float32) == "float32"
    assert as_dtype(jnp.dtype("bfloat16")) == "bfloat16"


@pytest.mark.parametrize(
    "bad", ["float33", "", "x" * 10**6, "a\0b", None, 3, 1.5, np.complex64, [], {}, object()]
)
def test_what_is_no_dtype(bad):
    with pytest.raises(DTypeError, match="dtype: requires one of uint8") as caught:
        as_dtype(bad)
    assert len(str(caught.value)) < 300


def test_star_import_leaves_the_builtins_alone():
    names: dict = {}
    exec("from mithril.types import *", names)
    assert names["float32"] is ml.float32
    assert not {"int", "float", "bool"} & (names.keys() - {"__builtins__"})


def test_constants_are_numpys():
    for bits, dtype in ((64, np.float64), (32, np.float32)):
        assert epsilon_table[bits][ml.Constant.EPSILON] == pytest.approx(np.finfo(dtype).eps)
        tiny = epsilon_table[bits][ml.Constant.MIN_POSITIVE_NORMAL]
        assert tiny == pytest.approx(np.finfo(dtype).tiny)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_constants_are_those_of_the_backend(dtype):
    model = ml.Model()
    tiny = ml.Constant.MIN_POSITIVE_NORMAL
    model |= ml.Add()(left="x", right=tiny, output="y")
    model.expose_keys("y")
    pm = ml.compile(model, ml.NumpyBackend(dtype=dtype), data_keys={"x"}, shapes={"x": [1]})
    y = pm.evaluate({}, {"x": np.zeros(1, dtype)})["y"]
    assert y.dtype == dtype
    assert y[0] == pytest.approx(np.finfo(dtype).tiny, rel=1e-3)
