"""Which backend is recommended, and why. Devices that are not here are said to be."""

import mithril as ml
import numpy as np
import pytest
from mithril.errors import (
    ArgumentError,
    DeviceNotAvailable,
    KeyNotFound,
    MithrilError,
    SignatureError,
)


def small():
    model = ml.Model()
    model |= ml.Linear(4)(input="x", output="h")
    model |= ml.Relu()(input="h", output="y")
    return model


def masked():
    """Data say how many elements there are."""
    model = ml.Model()
    model |= ml.Unique()(input="x", output="y")
    return model


KNOWN = {"x": [8, 3]}
NATIVE = ["numpy", "cpu"]


def test_the_engine_where_there_are_cpus_only():
    found = ml.recommend_backend(small(), shapes=KNOWN, backends=NATIVE)
    assert found.name == "cpu"
    assert list(found.others) == ["numpy"]
    assert isinstance(found.make(), ml.CpuBackend)
    assert "The engine runs the model's 2 operations in plans of its own, with gradients." in str(
        found
    )


def test_sizes_that_are_open_are_named():
    found = ml.recommend_backend(small(), shapes={"x": [None, 3]}, backends=NATIVE)
    assert found.reasons[-1] == "Sizes of 'x' are open: it plans anew for each set of them."
    assert found.others["numpy"][-1] == "Sizes of 'x' are open, which costs nothing line by line."
    known = ml.recommend_backend(small(), shapes=KNOWN, backends=NATIVE)
    assert known.reasons[-1] == "All sizes are known: one plan is enough."


def test_inference_alone_has_no_gradients():
    said = ml.recommend_backend(small(), training=False, shapes=KNOWN, backends=["cpu"]).reasons
    assert "The engine runs the model's 2 operations in plans of its own." in said


@pytest.mark.parametrize("dtype", ["float64", ml.float16, np.float32])
def test_the_dtype_is_the_one_that_was_asked_for(dtype):
    found = ml.recommend_backend(small(), dtype=dtype, backends=NATIVE)
    assert found.make().default_dtype == ml.as_dtype(dtype)


class NoHalves(ml.NumpyBackend):
    """A backend that refuses what it does not have."""

    def __init__(self, dtype="float32"):
        if ml.as_dtype(dtype) == ml.float16:
            raise DeviceNotAvailable("NoHalves: no float16 here", hint="use float32")
        super().__init__(dtype=dtype)


class OwnRelu(ml.CpuBackend):
    """An engine with a function of Python in it."""

    def relu(self, input):
        return np.maximum(input, 0)


@pytest.fixture(autouse=True)
def names():
    from mithril.backends import registry

    own = {"no_halves": NoHalves, "own_relu": OwnRelu}
    for name, backend in own.items():
        ml.register_backend(name, backend)
    yield
    for name in own:
        del registry._registered[name]


def test_the_engine_comes_last_where_numpy_would_run_all_of_it():
    found = ml.recommend_backend(small(), shapes=KNOWN, backends=["own_relu", "no_halves"])
    assert found.name == "no_halves"
    assert found.others["own_relu"][1] == (
        "The model calls Python functions or data choose sizes, so NumPy runs all of it."
    )


def test_a_backend_that_refuses_is_told_and_not_chosen():
    names = ["no_halves", "cpu"]
    found = ml.recommend_backend(small(), dtype="float16", backends=names)
    assert found.name == "cpu"
    assert found.refused == {"no_halves": "NoHalves: no float16 here; use float32."}
    assert str(found).endswith("not no_halves\n  NoHalves: no float16 here; use float32.")
    assert "no_halves" in ml.recommend_backend(small(), backends=names).others
    with pytest.raises(DeviceNotAvailable, match="no float16 here"):
        ml.recommend_backend(small(), dtype="float16", backends=["no_halves"])


def test_the_first_error_is_that_of_the_model():
    model = small()
    model |= ml.Add()(left="y", right="z", output="s")
    with pytest.raises(MithrilError) as said:
        ml.recommend_backend(model, shapes={"x": [8, 3], "z": [7, 4]}, backends=NATIVE)
    with pytest.raises(MithrilError) as wanted:
        ml.compile(model, ml.NumpyBackend(), shapes={"x": [8, 3], "z": [7, 4]})
    assert type(said.value) is type(wanted.value)
    assert said.value.message.splitlines()[0] == wanted.value.message.splitlines()[0]


def test_wrong_arguments():
    with pytest.raises(SignatureError, match="recommend_backend: model: requires a model, got 3"):
        ml.recommend_backend(3)
    with pytest.raises(ArgumentError, match="training: requires True, False or None, got 'yes'"):
        ml.recommend_backend(small(), training="yes")
    with pytest.raises(KeyNotFound, match="no backend named 'cpuu', did you mean 'cpu'"):
        ml.recommend_backend(small(), backends=["cpuu"])
    with pytest.raises(ArgumentError, match="backends: requires a name at least"):
        ml.recommend_backend(small(), backends=[])
    with pytest.raises(MithrilError):
        ml.recommend_backend(small(), dtype="int32", backends=NATIVE)


def test_the_model_stays_as_it_is():
    model = small()
    before = model.to_json()
    ml.recommend_backend(model, shapes=KNOWN, backends=NATIVE)
    assert model.to_json() == before


# --------------------------------------------------------------------------------- frameworks


@pytest.fixture
def gpus(monkeypatch):
    """PyTorch and JAX say that they have one each."""
    pytest.importorskip("torch")
    pytest.importorskip("jax")
    for backend, devices in ((ml.TorchBackend, ["cpu", "cuda:0"]), (ml.JaxBackend, ["gpu:0"])):
        monkeypatch.setattr(backend, "get_available_devices", staticmethod(lambda d=devices: d))


@pytest.mark.frameworks
@pytest.mark.parametrize(
    "make, shapes, name, device",
    [
        (small, KNOWN, "jax", "gpu:0"),
        (small, {"x": [None, 3]}, "torch", "cuda:0"),
        (masked, {"x": [8]}, "torch", "cuda:0"),
    ],
)
def test_gpus_come_first(gpus, make, shapes, name, device):
    found = ml.recommend_backend(make(), shapes=shapes, data_keys={"x"})
    assert found.name == name
    assert found.options == {"device": device}
    assert found.reasons[0] == f"It has {device}."
    assert list(found.others)[0] in ("jax", "torch")
    assert found.others["cpu"][0] == "It has no device but the CPU."


@pytest.mark.frameworks
def test_a_gpu_of_apple_or_nvidia_is_mlxs_too(monkeypatch):
    pytest.importorskip("mlx.core")
    devices = ["cpu:0", "gpu:0"]
    monkeypatch.setattr(ml.MlxBackend, "get_available_devices", staticmethod(lambda: devices))
    found = ml.recommend_backend(small(), shapes=KNOWN, backends=["cpu", "mlx", "numpy"])
    assert (found.name, found.options) == ("mlx", {"device": "gpu:0"})


@pytest.mark.frameworks
def test_frameworks_say_how_they_run_it():
    pytest.importorskip("jax")
    found = ml.recommend_backend(small(), shapes=KNOWN, backends=["jax", "cpu"])
    assert found.others["jax"] == (
        "It has no device but the CPU.",
        "Functions of its own run all of the model's 2 operations, compiled.",
        "All sizes are known: it compiles once.",
    )
    some = ml.recommend_backend(masked(), shapes={"x": [8]}, data_keys={"x"}, backends=["jax"])
    assert "line by line: its compiler cannot follow masks of data." in some.reasons[1]


@pytest.mark.frameworks
def test_what_is_not_installed_says_how_to_install_it():
    import subprocess
    import sys

    code = (
        "import sys; sys.modules['torch'] = None; import mithril as ml\n"
        "model = ml.Model(); model |= ml.Relu()(input='x', output='y')\n"
        "print(ml.recommend_backend(model, backends=['torch', 'cpu']).refused['torch'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.startswith("PyTorch is not installed"), done.stderr
    assert done.stdout.endswith("; pip install torch.\n")
