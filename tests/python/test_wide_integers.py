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
