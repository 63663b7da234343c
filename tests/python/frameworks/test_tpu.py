"""The backend for TPUs: what it asks of JAX, and what it says where there is none."""

import pickle
import subprocess
import sys

import mithril as ml
import numpy as np
import pytest
from mithril.contrib.tpu import TPUBackend
from mithril.errors import ArgumentError, DeviceNotAvailable, SignatureError

jax = pytest.importorskip("jax")


def has_tpu():
    return any(device.platform == "tpu" for device in jax.devices())


@pytest.fixture
def one_tpu(monkeypatch):
    """A CPU under the name of a TPU; the platforms that JAX was asked for meanwhile."""
    asked, devices = [], jax.devices

    def found(platform=None):
        asked.append((platform, jax.config.jax_platforms))
        return devices("cpu" if platform == "tpu" else platform)

    monkeypatch.setattr(jax, "devices", found)
    return asked


def test_a_model_trains_on_it(one_tpu):
    backend = TPUBackend()
    assert isinstance(backend, ml.JaxBackend)
    assert one_tpu[0] == ("tpu", "tpu,cpu")
    model = ml.Model()
    model |= ml.Linear(2)(input="x", weight="w", bias="b", output="y")
    pm = ml.compile(model, backend, data_keys={"x"})
    x, w = np.arange(6, dtype="float32").reshape(2, 3), np.ones((2, 3), "float32")
    result = pm.evaluate(
        {"w": w, "b": np.zeros(2, "float32")}, {"x": x}, output_gradients={"y": np.ones((2, 2))}
    )
    np.testing.assert_allclose(result.outputs["y"], x @ w.T)
    np.testing.assert_allclose(result.gradients["w"], np.ones((2, 2)).T @ x)
    assert result.outputs["y"].devices() == {jax.devices("tpu")[0]}


@pytest.mark.parametrize("before", [None, "cpu"])
def test_what_jax_was_asked_for_before_stays(one_tpu, before):
    was = jax.config.jax_platforms
    jax.config.update("jax_platforms", before)
    try:
        TPUBackend()
        assert jax.config.jax_platforms == before
        with pytest.raises(DeviceNotAvailable):
            TPUBackend(99)
        assert jax.config.jax_platforms == before
    finally:
        jax.config.update("jax_platforms", was)


def test_it_is_constructed_anew_when_it_is_unpickled(one_tpu):
    again = pickle.loads(pickle.dumps(TPUBackend(dtype="bfloat16", seed=3)))
    assert (type(again), again.default_dtype, again.seed) == (TPUBackend, ml.bfloat16, 3)


def test_the_index_is_one(one_tpu):
    with pytest.raises(DeviceNotAvailable, match="TPUBackend: no device 'tpu:99'; available: "):
        TPUBackend(99)
    for wrong in (-1, "0", True):
        with pytest.raises(ArgumentError, match="index: requires an integer of at least 0"):
            TPUBackend(wrong)
    with pytest.raises(SignatureError, match="TPUBackend: has no argument 'device'"):
        TPUBackend(device="tpu")


def run(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(has_tpu(), reason="there is a TPU")
@pytest.mark.parametrize("first", ["", "ml.JaxBackend()\n"])
def test_without_a_tpu_it_says_what_there_is_and_jax_works_on(first):
    code = (
        "import mithril as ml\nfrom mithril.contrib.tpu import TPUBackend\n" + first + "try:\n"
        "    TPUBackend()\nexcept ml.errors.DeviceNotAvailable as error:\n    print(error)\n"
        "print(ml.JaxBackend(device='cpu').ones(2))"
    )
    said, ones = run(code).splitlines()
    assert said.startswith("TPUBackend: no device 'tpu:0'; available: ")
    assert "cpu:0" in said
    assert ones == "[1. 1.]"


def test_without_jax_it_says_what_the_document_says():
    code = (
        "import sys\nsys.modules['jax'] = None\n"
        "from mithril.contrib.tpu import TPUBackend\n"
        "try:\n    TPUBackend()\n"
        "except ImportError as error:\n"
        "    from mithril.errors import DeviceNotAvailable\n"
        "    assert isinstance(error, DeviceNotAvailable)\n    print(error)"
    )
    said = "JAX is required for TPUBackend. Please install jax and jaxlib."
    assert run(code).strip() == said


def test_the_import_loads_no_framework():
    code = (
        "import sys, mithril.contrib.tpu; print(sorted({'jax', 'torch', 'mlx'} & set(sys.modules)))"
    )
    assert run(code).strip() == "[]"
