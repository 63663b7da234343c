"""bfloat16 tensors of PyTorch, which NumPy cannot read: as data, constants, and in `Cast`."""

import mithril as ml
import numpy as np
import pytest
from mithril.errors import UnsupportedError

torch = pytest.importorskip("torch")
VALUES = [1.5, -2.25, 3.0]  # bfloat16 has them exactly
BACKENDS = {
    "numpy": ml.NumpyBackend,
    "cpu": ml.CpuBackend,
    "torch": ml.TorchBackend,
    "jax": ml.JaxBackend,
}


def given():
    return torch.tensor(VALUES, dtype=torch.bfloat16, requires_grad=True)


def relu(cast_to=None):
    model = ml.Model()
    model |= ml.Relu()(input="x", output="h")
    model |= ml.Cast(cast_to or ml.bfloat16)(input="h", output="y")
    return model


def values(array):
    array = array.detach().float() if hasattr(array, "detach") else array
    return np.asarray(array).astype(np.float32).tolist()


@pytest.mark.parametrize("kind", BACKENDS)
def test_data_and_constants(kind):
    backend = BACKENDS[kind]()
    pm = ml.compile(relu(), backend, data_keys={"x"}, inference=True)
    out = pm.evaluate({}, {"x": given()})["y"]
    assert "bfloat16" in str(out.dtype) and values(out) == [1.5, 0.0, 3.0]
    pm = ml.compile(relu(), backend, constant_keys={"x": given()}, inference=True)
    assert values(pm.evaluate()["y"]) == [1.5, 0.0, 3.0]


def test_literals():
    model = ml.Model()
    model |= ml.Relu()(input=ml.Tensor(given()), output="y")
    pm = ml.compile(model, ml.NumpyBackend(), inference=True)
    assert values(pm.evaluate()["y"]) == [1.5, 0.0, 3.0]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_cast_to_a_dtype_of_the_framework(dtype):
    backend = ml.TorchBackend()
    pm = ml.compile(relu(dtype), backend, data_keys={"x"}, inference=True)
    assert pm.evaluate({}, {"x": given()})["y"].dtype is dtype
    model = ml.Model()
    model |= ml.Cast()(input="x", dtype="d", output="y")
    pm = ml.compile(model, backend, data_keys={"x"}, constant_keys={"d": dtype}, inference=True)
    assert pm.evaluate({}, {"x": given()})["y"].dtype is dtype


def test_an_element_type_is_no_data():
    """The result had the type bool, whatever the data said."""
    model = ml.Model()
    model |= ml.Cast()(input="x", dtype="d", output="y")
    with pytest.raises(UnsupportedError, match="'d' is an element type, which must be known here"):
        ml.compile(model, ml.TorchBackend(), data_keys={"x", "d"}, inference=True)


def test_dtypes_of_a_backend_are_its_frameworks():
    jnp = pytest.importorskip("jax.numpy")
    backend = ml.TorchBackend()
    assert backend.float16 is torch.float16 and backend.bfloat16 is torch.bfloat16
    assert torch.ones(2, dtype=backend.float64).dtype is torch.float64
    backend = ml.JaxBackend()
    assert backend.float16 == jnp.float16 and backend.bfloat16 == jnp.bfloat16
    assert jnp.ones(2, backend.bfloat16).dtype == backend.bfloat16
