"""Integers of 64 bits on backends that compute in 32."""

import mithril as ml
import numpy as np
import pytest
from mithril.errors import DataOverflowError


def plus_one():
    model = ml.Model()
    model |= ml.Add()(left="x", right=1, output="y")
    return model


@pytest.mark.frameworks
def test_integers_that_jax_would_cut_are_refused():
    backend = ml.get_backend("jax")
    pm = ml.compile(
        plus_one(),
        backend,
        data_keys={"x"},
        types={"x": "int64"},
        shapes={"x": [1]},
        inference=True,
    )
    with pytest.raises(DataOverflowError, match="'x': 4294967301 does not fit int32"):
        pm.evaluate({}, {"x": np.array([2**32 + 5])})
    for _ in range(3):
        assert np.asarray(pm.evaluate({}, {"x": np.array([5])})["y"]).tolist() == [6]
    with pytest.raises(DataOverflowError, match="'x': 4294967301 does not fit int32"):
        pm.evaluate({}, {"x": backend.array(np.array([2**32 + 5]), dtype="int64")})


@pytest.mark.frameworks
def test_constants_that_jax_would_cut_are_refused():
    model = ml.Model()
    model |= ml.Add()(left="x", right=ml.Tensor([2**32 + 5]), output="y")
    with pytest.raises(DataOverflowError, match="4294967301 does not fit int32"):
        pm = ml.compile(
            model,
            ml.get_backend("jax"),
            data_keys={"x"},
            types={"x": "int32"},
            shapes={"x": [1]},
            inference=True,
        )
        pm.evaluate({}, {"x": np.array([5], "i4")})


BEYOND = 2**40
INTEGERS = {
    "full of a type": lambda x: ml.Full(shape=(2,), value=BEYOND, dtype=ml.int64)() + x,
    "arange": lambda x: ml.Arange(start=BEYOND, stop=BEYOND + 2)() + x,
    "clamp": lambda x: ml.Clamp(min_val=-BEYOND)(x),
    "add": lambda x: x + BEYOND,
    "maximum": lambda x: ml.Maximum()(x, -BEYOND),
    "where": lambda x: ml.Where()(x > 0, x, BEYOND),
    "pad": lambda x: ml.Pad(pad_width=((1, 0),), value=BEYOND)(x),
}
INTEGER_RESULTS = {
    "full of a type": [BEYOND + 1, BEYOND],
    "arange": [BEYOND + 1, BEYOND + 1],
    "clamp": [1, 0],
    "add": [BEYOND + 1, BEYOND],
    "maximum": [1, 0],
    "where": [1, BEYOND],
    "pad": [BEYOND, 1, 0],
}


@pytest.mark.parametrize("what", INTEGERS)
def test_numbers_beyond_int32(what, backend_name):
    """Exact where there are 64 bits; JAX has 32 of them unless it computes in float64."""
    backend = ml.get_backend(backend_name)
    model = ml.Model.create(y=INTEGERS[what](ml.IOKey("x", shape=[2], type=ml.Tensor[int])))
    if backend_name == "jax":
        with pytest.raises(DataOverflowError, match="must be in the range of int32, got -?1099511"):
            ml.compile(model, backend, data_keys={"x"})
        backend = ml.get_backend("jax", dtype="float64")
    pm = ml.compile(model, backend, data_keys={"x"})
    found = pm.evaluate({}, {"x": np.array([1, 0])})["y"]
    assert np.asarray(backend.to_numpy(found)).tolist() == INTEGER_RESULTS[what]


def test_numbers_beyond_int32_beside_int32(backend_name):
    """NumPy raises OverflowError."""
    x = ml.IOKey("x", shape=[2], type=ml.Tensor[int])
    with pytest.raises(DataOverflowError, match="'right' must be in the range of int32"):
        ml.compile(
            ml.Model.create(y=x + BEYOND),
            ml.get_backend(backend_name),
            data_keys={"x"},
            types={"x": "int32"},
        )


def test_floats_take_them(backend_name):
    backend = ml.get_backend(backend_name)
    pm = ml.compile(ml.Model.create(y=ml.IOKey("x", shape=[1]) * BEYOND), backend, data_keys={"x"})
    found = pm.evaluate({}, {"x": np.array([1.0], "f4")})["y"]
    assert np.asarray(backend.to_numpy(found)).tolist() == [float(BEYOND)]
